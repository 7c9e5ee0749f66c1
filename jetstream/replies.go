package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// replies is the one subscription on which a connection's answers arrive. The
// client library's own request allocates a subscription's worth of state per
// call and takes no more than one answer; here both are free.
type replies struct {
	nc     *nats.Conn
	prefix string
	pool   sync.Pool

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]*reply
	late    uint64           // answers that nobody waited for any more
	denied  *PermissionError // no answer can arrive
}

// reply is a place where the answers to one request arrive. A nil message
// means that the connection was lost, or that the request was denied.
type reply struct {
	token    uint64
	subject  string // of the request
	denied   *PermissionError
	messages chan *nats.Msg
	timer    *time.Timer
}

// listen subscribes. The subscription ends with the connection.
func listen(nc *nats.Conn) (*replies, error) {
	r, err := listenPatiently(nc)
	if err != nil {
		return nil, err
	}
	status := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	go r.watch(status)
	return r, nil
}

// listenPatiently is listen for requests whose answers may come after the
// connection was lost and regained.
func listenPatiently(nc *nats.Conn) (*replies, error) {
	r := &replies{nc: nc, prefix: nc.NewInbox() + ".", waiting: make(map[uint64]*reply)}
	r.pool.New = func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return &reply{messages: make(chan *nats.Msg, events.MaxRead+2), timer: t}
	}
	sub, err := nc.Subscribe(r.prefix+"*", r.deliver)
	if err != nil {
		return nil, err
	}
	// What may be pending is bounded by what requests ask for.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, err
	}
	return r, nil
}

// watch fails the waiting requests when the connection is lost: their answers
// would have gone to it.
func (r *replies) watch(status chan nats.Status) {
	for s := range status {
		r.mu.Lock()
		for _, p := range r.waiting {
			p.put(nil)
		}
		r.mu.Unlock()
		if s == nats.CLOSED {
			return
		}
	}
}

func (r *replies) deliver(m *nats.Msg) {
	token, err := strconv.ParseUint(m.Subject[len(r.prefix):], 36, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// An answer that nobody waits for any more is dropped: who asked has
	// already taken the outcome for unknown.
	if p, ok := r.waiting[token]; ok {
		p.put(m)
	} else {
		r.late++
	}
}

// put never blocks. A message too many is dropped; who reads a batch sees the
// gap.
func (p *reply) put(m *nats.Msg) {
	select {
	case p.messages <- m:
	default:
	}
}

// send publishes a request and returns where its answers arrive. The caller
// must forget it.
func (r *replies) send(ctx context.Context, m *nats.Msg) (*reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, translate(err)
	}
	p := r.pool.Get().(*reply)
	p.subject, p.denied = m.Subject, nil
	r.mu.Lock()
	if denied := r.denied; denied != nil {
		r.mu.Unlock()
		r.pool.Put(p)
		return nil, denied
	}
	r.next++
	p.token = r.next
	r.waiting[p.token] = p
	r.mu.Unlock()
	m.Reply = r.prefix + strconv.FormatUint(p.token, 36)
	if err := r.nc.PublishMsg(m); err != nil {
		r.forget(p)
		return nil, translate(err)
	}
	return p, nil
}

func (r *replies) forget(p *reply) {
	r.mu.Lock()
	delete(r.waiting, p.token)
	r.mu.Unlock()
	for {
		select {
		case <-p.messages:
		default:
			r.pool.Put(p)
			return
		}
	}
}

// await returns the next answer, or an error that wraps events.ErrUnanswered.
func (p *reply) await(ctx context.Context, timeout time.Duration) (*nats.Msg, error) {
	p.timer.Reset(timeout)
	defer p.timer.Stop()
	select {
	case m := <-p.messages:
		if m == nil && p.denied != nil {
			return nil, p.denied
		}
		if m == nil {
			return nil, fmt.Errorf("%w: the connection was lost", events.ErrUnanswered)
		}
		// The server says so that nobody listens, and on which subject; a stored
		// message with such a header comes with the name of its stream.
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" && m.Header.Get("Nats-Stream") == "" {
			return nil, translate(nats.ErrNoResponders)
		}
		return m, nil
	case <-p.timer.C:
		return nil, fmt.Errorf("%w within %s", events.ErrUnanswered, timeout)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", events.ErrUnanswered, context.Cause(ctx))
	}
}

// request sends m and returns the one answer to it.
func (r *replies) request(ctx context.Context, timeout time.Duration, m *nats.Msg) (*nats.Msg, error) {
	p, err := r.send(ctx, m)
	if err != nil {
		return nil, err
	}
	defer r.forget(p)
	return p.await(ctx, timeout)
}
