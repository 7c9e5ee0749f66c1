package jetstreamtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/agentruntime/agentruntime/jetstream"
)

// nodes is the number of servers of a Cluster.
const nodes = 3

// Cluster is a NATS system of three servers in this process. Clients connect
// inside the process, each to the next running server in turn.
type Cluster struct {
	t       testing.TB
	options [nodes]*server.Options

	mu      sync.Mutex
	servers [nodes]*server.Server // nil: stopped
	next    int
}

// NewCluster starts three servers without streams and waits until they have a
// leader. They end with the test.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	folder := t.TempDir()
	routes := freeRoutes(t)
	for i := range nodes {
		c.options[i] = &server.Options{
			ServerName: fmt.Sprintf("node%d", i),
			Host:       "127.0.0.1", // a server that does not listen does not route
			Port:       server.RANDOM_PORT,
			NoSigs:     true,
			NoLog:      true,
			JetStream:  true,
			SyncAlways: true,
			StoreDir:   filepath.Join(folder, fmt.Sprintf("node%d", i)),
			Cluster:    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port(routes[i])},
			Routes:     routes,
		}
	}
	for i := range nodes {
		c.start(i)
	}
	t.Cleanup(c.stop)
	c.await("three servers with a leader", func() bool { return c.current() == nodes })
	return c
}

// freeRoutes returns addresses at which nothing listens now. Each server must
// know all of them before the first one starts. They are below the range from
// which the system takes the ports of outgoing connections: one server that
// tries to reach another which does not listen yet would take its port.
func freeRoutes(t testing.TB) []*url.URL {
	t.Helper()
	const lowest, count, attempts = 20000, 10000, 100
	var routes []*url.URL
	for range attempts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(count))))
		if err != nil {
			continue
		}
		defer l.Close()
		if routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()}); len(routes) == nodes {
			return routes
		}
	}
	t.Fatalf("found %d of %d free ports", len(routes), nodes)
	return nil
}

func port(route *url.URL) int {
	n, err := strconv.Atoi(route.Port())
	if err != nil {
		panic(err)
	}
	return n
}

func (c *Cluster) start(i int) {
	c.t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		c.t.Fatalf("server %d is not ready", i)
	}
	c.mu.Lock()
	c.servers[i] = s
	c.mu.Unlock()
}

func (c *Cluster) stop() {
	for i := range nodes {
		c.Kill(i)
	}
}

// Kill stops one server.
func (c *Cluster) Kill(node int) {
	c.mu.Lock()
	s := c.servers[node]
	c.servers[node] = nil
	c.mu.Unlock()
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Restart starts a killed server and waits until it has caught up.
func (c *Cluster) Restart(node int) {
	c.t.Helper()
	c.start(node)
	running := len(c.running())
	c.await("the restarted server to be current", func() bool { return c.current() == running })
}

// Connect connects to one of the running servers, and to the next one when
// that is lost.
func (c *Cluster) Connect(config jetstream.Config) (*jetstream.Conn, error) {
	config.Dial = c.dial
	return jetstream.Connect(config)
}

func (c *Cluster) dial() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range nodes {
		c.next = (c.next + 1) % nodes
		if s := c.servers[c.next]; s != nil {
			return s.InProcessConn()
		}
	}
	return nil, errors.New("no server is running")
}

// StepDown makes the leader of a stream give way, and returns when there is a
// new one.
func (c *Cluster) StepDown(stream string) {
	c.t.Helper()
	old := c.LeaderOf(stream)
	if old < 0 {
		c.t.Fatalf("stream %s has no leader", stream)
	}
	account, err := c.servers[old].LookupAccount("$G")
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.servers[old].JetStreamStepdownStream(account.Name, stream); err != nil {
		c.t.Fatal(err)
	}
	c.await("a new leader of "+stream, func() bool { return c.LeaderOf(stream) >= 0 })
}

// LeaderOf returns which server leads a stream, or -1.
func (c *Cluster) LeaderOf(stream string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.servers {
		if s != nil && s.JetStreamIsStreamLeader("$G", stream) {
			return i
		}
	}
	return -1
}

func (c *Cluster) running() []*server.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*server.Server
	for _, s := range c.servers {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

func (c *Cluster) leader() *server.Server {
	for _, s := range c.running() {
		if s.JetStreamIsLeader() {
			return s
		}
	}
	return nil
}

// current counts the servers that the leader sees and that have caught up, the
// leader included.
func (c *Cluster) current() int {
	s := c.leader()
	if s == nil {
		return 0
	}
	info, err := s.Jsz(nil)
	if err != nil || info.Meta == nil {
		return 0
	}
	n := 1
	for _, r := range info.Meta.Replicas {
		if r.Current && !r.Offline {
			n++
		}
	}
	return n
}

func (c *Cluster) await(what string, ok func() bool) {
	c.t.Helper()
	Eventually(c.t, what, ok)
}
