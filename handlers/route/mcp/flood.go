package mcp

import (
	"errors"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// The bounds of what a server may say without being asked.
const (
	maxOpen      = 64           // requests that have no answer yet
	maxID        = 256          // bytes of a request's id
	maxUnasked   = 5000         // messages and other events in floodWindow
	maxUnaskedIn = 4 * maxFrame // bytes of their parameters and of other events in floodWindow
	floodWindow  = 5 * time.Second
)

var errFlood = errors.New("the server sends too many or too large messages that nobody asked for")

// flood counts what a server says without being asked, in one session with a program or
// in one answer over HTTP. Who reads and who answers use it at the same time.
type flood struct {
	mu          sync.Mutex
	open        map[jsonrpc.ID]struct{}
	since       time.Time
	count, size int
}

// heard counts a request or a notification. It is errFlood when that is one too many.
func (f *flood) heard(r *jsonrpc.Request, now time.Time) error {
	if err := f.took(len(r.Params), now); err != nil || !r.IsCall() {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if id, text := r.ID.Raw().(string); text && len(id) > maxID {
		return errFlood
	}
	if f.open == nil {
		f.open = make(map[jsonrpc.ID]struct{})
	}
	if f.open[r.ID] = struct{}{}; len(f.open) > maxOpen {
		return errFlood
	}
	return nil
}

// took counts so many bytes of what means nothing here. It is errFlood when that is too much.
func (f *flood) took(size int, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(f.since) >= floodWindow {
		f.since, f.count, f.size = now, 0, 0
	}
	f.count++
	f.size += size
	if f.count > maxUnasked || f.size > maxUnaskedIn {
		return errFlood
	}
	return nil
}

// answered counts an answer to a request of the server that begins to leave.
func (f *flood) answered(id jsonrpc.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, id)
}
