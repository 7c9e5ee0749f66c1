package executor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// The types of frames.
const (
	frameReady = "ready"
	frameRun   = "run"
	frameLog   = "log"
	frameCall  = "call"
	frameReply = "reply"
	frameDone  = "done"
	frameFail  = "fail"
)

// frame is one message between worker and child. Which fields it has depends
// on its type.
type frame struct {
	Type string               `json:"type"`
	ID   int                  `json:"id,omitempty"`   // of a call and its reply, counted from 1
	Name string               `json:"name,omitempty"` // of a call
	Kind loop.ScriptErrorKind `json:"kind,omitempty"` // of a failure
	Line int                  `json:"line,omitempty"` // of a failure
	Text string               `json:"text,omitempty"` // of a log line, a failure, or a callback's error
	Data json.RawMessage      `json:"data,omitempty"` // input, output, value, or what a ready or run frame says
	Fail bool                 `json:"fail,omitempty"` // of a reply: Text is an error
}

// order is what a run frame says.
type order struct {
	Code   string   `json:"code"`
	Attach bool     `json:"attach,omitempty"` // the script may attach files
	Names  []string `json:"names"`
	Limits limits   `json:"limits"`
}

// limits are those of a run that worker and child both hold to.
type limits struct {
	Value      int `json:"value"`
	Logs       int `json:"logs"`
	Message    int `json:"message"`
	Input      int `json:"input"`
	Output     int `json:"output"`
	Callbacks  int `json:"callbacks"`
	Concurrent int `json:"concurrent"`
	File       int `json:"file"`
}

const (
	defaultCode    = 256 << 10
	maxPart        = loop.MaxScriptBytes       // what any limit of a size may be
	maxInFlight    = 16 << 20                  // bytes of the inputs of a script's callbacks in flight, unless it is a single one
	maxWorkerFrame = 6*maxPart + frameOverhead // source text of control characters takes six bytes each in JSON

	frameHeader   = 4
	frameOverhead = 64 << 10 // what a frame may hold beside its largest part
)

// fromChild is the size of the largest frame a child may send.
func (l limits) fromChild() int {
	return max(l.Value, l.Input, l.attached(), 6*(l.Logs+noteBytes), 6*l.Message) + frameOverhead
}

// errOversize is a frame over the limit.
var errOversize = errors.New("the frame is too large")

// wire sends and receives frames. Sends may be concurrent; receives may not.
type wire struct {
	in  io.Reader
	out io.Writer
	max int // of a received frame
	buf []byte

	sending sync.Mutex
	encoded bytes.Buffer
}

// send writes one frame. Data that is not JSON is an error and sends nothing.
func (w *wire) send(f *frame) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	w.encoded.Reset()
	w.encoded.Write(make([]byte, frameHeader))
	encoder := json.NewEncoder(&w.encoded)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(f); err != nil {
		return fmt.Errorf("encode %s frame: %w", f.Type, err)
	}
	encoded := w.encoded.Bytes()
	binary.BigEndian.PutUint32(encoded, uint32(len(encoded)-frameHeader))
	if _, err := w.out.Write(encoded); err != nil {
		return fmt.Errorf("send %s frame: %w", f.Type, err)
	}
	return nil
}

// receive reads one frame. The error is io.EOF at the end, and errOversize for
// a frame that announces more than the limit, of which nothing is read.
func (w *wire) receive() (*frame, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(w.in, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if uint64(size) > uint64(w.max) {
		return nil, errOversize
	}
	if cap(w.buf) < int(size) {
		w.buf = make([]byte, max(int(size), 4<<10))
	}
	body := w.buf[:size]
	if _, err := io.ReadFull(w.in, body); err != nil {
		return nil, err
	}
	f := new(frame)
	if err := json.Unmarshal(body, f); err != nil {
		return nil, fmt.Errorf("decode frame: %w", err)
	}
	return f, nil
}

const (
	lineCost  = 16 // what a log line costs beside its text, so that empty lines are bounded too
	logNote   = "… more console output was dropped"
	noteBytes = len(logNote) + lineCost
)

// logBudget bounds the console output of a run.
type logBudget struct {
	left int
	full bool
}

// take returns what of a line may be kept, and whether anything may.
func (b *logBudget) take(text string) (string, bool) {
	if b.full {
		return "", false
	}
	if room := b.left - lineCost; len(text) > room {
		b.full = true
		if room <= len(logNote) {
			return logNote, true
		}
		return cut(text, room), true
	}
	b.left -= len(text) + lineCost
	return text, true
}
