package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
)

// Server is how one server is reached: a Command or a URL.
type Server struct {
	Command []string          // a program and its arguments
	Env     map[string]string // beside a few harmless variables
	Dir     string            // that it runs in; the worker's own when empty

	URL     string            // of streamable HTTP
	Headers map[string]string // of every request

	Gone string // why it cannot be begun, such as a secret without a value
}

// Pool is the handlers.Carrier of MCP routes. It keeps one session with each server
// that was needed.
type Pool struct {
	servers map[string]*server
	client  *sdk.Client
	rules   dial.Rules
	logger  *slog.Logger
	now     func() time.Time

	taking, asking time.Duration // see Patience

	life context.Context // until Close
	end  context.CancelFunc
}

var _ handlers.Carrier = (*Pool)(nil)

// Options are what a Pool is made of.
type Options struct {
	Servers map[string]Server // by the name that routes use
	Rules   dial.Rules        // of connections to addresses
	Logger  *slog.Logger      // it must redact
	Version string            // of this program, told to the servers
	Now     func() time.Time
}

// New returns a pool. No server is begun yet.
func New(o Options) *Pool {
	p := &Pool{servers: make(map[string]*server, len(o.Servers)), rules: o.Rules, logger: o.Logger, now: o.Now, taking: Patience, asking: Patience}
	p.life, p.end = context.WithCancel(context.Background())
	// The SDK's own log repeats what errors say.
	p.client = sdk.NewClient(&sdk.Implementation{Name: "agentruntime", Version: o.Version},
		&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}, Logger: slog.New(slog.DiscardHandler)})
	for name, s := range o.Servers {
		p.servers[name] = &server{pool: p, name: name, spec: s, turn: make(chan struct{}, 1)}
	}
	return p
}

// Close ends every session and every server that was started here, and returns when
// they are gone. Calls under way end with what is known of them.
func (p *Pool) Close() {
	p.end()
	var open sync.WaitGroup
	for _, s := range p.servers {
		open.Go(s.close)
	}
	open.Wait()
}

// server finds a server by its name.
func (p *Pool) server(name string) (*server, error) {
	s := p.servers[name]
	if s == nil {
		return nil, &handlers.NotMadeError{Where: "MCP server " + name, Reason: "this worker has none of that name: add it to mcp in its configuration", Own: true}
	}
	return s, nil
}

// The pauses after a server could not be begun.
const (
	MinPause = 200 * time.Millisecond
	MaxPause = 30 * time.Second
)

// Patience is how long a program may take for what a program that works does at once:
// to take a message from its input, and, after a call that ended without an answer, to
// say anything at all when it is asked with a ping. One that does not is killed, and is
// begun again with the next call. A server at an address has it for the ping that asks
// whether it still knows the session.
const Patience = 30 * time.Second

// beginning bounds how long a server may take to be begun.
const beginning = 30 * time.Second

// server is one server, and the session with it while there is one.
type server struct {
	pool *Pool
	name string
	spec Server

	turn   chan struct{}  // held by who changes what follows
	ending sync.WaitGroup // sessions that are being closed

	session *session
	pause   time.Duration // after the last failure; 0 after a success
	next    time.Time     // when it may be begun again
	reason  error         // why it could not be begun
	closed  bool
}

// open returns the session with the server, and begins one when there is none. One that is
// in doubt is asked first.
func (s *server) open(ctx context.Context) (*session, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, s.notMade("it is still being begun", ctx.Err())
	}
	if ready, err := s.standing(); ready != nil || err != nil {
		<-s.turn
		return ready, err
	}
	// A server may take longer to begin, or to say whether it knows the session, than
	// one call has time: the next call finds it begun.
	begun := make(chan error, 1)
	var made *session
	go func() {
		defer func() { <-s.turn }()
		if made = s.confirmed(); made != nil {
			begun <- nil
			return
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginning)
		defer cancel()
		defer context.AfterFunc(s.pool.life, cancel)()
		if s.spec.URL == "" {
			s.ending.Wait() // two of one program do not run at once
		}
		var err error
		if made, err = s.begin(limited); err != nil {
			s.pause = min(max(2*s.pause, MinPause), MaxPause)
			s.next, s.reason = s.pool.now().Add(s.pause), err
		} else {
			s.session, s.pause = made, 0
		}
		begun <- err
	}()
	select {
	case err := <-begun:
		if err != nil {
			return nil, s.notMade("it cannot be begun", err)
		}
		return made, nil
	case <-ctx.Done():
		return nil, s.notMade("it is still being begun", ctx.Err())
	}
}

// standing returns the session if there is one, or why none is to be begun now. The
// caller holds the turn.
func (s *server) standing() (*session, error) {
	switch {
	case s.closed:
		return nil, s.notMade("the worker is ending", nil)
	case s.session != nil && s.session.alive():
		if s.session.inDoubt() {
			return nil, nil
		}
		return s.session, nil
	case s.spec.Gone != "":
		return nil, s.notMade("it cannot be begun: "+s.spec.Gone, nil)
	}
	s.part()
	if wait := s.next.Sub(s.pool.now()); wait > 0 {
		return nil, s.notMade(fmt.Sprintf("it could not be begun and is tried again in %s", wait.Round(10*time.Millisecond)), s.reason)
	}
	return nil, nil
}

// confirmed returns the session that is in doubt, if there is one and the server still
// knows it. One that it does not know is given up. The caller holds the turn.
func (s *server) confirmed() *session {
	if s.session == nil || s.session.confirm(s.pool.life, s.pool.asking) {
		return s.session
	}
	s.part()
	return nil
}

func (s *server) notMade(reason string, err error) error {
	return &handlers.NotMadeError{Where: "MCP server " + s.name, Reason: reason, Err: err, Own: err == nil}
}

// begin begins a session.
func (s *server) begin(ctx context.Context) (*session, error) {
	t := newTap()
	made := &session{tap: t, ended: make(chan struct{})}
	var transport sdk.Transport
	if s.spec.URL != "" {
		made.http = &web{next: s.pool.rules.Transport(), set: s.spec.Headers, tap: t, life: s.pool.life, taking: s.pool.taking}
		transport = &sdk.StreamableClientTransport{Endpoint: s.spec.URL, HTTPClient: &http.Client{Transport: made.http}, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: -1}
	} else {
		p, err := startProcess(&s.spec, &lines{server: s.name, logger: s.pool.logger}, s.pool.taking)
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", commandOf(&s.spec), err)
		}
		made.process = p
		t.pipe, t.cut = make(chan struct{}, 1), p.kill
		transport = &sdk.IOTransport{Reader: p.out, Writer: input{p}, MaxLineLength: maxFrame}
	}
	client, err := s.pool.client.Connect(ctx, tapped{transport, t}, nil)
	if err != nil {
		made.end()
		said := ""
		if made.process != nil {
			said = made.process.epitaph()
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("begin a session: the server did not answer within %s%s: %w", beginning, said, err)
		}
		return nil, fmt.Errorf("begin a session: %w%s", err, said)
	}
	made.client = client
	if made.http != nil {
		made.http.begun.Store(true)
	}
	go func() {
		_ = client.Wait() // why it ended is said to whoever waited for an answer
		close(made.ended)
	}()
	return made, nil
}

// drop forgets a session that has ended.
func (s *server) drop(ctx context.Context, old *session) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-s.turn }()
	if s.session == old {
		s.part()
	}
}

// part gives up the session, if there is one. It is closed meanwhile: the calls of
// others that are under way at an address have their time. The caller holds the turn.
func (s *server) part() {
	if s.session != nil {
		s.ending.Go(s.session.close)
		s.session = nil
	}
}

// question asks a program that left a call without an answer whether it still serves,
// and drops the session when it says nothing. One question is asked at a time.
func (s *server) question(session *session) {
	if session.process == nil || !session.asked.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer session.asked.Store(false)
		ctx, cancel := context.WithTimeout(s.pool.life, s.pool.asking)
		defer cancel()
		before := session.tap.heard.Load()
		_ = session.client.Ping(ctx, nil) // whatever it answers, it answers
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || session.tap.heard.Load() != before {
			return
		}
		s.pool.logger.Warn("an MCP server says nothing any more and is ended", "server", s.name, "after", s.pool.asking)
		session.process.kill()
		s.drop(s.pool.life, session)
	}()
}

func (s *server) close() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.closed = true
	s.part()
	s.ending.Wait()
}

// session is a session with a server.
type session struct {
	client  *sdk.ClientSession
	tap     *tap
	process *process      // of a server that was started here
	http    *web          // of a server at an address
	asked   atomic.Bool   // whether a question is under way
	ended   chan struct{} // closed when the session has
}

func (s *session) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return s.process == nil || s.process.alive()
	}
}

func (s *session) inDoubt() bool { return s.http != nil && s.http.doubt.Load() }

// confirm asks the server at an address with a ping whether it still knows the session.
// An error that it answers is an answer too, but not one under a status of HTTP.
func (s *session) confirm(life context.Context, patience time.Duration) bool {
	s.http.doubt.Store(false) // what other requests meet meanwhile counts
	ctx, cancel := context.WithTimeout(life, patience)
	defer cancel()
	x := &exchange{method: "ping"}
	defer s.tap.forget(x)
	_ = s.client.Ping(context.WithValue(ctx, exchangeKey{}, x), nil) // the exchange says how it ended
	result, refused := x.answered()
	status := int(x.status.Load())
	return status == http.StatusTooManyRequests || isGood(status) && (result != nil || refused != nil)
}

// close ends the session, and the server if it was started here.
func (s *session) close() {
	if s.process != nil {
		// Its input is closed and it is waited for before the session, which
		// would wait for its output without end.
		s.process.close()
	}
	_ = s.client.Close() // there is nothing more to be done about it
	<-s.ended
	s.end()
}

// end gives back what a session used.
func (s *session) end() {
	if s.process != nil {
		s.process.close()
	}
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
}

// errGone means that the session had ended before a request was written.
var errGone = errors.New("the session has ended")
