package jetstream

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/micro"
)

// Service answers requests on agent.api.<namespace>.<verb>, shared with every
// other process that runs one.
type Service struct {
	Conn    *Conn
	Version string // of the program, as semantic version

	// Started, when set, is called once requests reach the service.
	Started func()

	// Answer answers one request. The code of an error is one stable word.
	Answer func(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) (answer []byte, code string, err error)
}

// maxRequests is how many requests are answered at a time; the others wait in
// the connection.
const maxRequests = 64

// Run serves until ctx ends, and then answers what it has taken.
func (s *Service) Run(ctx context.Context) error {
	slots := make(chan struct{}, maxRequests)
	open := requests{}
	service, err := micro.AddService(s.Conn.nc, micro.Config{
		Name:        "agentruntime",
		Version:     s.Version,
		Description: "starts, continues and shows runs of agents",
		Endpoint: &micro.EndpointConfig{
			Subject: "agent.api.*.>",
			Handler: micro.HandlerFunc(func(r micro.Request) {
				if isOwnSubject(r.Reply()) {
					return // whoever asks so wants the answer stored, not read
				}
				slots <- struct{}{}
				if !open.begin() {
					<-slots
					return // the process is going away; another one answers
				}
				go func() {
					defer func() { <-slots; open.end() }()
					s.answer(context.WithoutCancel(ctx), r)
				}()
			}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve agent.api: %w", translate(err))
	}
	// A server that is away just now is told when it is back.
	_ = s.Conn.nc.FlushTimeout(s.Conn.timeout)
	if s.Started != nil {
		s.Started()
	}
	<-ctx.Done()
	err = service.Stop()
	open.finish()
	return translate(err)
}

// requests counts those that are being answered, until no more are taken.
type requests struct {
	mu     sync.Mutex
	closed bool
	open   sync.WaitGroup
}

func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.open.Add(1)
	}
	return !r.closed
}

func (r *requests) end() { r.open.Done() }

// finish takes no more and waits for those that are open.
func (r *requests) finish() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.open.Wait()
}

// isOwnSubject reports whether a subject is the service's or the server's own.
// An answer sent to one could be taken for a fact or a request.
func isOwnSubject(subject string) bool {
	return strings.HasPrefix(subject, "agent.") || strings.HasPrefix(subject, "$")
}

func (s *Service) answer(ctx context.Context, r micro.Request) {
	ctx, cancel := s.Conn.within(ctx)
	defer cancel()
	namespace, verb, _ := strings.Cut(strings.TrimPrefix(r.Subject(), "agent.api."), ".")
	answer, code, err := s.Answer(ctx, namespace, verb, r.Headers(), r.Data())
	if most := s.Conn.nc.MaxPayload(); err == nil && int64(len(answer)) > most {
		code, err = "too_large", fmt.Errorf("the answer has %d bytes, the server carries %d: ask for less", len(answer), most)
	}
	// A client that has gone is not told. The error goes into the headers by
	// hand: the library's own way writes what it reads when the handler returns,
	// which it did before.
	if err != nil {
		_ = r.Respond(nil, micro.WithHeaders(micro.Headers{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {oneLine(err.Error())}}))
		return
	}
	_ = r.Respond(answer)
}

// maxDescription bounds the description of an error in a header, in bytes.
const maxDescription = 4 << 10

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	if len(s) > maxDescription {
		s = strings.ToValidUTF8(s[:maxDescription], "") + "…"
	}
	return strings.Join(strings.Fields(s), " ")
}
