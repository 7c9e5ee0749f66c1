package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Conn is a connection to the NATS system. It is safe for concurrent use and
// shared by everything of this package. When the server goes away it
// reconnects for ever; meanwhile requests fail, and nothing is kept to be sent
// later: a late copy of an append that its caller has given up is one more
// thing to reason about.
type Conn struct {
	layout Layout
	// shardsGiven tells that the shard count was configured, and so must be
	// the stored one; otherwise the stored one is taken.
	shardsGiven bool
	timeout     time.Duration
	nc          *nats.Conn
	js          natsjs.JetStream
	replies     *replies
	services    *replies // of requests to services
	embedded    *Embedded
	denials     *denials
}

// Connect connects to the NATS system. A server that cannot be reached at
// first is an error; later losses are not.
func Connect(config Config) (*Conn, error) { return connect(config, nil) }

func connect(config Config, embedded *Embedded) (*Conn, error) {
	servers := config.Servers
	if servers == "" {
		servers = nats.DefaultURL
	}
	if err := config.Layout.check(); err != nil {
		return nil, err
	}
	denied := &denials{}
	options, err := config.options(denied)
	if err != nil {
		return nil, err
	}
	shown := withoutPasswords(servers)
	nc, err := nats.Connect(servers, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w; is the server running, and are the credentials those of this role?", shown, err)
	}
	js, err := natsjs.New(nc, natsjs.WithDefaultTimeout(config.timeout()))
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", shown, err)
	}
	r, err := listen(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", shown, err)
	}
	services, err := listenPatiently(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", shown, err)
	}
	denied.tell(r)
	denied.tell(services)
	return &Conn{denials: denied, layout: config.Layout.complete(embedded != nil), shardsGiven: config.Layout.Shards != 0, timeout: config.timeout(),
		nc: nc, js: js, replies: r, services: services, embedded: embedded}, nil
}

// withoutPasswords returns a list of URLs as it may be shown.
func withoutPasswords(servers string) string {
	list := strings.Split(servers, ",")
	for i, s := range list {
		if u, err := url.Parse(strings.TrimSpace(s)); err == nil && u.User != nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
}

func (c *Config) timeout() time.Duration {
	if c.Timeout == 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

func (c *Config) options(denied *denials) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(c.Name),
		nats.Timeout(c.timeout()),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
	}
	if c.Dial != nil {
		options = append(options, nats.InProcessServer(dialer(c.Dial)))
	}
	if c.Creds != "" {
		options = append(options, nats.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("read nkey %s: %w", c.NKey, err)
		}
		options = append(options, o)
	}
	if c.User != "" {
		options = append(options, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		options = append(options, nats.Token(c.Token))
	}
	if c.TLSCert != "" || c.TLSKey != "" {
		options = append(options, nats.ClientCert(c.TLSCert, c.TLSKey))
	}
	if c.TLSCA != "" {
		options = append(options, nats.RootCAs(c.TLSCA))
	}
	if c.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return append(options,
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if nc.IsClosed() {
				return // what was denied explains how it ended
			}
			// The server tells of denials again when it is asked again.
			if denied.forget(); err != nil {
				log.Warn("lost the connection to NATS", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS again", "server", nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			if e := permissionError(err); e != nil {
				denied.note(e)
				err = e
			}
			if s != nil {
				log.Warn("NATS reports an error", "subject", s.Subject, "error", err)
			} else {
				log.Warn("NATS reports an error", "error", err)
			}
		})), nil
}

// dialer lets a function stand in for a server in the same process.
type dialer func() (net.Conn, error)

func (d dialer) InProcessConn() (net.Conn, error) { return d() }

// Close ends the connection. Requests under way fail.
func (c *Conn) Close() { c.nc.Close() }

// Connected reports whether the connection stands at this moment.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// NATS returns the connection itself, for services and capability routes: what
// is plain request and reply needs nothing of this package.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// Layout returns the layout with its defaults filled in.
func (c *Conn) Layout() Layout { return c.layout }

// within bounds one request.
func (c *Conn) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}
