package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// exchange is one request, as the transport sees it.
type exchange struct {
	method string
	began  atomic.Bool  // something of it may have been written
	status atomic.Int32 // of the HTTP answer; 0 when there was none

	mu      sync.Mutex
	id      jsonrpc.ID
	result  json.RawMessage
	refusal *jsonrpc.Error // the server's own; the SDK makes such errors as well
	broken  error          // why the answer did not come, when it is known
}

// broke notes why the answer did not come.
func (x *exchange) broke(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.broken = err
}

// why returns why the answer did not come, when it is known better than by the SDK.
func (x *exchange) why(err error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.broken != nil {
		return x.broken
	}
	return err
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// answered returns what the server wrote: a result, an error, or neither.
func (x *exchange) answered() (result json.RawMessage, refusal *jsonrpc.Error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result, x.refusal
}

// tapped is a transport whose exchanges are written down.
type tapped struct {
	sdk.Transport
	tap *tap
}

// Connect implements sdk.Transport.
func (t tapped) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.tap.Connection = c
	return t.tap, nil
}

// tap is a connection that keeps the text of results for those who wait for one.
type tap struct {
	sdk.Connection

	// pipe is held by the one message that is being written to a program; nil for
	// a server at an address.
	pipe chan struct{}
	// cut ends a program that says too much.
	cut func()

	heard atomic.Uint64 // messages of the server

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*exchange
	begin   jsonrpc.ID // of the initialize request
	version string     // that the server chose
	flood   flood      // of a program
	floods  map[*flood]struct{}
}

func newTap() *tap {
	t := &tap{waiting: make(map[jsonrpc.ID]*exchange)}
	t.floods = map[*flood]struct{}{&t.flood: {}}
	return t
}

// watch counts the answers to the requests of one more stream, until leave.
func (t *tap) watch(f *flood) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.floods[f] = struct{}{}
}

func (t *tap) leave(f *flood) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.floods, f)
}

// Write implements sdk.Connection. It returns when ctx ends, whatever becomes of what
// is being written: a program may take nothing, and an HTTP request ends with ctx.
func (t *tap) Write(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.pipe == nil {
		t.note(ctx, m)
		return t.Connection.Write(context.WithValue(ctx, messageKey{}, m), m)
	}
	select {
	case t.pipe <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.note(ctx, m)
	written := make(chan error, 1)
	go func() {
		defer func() { <-t.pipe }()
		written <- t.Connection.Write(context.WithoutCancel(ctx), m)
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note writes down a message that begins to leave.
func (t *tap) note(ctx context.Context, m jsonrpc.Message) {
	if r, ok := m.(*jsonrpc.Response); ok {
		t.mu.Lock()
		for f := range t.floods {
			f.answered(r.ID)
		}
		t.mu.Unlock()
	}
	if r, ok := m.(*jsonrpc.Request); ok && r.IsCall() {
		t.mu.Lock()
		if r.Method == "initialize" {
			t.begin = r.ID
		}
		if x := exchangeOf(ctx); x != nil && x.method == r.Method {
			x.mu.Lock()
			x.id = r.ID
			x.mu.Unlock()
			t.waiting[r.ID] = x
			x.began.Store(true)
		}
		t.mu.Unlock()
	}
}

// Read implements sdk.Connection. What a server says without being asked is bounded,
// and goes no further unless it is to be answered: nobody here listens to it.
func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := t.read(ctx)
		r, asks := m.(*jsonrpc.Request)
		if err != nil || !asks {
			return m, err
		}
		if t.pipe != nil { // at an address it was counted for the one answer
			if err := t.flood.heard(r, time.Now()); err != nil {
				t.cut()
				return nil, err
			}
		}
		if r.IsCall() {
			r.Params = nil // no request of a server is served but ping, which has none
			return r, nil
		}
	}
}

func (t *tap) read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := t.Connection.Read(ctx)
	if err == nil {
		t.heard.Add(1)
	}
	if r, ok := m.(*jsonrpc.Response); err == nil && ok {
		t.mu.Lock()
		if r.ID == t.begin && t.begin.IsValid() {
			if chosen, err := object(r.Result); err == nil {
				_ = chosen.read("protocolVersion", &t.version) // the session judges it
			}
		}
		x := t.waiting[r.ID]
		delete(t.waiting, r.ID)
		t.mu.Unlock()
		if x != nil {
			x.mu.Lock()
			x.result = r.Result
			_ = errors.As(r.Error, &x.refusal) // if it is none, the answer did not come
			x.mu.Unlock()
		}
	}
	return m, err
}

// Close implements sdk.Connection. The SDK closes while nobody else may use the session,
// and an address may let the end of a session wait.
func (t *tap) Close() error {
	if t.pipe != nil {
		return t.Connection.Close()
	}
	go func() { _ = t.Connection.Close() }() // the session ends when this has
	return nil
}

// forget drops an exchange that nobody waits for any more.
func (t *tap) forget(x *exchange) {
	x.mu.Lock()
	id := x.id
	x.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, id)
}

// protocol returns the version of the protocol that the session has, once it does.
func (t *tap) protocol() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version
}
