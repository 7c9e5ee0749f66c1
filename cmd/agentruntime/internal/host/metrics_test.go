package host

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fetch makes one request and returns the status and the body.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

func serve(t *testing.T, m *Metrics, ready func() error) (url string) {
	t.Helper()
	at, err := m.Serve(t.Context(), "127.0.0.1:0", ready)
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + at
}

func isReady() error { return nil }

// used returns metrics of which each has been counted.
func used() *Metrics {
	m := NewMetrics()
	m.RunSettled(projector.StateFailed, "aborted")
	m.RunParked("children")
	m.AttemptEnded("settled")
	m.CommandHandled(handlers.VerbStart, "accepted")
	m.CallMade("tickets.classify", "ok", time.Second)
	m.Rebased()
	m.LimitWaited("provider a", "passed", time.Second)
	m.LimitRefused("provider a")
	m.LimitPercent("provider a", 70)
	m.Stuck(0)
	m.CountLateAnswers(func() uint64 { return 1 })
	m.CountTokens(&Models{Providers: map[string]config.Provider{"a": {Models: map[string]config.Model{"b/c": {Price: &config.Price{Input: "0.1", Output: "0.2"}}}}}})
	m.TokensUsed("a/b/c", events.Usage{Input: 3, Cached: 1, Output: 2, Reasoning: 1})
	m.TokensUsed("scripted/x", events.Usage{Input: 7})
	return m
}

var (
	kindLine   = regexp.MustCompile(`(?m)^# TYPE (agentruntime_\w+) (\w+)$`)
	seriesLine = regexp.MustCompile(`(?m)^(agentruntime_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	labelName  = regexp.MustCompile(`(\w+)="`)
)

func TestTheNamesOfTheMetricsArePromises(t *testing.T) {
	_, page := fetch(t, serve(t, used(), isReady)+"/metrics")
	labels := make(map[string][]string)
	for _, m := range seriesLine.FindAllStringSubmatch(page, -1) {
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && !slices.Contains(labels[m[1]], l[1]) {
				labels[m[1]] = append(labels[m[1]], l[1])
			}
		}
	}
	var lines []string
	for _, m := range kindLine.FindAllStringSubmatch(page, -1) {
		slices.Sort(labels[m[1]])
		lines = append(lines, strings.TrimSpace(m[1]+" "+m[2]+" "+strings.Join(labels[m[1]], ",")))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/metrics.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("metrics (-want +got; -update rewrites the list):\n%s", diff)
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(page, "\n"+name+" ") {
			t.Errorf("there is no %s", name)
		}
	}
}

// What was used is added up in whole tokens, and what that costs is computed then:
// a sum of costs would drift.
func TestTokensAndTheirCostAreAddedUpExactly(t *testing.T) {
	m := used()
	for range 999 {
		m.TokensUsed("a/b/c", events.Usage{Input: 3, Cached: 1, Output: 2, Reasoning: 1})
	}
	_, page := fetch(t, serve(t, m, isReady)+"/metrics")
	for _, want := range []string{
		`agentruntime_tokens_total{kind="input",model="b/c",provider="a"} 3000`,
		`agentruntime_tokens_total{kind="cached",model="b/c",provider="a"} 1000`,
		`agentruntime_tokens_total{kind="output",model="b/c",provider="a"} 2000`,
		`agentruntime_tokens_total{kind="reasoning",model="b/c",provider="a"} 1000`,
		`agentruntime_tokens_total{kind="input",model="x",provider="scripted"} 7`,
		`agentruntime_cost_total{currency="USD",model="b/c",provider="a"} 0.0007` + "\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if n := strings.Count(page, "\nagentruntime_cost_total{"); n != 1 {
		t.Errorf("%d series of costs; one model has a price", n)
	}
}

func TestSendersOfCommandsCannotMakeSeries(t *testing.T) {
	m := used()
	for _, kind := range []string{"", "run.stop", "a", "b", "\xff", strings.Repeat("x", 10_000)} {
		m.CommandHandled(kind, handlers.RejectUnknown)
	}
	_, page := fetch(t, serve(t, m, isReady)+"/metrics")
	if n := strings.Count(page, "\nagentruntime_commands_total{"); n != 2 {
		t.Errorf("%d series of commands:\n%s", n, page)
	}
	if want := `agentruntime_commands_total{command="other",outcome="unknown_command"} 6`; !strings.Contains(page, want) {
		t.Errorf("there is no %s", want)
	}
}

func TestAProcessIsHealthyBeforeItIsReady(t *testing.T) {
	var started atomic.Bool
	url := serve(t, NewMetrics(), func() error {
		if !started.Load() {
			return ErrNotReady
		}
		return nil
	})
	status, body := fetch(t, url+"/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, ErrNotReady.Error()) {
		t.Errorf("before: %d %s", status, body)
	}
	if status, body := fetch(t, url+"/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz before: %d %s", status, body)
	}
	started.Store(true)
	if status, body := fetch(t, url+"/readyz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("after: %d %s", status, body)
	}
}

func TestAnAddressInUseIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = NewMetrics().Serve(t.Context(), l.Addr().String(), isReady)
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "--metrics") {
		t.Errorf("Serve = %v", err)
	}
}

func TestTheAddressIsFreeAfterTheEnd(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	at, err := NewMetrics().Serve(ctx, "127.0.0.1:0", isReady)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end()
	// The connection ends after the listener.
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection has not ended: %v", err)
	}
	if _, err := NewMetrics().Serve(t.Context(), at, isReady); err != nil {
		t.Error(err)
	}
}
