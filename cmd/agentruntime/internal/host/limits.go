package host

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentruntime/agentruntime/handlers/limit"
	"github.com/agentruntime/agentruntime/jetstream"
)

// NewLimiter returns what holds a worker to the limits that it shares with every
// other one of the same NATS system.
func NewLimiter(conn *jetstream.Conn, worker string, m limit.Meter) *limit.Limiter {
	return &limit.Limiter{Store: &jetstream.Limits{Conn: conn}, Worker: worker, Meter: m}
}

// limits are the metrics of shared limits.
type limits struct {
	waits    *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	percent  *prometheus.GaugeVec
}

var _ limit.Meter = (*Metrics)(nil)

func newLimits(registry *prometheus.Registry) limits {
	l := limits{
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "agentruntime_limit_wait_seconds",
			Help: "How long requests waited for a limit that all workers share, in seconds, by limit and outcome: passed, later (it would have waited for too long), ended.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 10)}, []string{"limit", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentruntime_limit_refusals_total",
			Help: "Requests that a provider refused because of limits of its own (429); each lowers the configured ones for a while."}, []string{"limit"}),
		percent: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "agentruntime_limit_percent",
			Help: "How much of the configured limit is in use, as this worker saw it last; 100 without refusals."}, []string{"limit"}),
	}
	registry.MustRegister(l.waits, l.refusals, l.percent)
	return l
}

// LimitWaited implements limit.Meter.
func (m *Metrics) LimitWaited(name, outcome string, took time.Duration) {
	m.limits.waits.WithLabelValues(name, outcome).Observe(took.Seconds())
}

// LimitRefused implements limit.Meter.
func (m *Metrics) LimitRefused(name string) { m.limits.refusals.WithLabelValues(name).Inc() }

// LimitPercent implements limit.Meter.
func (m *Metrics) LimitPercent(name string, percent int64) {
	m.limits.percent.WithLabelValues(name).Set(float64(percent))
}
