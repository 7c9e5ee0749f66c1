package host

import (
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// tokens collects what this worker's requests used of each model. What is counted
// are whole tokens; a cost is computed from their sum when it is looked at.
type tokens struct {
	prices handlers.Prices

	mu   sync.Mutex
	used map[string]events.Usage // by model
}

var (
	tokensDesc = prometheus.NewDesc("agentruntime_tokens_total",
		"Tokens that providers counted for this worker's requests, those that led to no response included; cached ones are part of input, reasoning is part of output.", []string{"provider", "model", "kind"}, nil)
	costDesc = prometheus.NewDesc("agentruntime_cost_total",
		"What these tokens cost at the prices of this worker's configuration, of models that have one.", []string{"provider", "model", "currency"}, nil)
)

// CountTokens adds the tokens of models, and what they cost.
func (m *Metrics) CountTokens(prices handlers.Prices) {
	m.tokens.prices = prices
	m.registry.MustRegister(&m.tokens)
}

// TokensUsed implements handlers.Meter.
func (m *Metrics) TokensUsed(model string, usage events.Usage) {
	m.tokens.mu.Lock()
	defer m.tokens.mu.Unlock()
	if m.tokens.used == nil {
		m.tokens.used = make(map[string]events.Usage)
	}
	m.tokens.used[model] = m.tokens.used[model].Add(usage)
}

// Describe implements prometheus.Collector.
func (t *tokens) Describe(descs chan<- *prometheus.Desc) { descs <- tokensDesc; descs <- costDesc }

// Collect implements prometheus.Collector.
func (t *tokens) Collect(metrics chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, u := range t.used {
		provider, model, _ := strings.Cut(name, "/")
		add := func(desc *prometheus.Desc, value float64, label string) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, provider, model, label)
		}
		add(tokensDesc, float64(u.Input), "input")
		add(tokensDesc, float64(u.Cached), "cached")
		add(tokensDesc, float64(u.Output), "output")
		add(tokensDesc, float64(u.Reasoning), "reasoning")
		if p, known := t.prices.Price(name); known {
			if cost, err := strconv.ParseFloat(p.Of(u), 64); err == nil { // it is a decimal number
				add(costDesc, cost, t.prices.Currency())
			}
		}
	}
}
