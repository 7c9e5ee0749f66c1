package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Headers of the server.
const (
	headerExpected  = "Nats-Expected-Last-Subject-Sequence"
	headerMessageID = "Nats-Msg-Id"
	headerTTL       = "Nats-TTL"
	headerSequence  = "Nats-Sequence"
	headerPrevious  = "Nats-Last-Sequence" // of the message before this one in the same batch; 0 in the first
	headerRollup    = "Nats-Rollup"        // "sub" removes what stands before the message on its subject
	headerOperation = "KV-Operation"       // a bucket's entry with it is a deletion
)

// place is where messages stand: a literal subject and the stream that stores
// it.
type place struct {
	stream  string
	subject string
}

// ack is the server's answer to a publish.
type ack struct {
	Error    *natsjs.APIError `json:"error"`
	Stream   string           `json:"stream"`
	Sequence uint64           `json:"seq"`
}

// publish stores a message and returns its sequence. An error that wraps
// events.ErrConflict or events.ErrUnanswered leaves the outcome open.
func (c *Conn) publish(ctx context.Context, at place, timeout time.Duration, header nats.Header, data []byte) (uint64, error) {
	answer, err := c.replies.request(ctx, timeout, &nats.Msg{Subject: at.subject, Header: header, Data: data})
	if err != nil {
		return 0, fmt.Errorf("publish to %s: %w", at.subject, err)
	}
	var a ack
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return 0, fmt.Errorf("publish to %s: %w: read the acknowledgement: %w", at.subject, events.ErrUnanswered, err)
	}
	if a.Error != nil {
		return 0, fmt.Errorf("publish to %s: %w", at.subject, translateAPI(a.Error))
	}
	if a.Stream != at.stream || a.Sequence == 0 {
		return 0, fmt.Errorf("publish to %s: %w: stream %q acknowledged sequence %d; only %s stores the subject", at.subject, events.ErrUnanswered, a.Stream, a.Sequence, at.stream)
	}
	return a.Sequence, nil
}

// expecting returns the header of a publish that replaces the subject's message
// at that sequence (0: there is none).
func expecting(sequence uint64) nats.Header {
	return nats.Header{headerExpected: {strconv.FormatUint(sequence, 10)}}
}

// setTTL makes the server remove the message after d; its granularity is one
// second.
func setTTL(header nats.Header, d time.Duration) {
	seconds := max(1, int64((d+time.Second-1)/time.Second))
	header[headerTTL] = []string{strconv.FormatInt(seconds, 10) + "s"}
}

// stored is a message of a stream. The zero value stands for none.
type stored struct {
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

// gone reports whether a bucket's entry is absent or deleted.
func (m *stored) gone() bool {
	if m.Sequence == 0 || len(m.Header) == 0 {
		return m.Sequence == 0
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	return err == nil && header.Get(headerOperation) != ""
}

// last asks the stream's leader for a subject's last message.
func (c *Conn) last(ctx context.Context, at place, timeout time.Duration) (stored, error) {
	return c.ask(ctx, at, timeout, []byte(`{"last_by_subj":"`+at.subject+`"}`))
}

// ask asks the stream's leader for one message of a subject.
func (c *Conn) ask(ctx context.Context, at place, timeout time.Duration, body []byte) (stored, error) {
	m, err := c.replies.request(ctx, timeout, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + at.stream, Data: body})
	if err != nil {
		return stored{}, fmt.Errorf("ask for a message of %s: %w", at.subject, err)
	}
	var answer struct {
		Error   *natsjs.APIError `json:"error"`
		Message *stored          `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return stored{}, fmt.Errorf("ask for a message of %s: %w", at.subject, err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == codeNoMessage:
		return stored{}, nil
	case answer.Error != nil:
		return stored{}, fmt.Errorf("ask for a message of %s: %w", at.subject, translateAPI(answer.Error))
	case answer.Message == nil:
		return stored{}, fmt.Errorf("ask for a message of %s: the answer holds neither a message nor an error", at.subject)
	}
	return *answer.Message, nil
}

// lastNearby asks any replica for a subject's last message, as it is on the
// wire: cheaper than the leader, and it may be a few milliseconds old.
func (c *Conn) lastNearby(ctx context.Context, at place, timeout time.Duration) ([]byte, error) {
	m, err := c.replies.request(ctx, timeout, &nats.Msg{Subject: "$JS.API.DIRECT.GET." + at.stream + "." + at.subject})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", at.subject, err)
	}
	switch status := m.Header.Get("Status"); {
	case lastNumber(m, headerSequence) != 0:
		if m.Header.Get(headerOperation) != "" {
			return nil, fmt.Errorf("read %s: %w", at.subject, events.ErrNotFound)
		}
		return m.Data, nil
	case status == strconv.Itoa(http.StatusNotFound):
		return nil, fmt.Errorf("read %s: %w", at.subject, events.ErrNotFound)
	default:
		return nil, fmt.Errorf("read %s: %w: status %q %s", at.subject, events.ErrUnanswered, status, m.Header.Get("Description"))
	}
}

// lastText reads a header that the server appends after whatever the message
// was stored with.
func lastText(m *nats.Msg, name string) string {
	values := m.Header[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func lastNumber(m *nats.Msg, name string) uint64 {
	n, err := strconv.ParseUint(lastText(m, name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
