package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
)

// checkFiles refuses credentials that cannot be used, before a server is asked for.
func (a *app) checkFiles() error {
	n := &a.config.NATS
	for _, c := range []struct{ file, what, holds string }{
		{n.Creds, "a credentials file of NATS", "-----BEGIN USER NKEY SEED-----"}, {n.NKey, "the seed of a user's NKey", "SU"},
		{n.TLSCert, "a certificate in PEM", "-----BEGIN CERTIFICATE-----"}, {n.TLSKey, "a private key in PEM", "-----BEGIN "}, {n.TLSCA, "certificates in PEM", "-----BEGIN CERTIFICATE-----"},
	} {
		if c.file == "" {
			continue
		}
		data, err := os.ReadFile(c.file)
		if err != nil {
			return usage(fmt.Errorf("read credentials: %w", err))
		}
		if !bytes.Contains(data, []byte(c.holds)) {
			return usage(fmt.Errorf("read credentials: %s is not %s", c.file, c.what))
		}
	}
	if n.TLSCert == "" && n.TLSKey == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(n.TLSCert, n.TLSKey); err != nil {
		return usage(fmt.Errorf("read credentials: the client's certificate needs both --tlscert and --tlskey, which belong together: %w", err))
	}
	return nil
}

// connect connects to the configured NATS system.
func (a *app) connect(name string) (*jetstream.Conn, error) {
	if err := a.checkFiles(); err != nil {
		return nil, err
	}
	c := a.config.Connection(name)
	c.Timeout = a.flags.timeout
	conn, err := jetstream.Connect(c)
	if err != nil {
		return nil, unreachable(err)
	}
	a.conn = conn
	return conn, nil
}

// client asks the API of a running worker.
type client struct {
	app  *app
	conn *jetstream.Conn
}

// withClient connects for one verb.
func (a *app) withClient(f func(ctx context.Context, c *client) error) error {
	conn, err := a.connect("agentruntime cli")
	if err != nil {
		return err
	}
	defer conn.Close()
	return f(a.ctx, &client{a, conn})
}

// errNoWorker means that nobody listens for requests.
var errNoWorker = errors.New("no worker answers")

// ask makes one request and reads the answer.
func (c *client) ask(ctx context.Context, verb string, header map[string]string, request, answer any) error {
	data, ok := request.([]byte)
	if !ok {
		var err error
		if data, err = events.Marshal(request); err != nil {
			return err
		}
	}
	out, err := c.try(ctx, "agent.api."+c.app.config.Namespace+"."+verb, header, data)
	var refused *jetstream.ServiceError
	var denied *jetstream.PermissionError
	switch {
	case errors.As(err, &denied):
		return failed(fmt.Errorf("%s: %w", verb, denied))
	case errors.Is(err, jetstream.ErrNoService):
		return unreachable(fmt.Errorf("%w at %s; start one with \"agentruntime dev\" or \"agentruntime serve\"", errNoWorker, orDefault(c.app.config.NATS.Server, "nats://127.0.0.1:4222")))
	case errors.As(err, &refused) && refused.Code == handlers.CodeUnavailable:
		return unreachable(fmt.Errorf("%s: %w", verb, &handlers.APIError{Code: refused.Code, Message: refused.Description}))
	case errors.As(err, &refused):
		return failed(&handlers.APIError{Code: refused.Code, Message: refused.Description})
	case errors.Is(err, nats.ErrMaxPayload):
		return failed(fmt.Errorf("%s: the request has %d bytes, and NATS takes %d at a time; make it smaller", verb, len(data), c.conn.NATS().MaxPayload()))
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable(fmt.Errorf("%s: no answer within %s; ask again, with a longer --timeout if need be", verb, c.app.flags.timeout))
	case err != nil:
		return unreachable(fmt.Errorf("%s: %w", verb, err))
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return failed(fmt.Errorf("%s: read the answer: %w", verb, err))
	}
	return nil
}

// tries are the shares of the time-out that the attempts of one request get.
// The worker that a request reaches may be frozen; another attempt may reach
// another one. Every request may be repeated: commands have ids.
var tries = []float64{0.125, 0.125, 0.75}

func (c *client) try(ctx context.Context, subject string, header map[string]string, data []byte) (out []byte, err error) {
	for _, share := range tries {
		attempt, cancel := context.WithTimeout(ctx, time.Duration(share*float64(c.app.flags.timeout)))
		out, err = c.conn.Request(attempt, subject, header, data)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break
		}
	}
	return out, err
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// command sends a command as a CloudEvent in binary mode.
func (c *client) command(ctx context.Context, id string, payload any) (*handlers.Admission, error) {
	e, err := events.New(payload)
	if err != nil {
		return nil, err
	}
	e.ID, e.Source = id, "/agentruntime/cli"
	header := make(map[string]string)
	for name, values := range e.Header() {
		header[name] = values[0]
	}
	var admitted handlers.Admission
	verb := events.TypeOf(e.Type).Short()
	return &admitted, c.ask(ctx, verb, header, e.Data, &admitted)
}
