package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
	"github.com/agentruntime/agentruntime/runtime"
)

// provider is a provider that counts what is asked of it at a time.
type provider struct {
	*httptest.Server
	mu          sync.Mutex
	under, most int
	refuse      int // requests, with a Retry-After
	made        int
	hold        chan struct{} // each request waits for one
}

func newProvider(t *testing.T) *provider {
	p := &provider{hold: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.under, p.made = p.under+1, p.made+1
		p.most = max(p.most, p.under)
		refused := p.refuse > 0
		p.refuse--
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.under--
		}()
		if refused {
			w.Header().Set("Retry-After", "3600")
			http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
			return
		}
		<-p.hold
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hello\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(p.Close)
	return p
}

// limitedModels are the models of a worker that shares a provider's limits.
func limitedModels(s *system, p *provider, worker string, m limit.Meter) runtime.Model {
	models := &Models{Limits: NewLimiter(s.conn, worker, m), Requests: config.Requests{PerCall: 1, Patience: 20 * time.Second}, Providers: map[string]config.Provider{
		"x": {Kind: config.KindCompatible, BaseURL: p.URL + "/v1", Key: "very-secret-key", KeyEnv: "X_KEY", Limits: config.Limits{Concurrent: 2}}}}
	model, _, err := models.Model("x/m")
	must(s.t, err)
	return model
}

func ask(ctx context.Context, model runtime.Model) error {
	_, err := model.Generate(limit.For(ctx, "default"), &runtime.Request{Messages: []events.Message{events.Text("1", events.RoleUser, "Hello.")}})
	return err
}

func TestWorkersShareTheLimitsOfAProvidersKey(t *testing.T) {
	s, p, m := newSystem(t), newProvider(t), NewMetrics()
	var all sync.WaitGroup
	for i := range 2 {
		model := limitedModels(s, p, fmt.Sprint("w", i), m)
		for range 4 {
			all.Go(func() {
				if err := ask(t.Context(), model); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for left := 8; left > 0; left-- {
		jetstreamtest.Eventually(t, "two requests to be under way", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.under == min(2, left)
		})
		p.hold <- struct{}{}
	}
	all.Wait()
	if p.most != 2 || p.made != 8 {
		t.Errorf("%d requests were made, %d at a time; two may be", p.made, p.most)
	}
	_, page := fetch(t, serve(t, m, isReady)+"/metrics")
	for _, want := range []string{`agentruntime_limit_wait_seconds_count{limit="provider x",outcome="passed"} 8`, `agentruntime_limit_percent{limit="provider x"} 100`} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

func TestARefusalOfAProviderIsHeardByEveryWorker(t *testing.T) {
	s, p, m := newSystem(t), newProvider(t), NewMetrics()
	p.refuse = 1
	var later *runtime.LaterError
	first, second := limitedModels(s, p, "w1", m), limitedModels(s, p, "w2", m)
	if err := ask(t.Context(), first); !asLater(err, &later) || later.After != time.Hour {
		t.Fatalf("the first worker is told %v", err)
	}
	key := limit.Key("provider", "x", "X_KEY", "")
	store := &jetstream.Limits{Conn: s.conn}
	for { // what the first worker has to say is on its way
		data, _, err := store.Load(t.Context(), key)
		must(t, err)
		var e limit.Entry
		if json.Unmarshal(data, &e) == nil && !e.Blocked.IsZero() {
			if strings.Contains(string(data)+key, "secret") || strings.Contains(key, "X_KEY") {
				t.Errorf("the key stands in %s: %s", key, data)
			}
			break
		}
	}
	if err := ask(t.Context(), second); !asLater(err, &later) || later.After < 59*time.Minute || p.made != 1 {
		t.Errorf("the second worker is told %v, after %d requests", err, p.made)
	}
	_, page := fetch(t, serve(t, m, isReady)+"/metrics")
	for _, want := range []string{`agentruntime_limit_refusals_total{limit="provider x"} 1`, `agentruntime_limit_percent{limit="provider x"} 70`, `outcome="later"} 1`} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s", want)
		}
	}
}

func asLater(err error, into **runtime.LaterError) bool {
	var model *runtime.ModelError
	var limited *limit.Error
	return errors.As(err, into) && (errors.As(err, &model) || errors.As(err, &limited))
}

func TestAProviderWithoutLimitsAsksNobody(t *testing.T) {
	models := &Models{Limits: &limit.Limiter{}, Requests: config.Requests{PerCall: 1}, Providers: map[string]config.Provider{"x": {Kind: config.KindCompatible, BaseURL: "http://127.0.0.1:1/v1", Key: "k"}}}
	made, _, err := models.Model("x/m")
	must(t, err)
	if err := ask(t.Context(), made); err == nil || strings.Contains(err.Error(), "limits") {
		t.Errorf("%v", err)
	}
}
