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

	// Answer answers one request. The code of an error is one stable word.
	Answer func(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) (answer []byte, code string, err error)
}

// maxRequests is how many requests are answered at a time; the others wait in
// the connection.
const maxRequests = 64

// Run serves until ctx ends, and then answers what it has taken.
func (s *Service) Run(ctx context.Context) error {
	slots := make(chan struct{}, maxRequests)
	var open sync.WaitGroup
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
				open.Go(func() {
					defer func() { <-slots }()
					s.answer(context.WithoutCancel(ctx), r)
				})
			}),
		},
	})
	if err != nil {
		return fmt.Errorf("serve agent.api: %w", translate(err))
	}
	<-ctx.Done()
	err = service.Stop()
	open.Wait()
	return translate(err)
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
	// A client that has gone is not told.
	if err != nil {
		_ = r.Error(code, oneLine(err.Error()), nil)
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
