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
	io.Closer
	in       *bufio.Reader
	id       jsonrpc.ID // of the call
	exchange *exchange  // that is told why it broke; optional
	flood    flood

	out      bytes.Buffer // that the SDK has yet to read
	answered bool
	broken   bool
}

func newStream(body io.ReadCloser, id jsonrpc.ID, x *exchange) *stream {
	return &stream{Closer: body, in: bufio.NewReader(body), id: id, exchange: x}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.answered {
			// What follows is read so that the connection can be used again.
			_, _ = io.Copy(io.Discard, s.in)
		}
		if s.answered || s.broken {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			s.broken = true
			if s.exchange != nil {
				s.exchange.broke(fmt.Errorf("the answer broke off: %w", err))
			}
		}
	}
	return s.out.Read(p)
}

// next reads one event, and writes what the SDK is to see of it.
func (s *stream) next() error {
	data, err := s.event()
	if err != nil || data == nil {
		return err
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
			return nil
		}
		s.answered = true
	}
	// A line break stands between two tokens here, where a space does as well.
	fmt.Fprintf(&s.out, "data: %s\n\n", bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return nil
}

// event reads one event and returns its data, or nil when it is no message. Events are
// not resumed, so that their names in the stream mean nothing.
func (s *stream) event() (data []byte, err error) {
	message := true
	for {
		line, err := s.in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 && data == nil {
			return nil, io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			if !message {
				data = nil
			}
			return data, nil
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
