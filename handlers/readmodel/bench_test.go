package readmodel_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/projector"
)

// typical is run n of many: most have ended, some have a parent, all a label.
func typical(n int) handlers.Row {
	return row(n, func(r *handlers.Row) {
		r.Agent, r.Labels = fmt.Sprint("agent-", n%20), map[string]string{"customer": fmt.Sprint(n % 1000)}
		switch {
		case n%1000 == 1:
			r.State, r.Wake = projector.StateParked, "a message"
		case n%50 == 2:
			r.State, r.Reason = projector.StateFailed, "timeout"
		case n%10 == 3:
			r.Parent, r.Root = row(n-1).Run, row(n-1).Run
		}
	})
}

// fill returns a model with n runs and where its file is.
func fill(b *testing.B, n int) (m *readmodel.Model, path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "runs.db")
	m = open(b, path)
	const batch = 5000
	for i := 0; i < n; i += batch {
		var rows []handlers.Row
		for k := i; k < min(i+batch, n); k++ {
			rows = append(rows, typical(k))
		}
		apply(b, m, uint64(i+1), rows...)
	}
	return m, path
}

// BenchmarkApply applies changed sessions, alone and in a follower's batch, to a
// model of 10,000 runs.
func BenchmarkApply(b *testing.B) {
	for _, size := range []int{1, readmodel.DefaultBatch} {
		b.Run(fmt.Sprintf("sessions=%d", size), func(b *testing.B) {
			const n = 10_000
			m, _ := fill(b, n)
			sequence := uint64(n)
			b.ReportAllocs()
			for b.Loop() {
				var rows []handlers.Row
				for range size {
					sequence++
					r := typical(int(sequence*7919) % n)
					r.Steps = int(sequence)
					rows = append(rows, r)
				}
				apply(b, m, sequence, rows...)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*size), "us/session")
		})
	}
}

// BenchmarkList lists a page of 100 among 100,000 runs.
func BenchmarkList(b *testing.B) {
	const n = 100_000
	m, path := fill(b, n)
	closed(b, m)
	b.Run("open", func(b *testing.B) { // which checks the file
		for b.Loop() {
			again, err := readmodel.Open(path)
			if err != nil {
				b.Fatal(err)
			}
			closed(b, again)
		}
	})
	m = open(b, path)
	newest, _, err := m.List(b.Context(), "ns", handlers.Filter{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	m.Now = func() time.Time { return newest[0].Started.Add(time.Second) }
	for name, f := range map[string]handlers.Filter{
		"all":       {},
		"parked":    {State: []projector.State{projector.StateParked}},
		"ended":     {State: []projector.State{projector.StateCompleted, projector.StateFailed}},
		"agent":     {Agent: "agent-7"},
		"label":     {Label: map[string]string{"customer": "17"}},
		"parent":    {Parent: row(2).Run},
		"older":     {OlderThan: "12h"},
		"agent_and": {Agent: "agent-2", State: []projector.State{projector.StateFailed}, OlderThan: "1h"},
	} {
		f.Limit = 100
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := m.List(b.Context(), "ns", f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
