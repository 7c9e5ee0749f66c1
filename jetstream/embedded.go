package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// Embedded is a NATS server inside this process, for a single machine. It
// syncs every message to the disk before it acknowledges it, unless a stream
// asks otherwise. Set the fields, then Start.
type Embedded struct {
	// StoreDir is where the data is kept. One process at a time may use it.
	StoreDir string

	// Listen is the address at which other programs connect, for example
	// 127.0.0.1:4222; port 0 picks a free one. Empty: only this process
	// connects.
	Listen string

	// Logger receives the server's warnings and errors; none when nil.
	Logger *slog.Logger

	server *server.Server
	lock   *os.File
}

// Start returns when the server has recovered what the folder holds and serves.
func (e *Embedded) Start() error {
	lock, err := LockFolder(e.StoreDir)
	if err != nil {
		return err
	}
	e.lock = lock
	if err := e.start(); err != nil {
		e.Shutdown()
		return err
	}
	return nil
}

func (e *Embedded) start() error {
	options, err := e.options()
	if err != nil {
		return err
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fmt.Errorf("start the embedded NATS server: %w", err)
	}
	fatal := make(chan error, 1)
	s.SetLoggerV2(&serverLog{e.Logger, fatal}, false, false, false)
	e.server = s
	s.Start()
	select {
	case err := <-fatal:
		return fmt.Errorf("start the embedded NATS server in %s: %w", e.StoreDir, err)
	default:
		return nil
	}
}

func (e *Embedded) options() (*server.Options, error) {
	options := &server.Options{
		ServerName: "agentruntime",
		JetStream:  true,
		StoreDir:   e.StoreDir,
		SyncAlways: true,
		DontListen: e.Listen == "",
		NoSigs:     true,
	}
	if e.Listen == "" {
		return options, nil
	}
	host, port, err := net.SplitHostPort(e.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w; write it as 127.0.0.1:4222", e.Listen, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return nil, fmt.Errorf("listen address %q: the port must be a number up to 65535", e.Listen)
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	options.Host, options.Port = host, n
	// The server reports a port in use as text only; asking first gives the
	// cause.
	if n > 0 {
		l, err := net.Listen("tcp", e.Listen)
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, &AddressInUseError{Address: e.Listen}
		}
		if err != nil {
			return nil, fmt.Errorf("listen at %s: %w", e.Listen, err)
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("listen at %s: %w", e.Listen, err)
		}
	}
	return options, nil
}

// Connect connects to the server inside the process.
func (e *Embedded) Connect(config Config) (*Conn, error) {
	config.Dial = e.server.InProcessConn
	return connect(config, e)
}

// ClientURL returns the URL at which other programs connect, or "" when the
// server does not listen.
func (e *Embedded) ClientURL() string {
	if e.Listen == "" {
		return ""
	}
	return e.server.ClientURL()
}

// Shutdown stops the server and returns when everything is on the disk. It may
// be called again.
func (e *Embedded) Shutdown() {
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
	if e.lock != nil {
		e.lock.Close()
		e.lock = nil
	}
}

// syncAlways reports whether the server syncs each message.
func (e *Embedded) syncAlways() bool {
	config := e.server.JetStreamConfig()
	return config != nil && config.SyncAlways
}

// serverLog passes the server's log on and catches the fatal error after which
// it would never become ready.
type serverLog struct {
	log   *slog.Logger
	fatal chan error
}

func (l *serverLog) Fatalf(format string, args ...any) {
	select {
	case l.fatal <- fmt.Errorf(format, args...):
	default:
	}
}

func (l *serverLog) Errorf(format string, args ...any) {
	if l.log != nil {
		l.log.Error(fmt.Sprintf(format, args...))
	}
}

func (l *serverLog) Warnf(format string, args ...any) {
	if l.log != nil {
		l.log.Warn(fmt.Sprintf(format, args...))
	}
}

func (l *serverLog) Noticef(string, ...any) {}
func (l *serverLog) Debugf(string, ...any)  {}
func (l *serverLog) Tracef(string, ...any)  {}

// AddressInUseError reports that another program listens at the address.
type AddressInUseError struct {
	Address string
}

func (e *AddressInUseError) Error() string {
	return fmt.Sprintf("address %s is in use: another NATS server or another agentruntime runs there; stop it or choose another port", e.Address)
}

// FolderError reports a data folder that cannot be used.
type FolderError struct {
	Folder string
	Err    error
}

func (e *FolderError) Error() string {
	if errors.Is(e.Err, errLocked) {
		return fmt.Sprintf("data folder %s is in use by another process; stop that one or choose another folder", e.Folder)
	}
	return fmt.Sprintf("data folder %s cannot be written: %v; make it writable for this user or choose another folder", e.Folder, e.Err)
}

func (e *FolderError) Unwrap() error { return e.Err }
