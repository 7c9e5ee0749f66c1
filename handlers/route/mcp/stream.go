package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// stream is an answer that is a stream of events, as the SDK is to see it: the requests
// of the server, and the answer, which is the last. Whatever else comes is dropped, and
// a stream that breaks ends, for which the SDK answers the one call with an error.
type stream struct {
	body  io.Closer
	in    *bufio.Reader
	id    jsonrpc.ID  // of the call
	broke func(error) // is told why no answer came
	tap   *tap
	flood flood

	begun    bool         // its first line was read
	out      bytes.Buffer // that the SDK has yet to read
	answered bool
	broken   bool
}

// newStream returns the stream of an answer. Its flood is of the session's tap until it is
// closed.
func newStream(body io.ReadCloser, id jsonrpc.ID, t *tap, broke func(error)) *stream {
	s := &stream{body: body, in: bufio.NewReader(body), id: id, tap: t, broke: broke}
	t.watch(&s.flood)
	return s
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.tap.leave(&s.flood)
	return s.body.Close()
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.answered {
			// What follows is read so that the connection can be used again.
			_, _ = io.CopyN(io.Discard, s.in, maxFrame)
		}
		if s.answered || s.broken {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			s.broken = true
			s.broke(fmt.Errorf("the answer broke off: %w", err))
		}
	}
	return s.out.Read(p)
}

// next reads one event, and writes what the SDK is to see of it.
func (s *stream) next() error {
	data, size, err := s.event()
	if err != nil {
		return err
	}
	if data == nil {
		return s.flood.took(size, time.Now())
	}
	m, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		return errNoAnswer
	}
	switch m := m.(type) {
	case *jsonrpc.Request:
		if err := s.flood.heard(m, time.Now()); err != nil {
			return err
		}
		if !m.IsCall() {
			return nil
		}
	case *jsonrpc.Response:
		if m.ID != s.id {
			return s.flood.took(size, time.Now())
		}
		s.answered = true
	}
	// A line break stands between two tokens here, where a space does as well.
	fmt.Fprintf(&s.out, "data: %s\n\n", bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return nil
}

// event reads one event and returns its data, or nil when it is no message, and how many
// bytes the event has. Events are not resumed, so that their names in the stream mean
// nothing.
func (s *stream) event() (data []byte, size int, err error) {
	message := true
	for {
		line, err := s.line(maxFrame - size)
		if errors.Is(err, io.EOF) && len(line) == 0 && data == nil {
			return nil, 0, io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		size += len(line)
		if !s.begun {
			s.begun = true
			line = bytes.TrimPrefix(line, []byte("\uFEFF")) // which may stand before the first event
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			if !message {
				data = nil
			}
			return data, size, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(field) {
		case "event":
			message = len(value) == 0 || string(value) == "message"
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
}

// line reads one line, of at most so many bytes.
func (s *stream) line(most int) (line []byte, err error) {
	for {
		part, err := s.in.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return nil, fmt.Errorf("one event has more than %d bytes", maxFrame)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
