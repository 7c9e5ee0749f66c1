package jetstream

import (
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config says how to reach the NATS system. Its fields are what the nats
// command line knows under the same names. The zero value connects to
// nats://127.0.0.1:4222 without credentials.
type Config struct {
	Servers     string // URLs, separated by commas
	Name        string // of the connection, shown by the server's monitoring
	Creds       string // file with a user JWT and its seed
	NKey        string // file with a seed
	User        string
	Password    string
	Token       string
	TLSCert     string // file; needs TLSKey
	TLSKey      string // file
	TLSCA       string // file
	InboxPrefix string // private prefix of reply subjects; _INBOX when empty

	// Timeout bounds one request to the server; 5s when zero. A request
	// that fails is an unknown outcome, so a short one buys nothing.
	Timeout time.Duration

	// Dial, when set, makes the connection instead of Servers.
	Dial func() (net.Conn, error)

	// Logger receives lost and regained connections; none when nil.
	Logger *slog.Logger

	Layout Layout
}

// DefaultTimeout bounds one request to the server unless configured.
const DefaultTimeout = 5 * time.Second

// Shard counts unless configured. One server gains nothing from shards until
// it may use more threads than cores, and a cluster that stores other things
// as well needs several from the start: the count can never be changed.
const (
	EmbeddedShards = 1
	ExternalShards = 8
)

// Layout is what the streams look like. A process whose layout differs from
// the stored one in a setting that matters refuses to start.
type Layout struct {
	Shards   int           // of the log; EmbeddedShards or ExternalShards when zero
	Replicas int           // of every stream; 1 when zero
	EventAge time.Duration // how long public events are kept; 7 days when zero
	DeadAge  time.Duration // how long dead letters are kept; 30 days when zero
}

func (l *Layout) check() error {
	if l.Shards < 0 || l.Replicas < 0 || l.EventAge < 0 || l.DeadAge < 0 {
		return fmt.Errorf("layout %+v: counts and ages must not be negative", *l)
	}
	return nil
}

// complete fills the zero fields.
func (l Layout) complete(embedded bool) Layout {
	if l.Shards == 0 {
		l.Shards = ExternalShards
		if embedded {
			l.Shards = EmbeddedShards
		}
	}
	if l.Replicas == 0 {
		l.Replicas = 1
	}
	if l.EventAge == 0 {
		l.EventAge = 7 * 24 * time.Hour
	}
	if l.DeadAge == 0 {
		l.DeadAge = 30 * 24 * time.Hour
	}
	return l
}
