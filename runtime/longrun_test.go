package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// lean is a store and a model that keep nothing of the past, so that what grows
// is the loop's. Like a log it takes differences.
type lean struct {
	checkpoint *projector.Checkpoint
	window     []events.Message
	steps      int
	compacted  int
	summaries  int
	largest    int64          // request, as estimated
	deltas     int            // bytes of the newest delta
	at         map[int]func() // runs before that step

	estimator runtime.Estimator
	broken    error
}

func (l *lean) Load(context.Context) ([]events.Message, error) { return slices.Clone(l.window), nil }

func (l *lean) Compact(_ context.Context, window []events.Message) error {
	l.compacted++
	l.window = slices.Clone(window)
	return nil
}

func (l *lean) LoadCheckpoint(context.Context) (*projector.Checkpoint, error) {
	return l.checkpoint, nil
}

func (l *lean) SaveCheckpoint(_ context.Context, c *projector.Checkpoint) error {
	d, err := projector.Diff(l.checkpoint, c)
	if err != nil {
		return err
	}
	data, err := json.Marshal(d)
	l.deltas = len(data)
	l.checkpoint = c
	l.window = append(slices.Clip(l.window), c.Append...)
	return err
}

func (l *lean) Generate(_ context.Context, r *runtime.Request) (*runtime.Response, error) {
	l.largest = max(l.largest, l.estimator.Request(r))
	say := func(finish runtime.FinishReason, parts ...events.Part) (*runtime.Response, error) {
		return &runtime.Response{Finish: finish, Parts: parts, Usage: events.Usage{Input: 1, Output: 1}}, nil
	}
	if runtime.IsSummaryRequest(r) {
		l.summaries++
		return say(runtime.FinishStop, events.Part{Type: events.PartText, Text: "So far so good."})
	}
	if err := rt.CheckTranscript(r.Messages); err != nil {
		l.broken = errors.Join(l.broken, err)
	}
	if !slices.ContainsFunc(r.Messages, func(m events.Message) bool { return m.ID == "task" }) {
		l.broken = errors.New("the task is lost")
	}
	if rt.Position(r) != l.checkpoint.Steps {
		l.broken = fmt.Errorf("the request has %d responses, %d were committed", rt.Position(r), l.checkpoint.Steps)
	}
	if at := l.at[l.checkpoint.Steps]; at != nil {
		at()
	}
	call := func(i int, name, arguments string) events.Part {
		c := rt.ToolCall(name, arguments)
		c.ID = rt.CallID(l.checkpoint.Steps, i)
		return events.Part{Type: events.PartToolCall, Call: &c}
	}
	if l.checkpoint.Steps == l.steps {
		return say(runtime.FinishCalls, call(0, "complete", `{"kind":"output","output":"done"}`))
	}
	n := l.checkpoint.Steps
	return say(runtime.FinishCalls, call(0, "get_calls", fmt.Sprintf(`{"calls":["%d%s"]}`, n, strings.Repeat("z", n%600))), call(1, "get_calls", fmt.Sprintf(`{"calls":["%d"],"more":1}`, n)))
}

// longRun returns an input for a run of so many steps in a context of 32k tokens.
func longRun(steps int) (runtime.Input, *lean) {
	h := newHost()
	l := &lean{steps: steps, at: make(map[int]func()), estimator: h.Estimator}
	in := h.Input
	in.Model, in.Store, in.Backend, in.ExecutorFactory = l, l, h.Backend, h.Factory
	in.Controller, in.Sink, in.Redactor, in.Estimator = quiet{h.Controller}, silent{}, h.Redactor, h.Estimator
	in.ModelLimits = runtime.ModelLimits{ContextTokens: 32_000, OutputTokens: 4000}
	in.Message.ID = "task"
	return in, l
}

// quiet is a controller whose children are long-winded.
type quiet struct{ runtime.Controller }

func (quiet) Get(_ context.Context, calls []string) ([]runtime.AgentRunInfo, error) {
	return []runtime.AgentRunInfo{{CallID: calls[0][:1], Note: strings.Repeat("n", 1500)}}, nil
}

type silent struct{}

func (silent) Text(context.Context, uint64, string) {}

func TestARunOfAThousandStepsStaysFlat(t *testing.T) {
	in, l := longRun(1000)
	live := make(map[int]uint64)
	bytes := make(map[int]int)
	for _, step := range []int{200, 1000} {
		l.at[step] = func() {
			goruntime.GC()
			var m goruntime.MemStats
			goruntime.ReadMemStats(&m)
			live[step], bytes[step] = m.HeapAlloc, l.deltas
		}
	}
	result, err := runtime.Run(t.Context(), in)
	if err != nil || l.broken != nil || string(result.Reply.Output) != `"done"` {
		t.Fatalf("the run ended with %v, %v, %v", result, err, l.broken)
	}
	t.Logf("%d compactions, %d summaries, requests of at most %d tokens, heap %d KiB at step 200 and %d KiB at step 1000, commits of %d and %d bytes",
		l.compacted, l.summaries, l.largest, live[200]>>10, live[1000]>>10, bytes[200], bytes[1000])
	if l.compacted < 20 || l.summaries == 0 || l.largest > 28_000 {
		t.Error("the window was not held")
	}
	// Ids of calls and what the estimator remembers are all that grows.
	if live[1000] > live[200]+1<<20 || bytes[1000] > 2*bytes[200] {
		t.Error("memory or commits grow")
	}
}

// BenchmarkStep measures the steps around the 100th and the 1,000th of a run, and
// what the later ones cost more.
func BenchmarkStep(b *testing.B) {
	const around = 40
	var early, late time.Duration
	for b.Loop() {
		in, l := longRun(1000 + around)
		var began time.Time
		l.at[100-around] = func() { began = time.Now() }
		l.at[100+around] = func() { early += time.Since(began) }
		l.at[1000-around] = func() { began = time.Now() }
		l.at[1000+around] = func() { late += time.Since(began) }
		if _, err := runtime.Run(b.Context(), in); err != nil || l.broken != nil {
			b.Fatal(err, l.broken)
		}
	}
	steps := float64(b.N * 2 * around)
	b.ReportMetric(float64(early.Nanoseconds())/steps, "ns/step-100")
	b.ReportMetric(float64(late.Nanoseconds())/steps, "ns/step-1000")
	b.ReportMetric(float64(late)/float64(early), "ratio")
}

func TestAnyRunInASmallContextEndsWithAValidWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHost()
		h.Backend.Answer = func(_ context.Context, c *runtime.Callback) (rawJSON, error) {
			if string(c.Input) == `"denied"` {
				return nil, &runtime.DeniedError{Reason: "no"}
			}
			return rawJSON(`"` + strings.Repeat("b", 900) + `"`), nil
		}
		h.Controller.Intercept = func(method string) error {
			if method == "Spawn" {
				return &runtime.DeniedError{Reason: "no"}
			}
			return nil
		}
		h.Input.ModelLimits = runtime.ModelLimits{ContextTokens: rapid.Int64Range(1200, 8000).Draw(r, "context")}
		calls := rapid.SampledFrom([]events.ToolCall{rt.RunJSCall("desk.list {}\nreturn"), rt.RunJSCall("desk.list \"denied\"\nreturn"), rt.RunJSCall("return 1"), rt.RunJSCall("log " + strings.Repeat("l", 700)),
			rt.ToolCall(spawn, help), rt.ToolCall("nothing", `{}`), rt.ToolCall("run_js", `{"code":`), rt.ToolCall("complete", `{"kind":"output"}`)})
		steps := rapid.SliceOfN(rapid.SliceOfN(calls, 0, 5), 0, 14).Draw(r, "steps")
		usage := rapid.Int64Range(0, 9000).Draw(r, "usage")
		h.Model.Respond = func(step int, q *runtime.Request) (*runtime.Response, error) {
			if step >= len(steps) {
				return rt.Complete(`"done"`)(step, q)
			}
			response, err := rt.Calls(steps[step]...)(step, q)
			if len(steps[step]) == 0 {
				response, err = rt.Text("hm")(step, q)
			}
			response.Usage.Input = usage
			return response, err
		}
		lost := rapid.SampledFrom([]string{"", rt.OpExecute, rt.OpCompact, rt.OpGenerate}).Draw(r, "lost")
		nth := rapid.IntRange(1, 9).Draw(r, "nth")
		h.Plan = func(op rt.Op) rt.Fault {
			if op.Name == lost {
				if nth--; nth == 0 {
					return rt.KilledAfter
				}
			}
			return rt.Works
		}
		var err error
		for attempt := range 3 {
			var result *runtime.Result
			if result, err = h.Run(t.Context()); err == nil && string(result.Reply.Output) != `"done"` {
				r.Fatalf("the reply is %s", result.Reply.Output)
			}
			if !errors.Is(err, rt.ErrKilled) {
				break
			} else if attempt > 1 {
				r.Fatal("it is killed again")
			}
		}
		var large *runtime.OverflowError
		var guard *runtime.GuardError
		var model *runtime.ModelError
		if err != nil && !errors.As(err, &large) && !errors.As(err, &guard) && !(errors.As(err, &model) && strings.Contains(err.Error(), "is not shorter")) {
			r.Fatalf("the run ended with %v", err)
		}
		if err := h.Check(); err != nil {
			r.Fatal(err)
		}
		summaries, asked := asked(h)
		if n := h.Store.Compactions(); n > len(asked)+1 || len(summaries) > len(asked)+2 {
			r.Fatalf("%d compactions and %d summaries for %d requests", n, len(summaries), len(asked))
		}
		fits := h.Input.ModelLimits.ContextTokens * 7 / 8
		for _, q := range asked {
			if err := rt.CheckTranscript(q.Messages); err != nil || q.Messages[0].ID != "task" {
				r.Fatalf("a request is no valid transcript: %v", err)
			}
			if n := h.Estimator.Request(q); n > fits+1 {
				r.Fatalf("a request has %d tokens of %d", n, fits)
			}
		}
	})
}
