package jetstream_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func oneLine(t *testing.T, err error, words ...string) {
	t.Helper()
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the message has several lines: %q", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the message %q does not say %q", err, w)
		}
	}
}

func TestAPortInUseIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	folder := t.TempDir()
	err = (&jetstream.Embedded{StoreDir: folder, Listen: l.Addr().String()}).Start()
	var inUse *jetstream.AddressInUseError
	if !errors.As(err, &inUse) {
		t.Fatalf("Start = %v", err)
	}
	oneLine(t, err, l.Addr().String(), "stop it or choose another port")
	// The folder is free again.
	e := &jetstream.Embedded{StoreDir: folder}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	e.Shutdown()
}

func TestAFolderThatCannotBeWrittenIsSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{filepath.Join(file, "data"), ""} {
		err := (&jetstream.Embedded{StoreDir: folder}).Start()
		var unusable *jetstream.FolderError
		if !errors.As(err, &unusable) {
			t.Fatalf("Start = %v", err)
		}
		oneLine(t, err, folder, "choose another folder")
	}
}

func TestAFolderServesOneProcess(t *testing.T) {
	folder := t.TempDir()
	first := &jetstream.Embedded{StoreDir: folder}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	err := (&jetstream.Embedded{StoreDir: folder}).Start()
	var unusable *jetstream.FolderError
	if !errors.As(err, &unusable) {
		t.Fatalf("Start = %v", err)
	}
	oneLine(t, err, "in use by another process")
	first.Shutdown()
	second := &jetstream.Embedded{StoreDir: folder}
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	second.Shutdown()
}

func TestOtherProgramsConnectOnlyWhenAsked(t *testing.T) {
	if url := jetstreamtest.Server(t).ClientURL(); url != "" {
		t.Errorf("a server without a listener has the URL %s", url)
	}
	e := &jetstream.Embedded{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	defer e.Shutdown()
	conn, err := jetstream.Connect(jetstream.Config{Servers: e.ClientURL(), Layout: jetstream.Layout{Shards: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNoServerIsSaid(t *testing.T) {
	_, err := jetstream.Connect(jetstream.Config{Servers: "nats://127.0.0.1:1"})
	if err == nil {
		t.Fatal("connected to nothing")
	}
	oneLine(t, err, "127.0.0.1:1", "is the server running")
}

func TestFactsSurviveARestart(t *testing.T) {
	folder := t.TempDir()
	key := events.Key{Namespace: "ns", Session: "s"}
	for i := range 3 {
		e := &jetstream.Embedded{StoreDir: folder}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		conn := jetstreamtest.Open(t, e, jetstream.Layout{})
		log := &jetstream.Log{Conn: conn}
		last, err := log.Last(t.Context(), key)
		if err != nil || last != uint64(i) {
			t.Fatalf("start %d: Last = %d, %v", i, last, err)
		}
		if _, err := log.Append(t.Context(), key, fact(key, "a", []byte(`1`)), last); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		e.Shutdown()
	}
}
