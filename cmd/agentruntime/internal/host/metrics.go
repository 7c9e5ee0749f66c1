package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// Metrics are the process's Prometheus metrics. Their names are promises.
type Metrics struct {
	registry *prometheus.Registry
	settled  *prometheus.CounterVec
	parks    *prometheus.CounterVec
	attempts *prometheus.CounterVec
	commands *prometheus.CounterVec
	calls    *prometheus.HistogramVec
	rebases  prometheus.Counter
	stuck    prometheus.Gauge
	tokens   tokens
	limits   limits
}

var _ handlers.Meter = (*Metrics)(nil)

// CountLateAnswers adds the number of answers of capability services that came
// when nobody waited for them any more, or a second time.
func (m *Metrics) CountLateAnswers(count func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "agentruntime_late_answers_total",
		Help: "Answers of capability services that came too late or twice; they are ignored."}, func() float64 { return float64(count()) }))
}

// NewMetrics returns metrics with a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		settled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentruntime_runs_settled_total",
			Help: "Runs that this worker brought to an end, by state and reason."}, []string{"state", "reason"}),
		parks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentruntime_parks_total",
			Help: "Times that a run began to wait, by reason: children, message, budget, provider."}, []string{"reason"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentruntime_attempts_total",
			Help: "Attempts of runs, by how they ended: settled, released, retried, fenced, lease_lost, failed; blocked counts sessions that this worker must not carry on."}, []string{"outcome"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentruntime_commands_total",
			Help: "Commands handled, by command and outcome: accepted, or the reason of the refusal."}, []string{"command", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentruntime_capability_call_seconds",
			Help: "Capability calls, by capability and outcome, in seconds.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"capability", "outcome"}),
		rebases: prometheus.NewCounter(prometheus.CounterOpts{Name: "agentruntime_rebases_total",
			Help: "Decisions made again because an external fact came first."}),
	}
	m.stuck = prometheus.NewGauge(prometheus.GaugeOpts{Name: "agentruntime_runs_stuck",
		Help: "Runs that have not ended and that nothing will wake, as the last sweep found them; told by the worker that sweeps, and to be 0."})
	m.limits = newLimits(m.registry)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.settled, m.parks, m.attempts, m.commands, m.calls, m.rebases, m.stuck)
	return m
}

// RunSettled implements handlers.Meter.
func (m *Metrics) RunSettled(state projector.State, reason string) {
	m.settled.WithLabelValues(string(state), reason).Inc()
}

// RunParked implements handlers.Meter.
func (m *Metrics) RunParked(reason string) { m.parks.WithLabelValues(reason).Inc() }

// AttemptEnded implements handlers.Meter.
func (m *Metrics) AttemptEnded(outcome string) { m.attempts.WithLabelValues(outcome).Inc() }

// CommandHandled implements handlers.Meter.
func (m *Metrics) CommandHandled(kind, outcome string) {
	if !slices.Contains(handlers.Verbs, kind) {
		kind = "other" // whoever may send commands chooses it, and each value is a series
	}
	m.commands.WithLabelValues(kind, outcome).Inc()
}

// CallMade implements handlers.Meter.
func (m *Metrics) CallMade(capability, outcome string, took time.Duration) {
	m.calls.WithLabelValues(capability, outcome).Observe(took.Seconds())
}

// Stuck tells how many runs nothing will wake.
func (m *Metrics) Stuck(n int) { m.stuck.Set(float64(n)) }

// Rebased implements handlers.Meter.
func (m *Metrics) Rebased() { m.rebases.Inc() }

// Serve answers /metrics, /healthz (the process lives) and /readyz (ready
// returns nil) at an address until ctx ends. It returns the address it listens
// on.
func (m *Metrics) Serve(ctx context.Context, address string, ready func() error) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen for metrics at %s: %w; choose another address with --metrics, or \"off\"", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // it ends with Close
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return l.Addr().String(), nil
}

// ErrNotReady is what a host's readiness is before its roles have begun.
var ErrNotReady = errors.New("the worker has not started yet")
