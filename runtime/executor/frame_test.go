package executor

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/agentruntime/agentruntime/events"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// stage returns a process whose child has already written all it will write.
func stage(output []byte) *Process {
	p := &Process{
		factory: &Factory{MaxValue: 1 << 10, MaxLogs: 1 << 10, MaxMessage: 100, MaxInput: 1 << 10, MaxCallbacks: 5, MaxConcurrent: 2},
		stderr:  new(head), exited: make(chan struct{}), gone: true,
	}
	p.wire = &wire{in: bytes.NewReader(output), out: io.Discard, max: p.factory.limits(loop.ScriptLimits{}).fromChild()}
	close(p.exited)
	return p
}

// frames encodes what a child would write.
func frames(texts ...string) []byte {
	var out []byte
	for _, text := range texts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(text)))
		out = append(out, text...)
	}
	return out
}

const ended = `{"type":"done","data":1}`

func TestAChildIsNotBelieved(t *testing.T) {
	for name, test := range map[string]struct {
		output []byte
		kind   loop.ScriptErrorKind
	}{
		"nothing":                   {nil, loop.ScriptKilled},
		"half a header":             {[]byte{0, 0}, loop.ScriptKilled},
		"half a frame":              {frames(ended)[:10], loop.ScriptKilled},
		"a frame of 4 GiB":          {[]byte{255, 255, 255, 255, '{'}, loop.ScriptOutput},
		"no JSON":                   {frames("x"), loop.ScriptKilled},
		"an empty frame":            {frames(""), loop.ScriptKilled},
		"another shape":             {frames(`{"type":1}`), loop.ScriptKilled},
		"an unknown type":           {frames(`{"type":"run"}`), loop.ScriptKilled},
		"a second ready":            {frames(`{"type":"ready"}`), loop.ScriptKilled},
		"no value":                  {frames(`{"type":"done"}`), loop.ScriptOutput},
		"a value over its limit":    {frames(`{"type":"done","data":"` + strings.Repeat("x", 2000) + `"}`), loop.ScriptOutput},
		"a key twice":               {frames(`{"type":"done","data":{"a":1,"a":2}}`), loop.ScriptOutput},
		"half a character":          {frames(`{"type":"done","data":"\ud800"}`), loop.ScriptOutput},
		"an unknown failure":        {frames(`{"type":"fail","kind":"mine"}`), loop.ScriptKilled},
		"a time-out of its own":     {frames(`{"type":"fail","kind":"timeout"}`), loop.ScriptKilled},
		"more log than it may":      {frames(`{"type":"log","text":"`+strings.Repeat("x", 2000)+`"}`, ended), loop.ScriptOutput},
		"more log lines":            {frames(append(slice(100, `{"type":"log"}`), ended)...), loop.ScriptOutput},
		"an unknown name":           {frames(`{"type":"call","id":1,"name":"evil","data":1}`, ended), loop.ScriptKilled},
		"a call out of order":       {frames(`{"type":"call","id":2,"name":"wait","data":1}`, ended), loop.ScriptKilled},
		"a call twice":              {frames(`{"type":"call","id":1,"name":"wait","data":1}`, `{"type":"call","id":1,"name":"wait","data":1}`), loop.ScriptKilled},
		"a call without input":      {frames(`{"type":"call","id":1,"name":"wait"}`, ended), loop.ScriptOutput},
		"a call with a large input": {frames(`{"type":"call","id":1,"name":"wait","data":"` + strings.Repeat("x", 2000) + `"}`), loop.ScriptOutput},
		"an end with calls open":    {frames(`{"type":"call","id":1,"name":"wait","data":1}`, ended), loop.ScriptKilled},
		"a failure with calls open": {frames(`{"type":"call","id":1,"name":"wait","data":1}`, `{"type":"fail","kind":"exception"}`), loop.ScriptKilled},
		"too many calls at once": {frames(`{"type":"call","id":1,"name":"wait","data":1}`,
			`{"type":"call","id":2,"name":"wait","data":1}`, `{"type":"call","id":3,"name":"wait","data":1}`), loop.ScriptKilled},
	} {
		_, err := stage(test.output).Execute(context.Background(), staged())
		var fault *Error
		if !errors.As(err, &fault) || fault.Kind != test.kind {
			t.Errorf("%s: got %v, want kind %s", name, err, test.kind)
		}
	}
	result, err := stage(frames(`{"type":"log","text":"a"}`, ended)).Execute(context.Background(), staged())
	if err != nil || string(result.Value) != "1" || len(result.Logs) != 1 {
		t.Errorf("an honest child: got %v, %v", result, err)
	}
	_, err = stage(frames(`{"type":"fail","kind":"exception","line":99,"text":"`+strings.Repeat("é", 200)+`"}`)).Execute(context.Background(), staged())
	if fault, ok := err.(*Error); !ok || fault.Line != 0 || len(fault.Message) > 100 {
		t.Errorf("a failure beyond the script: got %v", err)
	}
}

func slice(n int, text string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

// staged is a script with a callback that answers at once and one that waits.
func staged() *Script {
	return &Script{
		Code: "return 1", Bindings: []string{"now", "wait"}, Limits: loop.ScriptLimits{Timeout: time.Minute},
		Call: func(ctx context.Context, name string, _ json.RawMessage) (json.RawMessage, error) {
			if name == "wait" {
				<-ctx.Done()
			}
			return json.RawMessage(`{}`), nil
		},
	}
}

// FuzzFrame lets a child write anything. The run must end, with a value that
// every reader takes or with an error of the script, within its limits.
func FuzzFrame(f *testing.F) {
	f.Add(frames(ended))
	f.Add(frames(`{"type":"log","text":"a\u0000"}`, `{"type":"call","id":1,"name":"now","data":{"a":[1]}}`, ended))
	f.Add(frames(`{"type":"call","id":1,"name":"wait","data":1}`, `{"type":"call","id":2,"name":"now","data":1}`, `{"type":"fail","kind":"memory","line":1}`))
	f.Add(frames(`{"type":"done","data":{"a":"\ud800"}}`))
	f.Add([]byte{0, 0, 0, 2, '{', '}', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, output []byte) {
		p := stage(output)
		l := p.factory.limits(loop.ScriptLimits{})
		result, err := p.Execute(context.Background(), staged())
		var logs []string
		if err == nil {
			logs = result.Logs
			if err := events.CheckJSON(result.Value, events.JSONLimits{MaxBytes: l.Value}); err != nil {
				t.Error(err)
			}
		} else {
			fault, ok := err.(*Error)
			if !ok {
				t.Fatalf("got %v, want an error of the script", err)
			}
			if len(fault.Message) > l.Message || !utf8.ValidString(fault.Message) || fault.Line < 0 || fault.Line > 1 {
				t.Errorf("got %+v", fault)
			}
			logs = fault.Logs
		}
		size := 0
		for _, line := range logs {
			size += len(line) + lineCost
		}
		if size > l.Logs+noteBytes {
			t.Errorf("%d bytes of logs were kept", size)
		}
	})
}

func TestFramesArriveAsTheyWereSent(t *testing.T) {
	var pipe bytes.Buffer
	w := &wire{in: &pipe, out: &pipe, max: 1 << 20}
	for _, f := range []*frame{
		{Type: frameCall, ID: 7, Name: "a.b", Data: json.RawMessage(`{"html":"<&>","n":12345678901234567890}`)},
		{Type: frameFail, Kind: loop.ScriptMemory, Line: 3, Text: "é\u2028"},
		{Type: frameReply, ID: 1, Fail: true},
	} {
		if err := w.send(f); err != nil {
			t.Fatal(err)
		}
		got, err := w.receive()
		if err != nil || string(got.Data) != string(f.Data) || got.Text != f.Text || got.ID != f.ID || got.Fail != f.Fail {
			t.Errorf("sent %+v, received %+v, %v", f, got, err)
		}
	}
	if err := w.send(&frame{Type: frameDone, Data: json.RawMessage("{")}); err == nil || pipe.Len() > 0 {
		t.Error("a frame that is no JSON was sent")
	}
}

func TestTextIsCutOnARune(t *testing.T) {
	for limit := range 12 {
		if got := cut("é😀aé", limit); len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("to %d bytes: %q", limit, got)
		}
	}
	if got := cut("a\xffb", 100); got != "a\uFFFDb" {
		t.Errorf("got %q", got)
	}
}
