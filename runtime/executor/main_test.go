//go:build linux

package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

func TestMain(m *testing.M) {
	switch os.Args[0] {
	case executor.ProbeName:
		probe()
	case workerName:
		worker()
	case lockedName:
		locked()
	default:
		os.Exit(m.Run())
	}
}

// newFactory returns a factory that the test closes.
func newFactory(t testing.TB, f *executor.Factory) *executor.Factory {
	t.Helper()
	if f == nil {
		f = &executor.Factory{Warm: -1}
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close factory: %v", err)
		}
	})
	return f
}

// execute runs the script in a child of its own.
func execute(t testing.TB, f *executor.Factory, s executor.Script) (*executor.Result, error) {
	t.Helper()
	p, err := f.New(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	return p.Execute(context.Background(), &s)
}

// run runs source text without bindings.
func run(t testing.TB, code string) (*executor.Result, error) {
	t.Helper()
	return execute(t, newFactory(t, nil), executor.Script{Code: code, Limits: loop.ScriptLimits{Timeout: 20 * time.Second}})
}

// failure returns the script's fault, of the kind wanted.
func failure(t testing.TB, err error, kind loop.ScriptErrorKind) *executor.Error {
	t.Helper()
	var fault *executor.Error
	if !errors.As(err, &fault) {
		t.Fatalf("got %v, want a %s error of the script", err, kind)
	}
	if fault.Kind != kind {
		t.Fatalf("got %v, want kind %s", err, kind)
	}
	return fault
}

// echo answers with its input.
func echo(_ context.Context, _ string, input json.RawMessage) (json.RawMessage, error) {
	return input, nil
}
