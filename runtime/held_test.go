package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"

	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// answering is a backend that keeps no ledger of what it is sent.
type answering struct {
	runtime.Backend
	answer json.RawMessage
}

func (b answering) Call(context.Context, *runtime.Callback) (json.RawMessage, error) {
	return bytes.Clone(b.answer), nil
}

// counted is a store whose journal counts what it is given and keeps nothing.
type counted struct {
	runtime.Store
	appends, most int
}

// RecordCallbacks implements runtime.Journal.
func (c *counted) RecordCallbacks(_ context.Context, r *events.CallbacksRecorded) error {
	c.appends++
	size := 0
	for _, made := range r.Made {
		size += len(made.Input)
	}
	for _, done := range r.Done {
		size += len(done.Result)
	}
	c.most = max(c.most, size)
	return nil
}

// Callbacks implements runtime.Journal.
func (*counted) Callbacks(context.Context, string) ([]projector.Callback, error) { return nil, nil }

func TestAScriptHoldsNoMemoryThatGrowsWithItsCallbacks(t *testing.T) {
	for _, c := range []struct {
		name    string
		effect  events.Effect
		n, size int // callbacks, and bytes of the input of each
		answer  int // bytes
	}{
		{"large inputs of what is idempotent", events.EffectIdempotent, 100, 255 << 10, 10},
		{"large inputs of writes", events.EffectWrite, 100, 255 << 10, 10},
		{"many results", events.EffectWrite, 12_000, 10, 2000},
		{"many reads", events.EffectRead, 4_000, 3 << 10, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(rt.RunJS("big"), rt.Complete(`1`))
			h.Input.Capabilities[0].Effect = c.effect
			var before, after goruntime.MemStats
			h.Factory.Scripts = map[string]rt.ScriptFunc{"big": func(_ context.Context, call rt.Callback) (any, error) {
				goruntime.GC()
				goruntime.ReadMemStats(&before)
				for i := range c.n {
					if _, err := call("desk.book", json.RawMessage(fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat("x", c.size)))); err != nil {
						return nil, err
					}
				}
				goruntime.GC()
				goruntime.ReadMemStats(&after)
				return 1, nil
			}}
			store := &counted{Store: h.Store}
			answer := json.RawMessage(`"` + strings.Repeat("y", c.answer) + `"`)
			if _, err := attempt(t, h, store, answering{h.Backend, answer}); err != nil {
				t.Fatal(err)
			}
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
				t.Errorf("%d MiB more are in use", grown>>20)
			}
			if store.appends == 0 || store.appends > c.n || store.most > 1<<20 {
				t.Errorf("%d appends, the largest of %d bytes", store.appends, store.most)
			}
		})
	}
}
