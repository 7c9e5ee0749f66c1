//go:build linux

package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/runtime/executor"
)

// BenchmarkSpawn starts a child until it is ready, and ends it.
func BenchmarkSpawn(b *testing.B) {
	f := newFactory(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		p, err := f.New(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.Close()
		b.StartTimer()
	}
}

// BenchmarkRun runs a small script in a child that is ready.
func BenchmarkRun(b *testing.B) {
	f := newFactory(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		p, err := f.New(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if _, err := p.Execute(context.Background(), &executor.Script{Code: "return {a: 1}"}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		p.Close()
		b.StartTimer()
	}
}

// BenchmarkWhole is what a run costs in a row, with children kept ready.
func BenchmarkWhole(b *testing.B) {
	f := newFactory(b, &executor.Factory{})
	b.ReportAllocs()
	for b.Loop() {
		p, err := f.New(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Execute(context.Background(), &executor.Script{Code: "return {a: 1}"}); err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}

// BenchmarkCallback is one callback, there and back.
func BenchmarkCallback(b *testing.B) {
	const calls = 1000
	f := newFactory(b, &executor.Factory{Warm: -1, MaxCallbacks: calls})
	b.ReportAllocs()
	total := time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		p, err := f.New(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		started := time.Now()
		if _, err := p.Execute(context.Background(), &executor.Script{
			Code: "for (let i = 0; i < 1000; i++) await desk.book({i})", Bindings: []string{"desk.book"}, Call: echo,
		}); err != nil {
			b.Fatal(err)
		}
		total += time.Since(started)
		b.StopTimer()
		p.Close()
		b.StartTimer()
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N)/calls, "ns/callback")
}
