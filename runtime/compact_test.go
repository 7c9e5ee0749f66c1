package runtime_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// longHost returns a world whose model runs that many scripts of some length,
// each with an answer of so many bytes, in a context that does not hold them.
func longHost(steps, answer int) *rt.Host {
	h := newHost()
	h.Input.ModelLimits = runtime.ModelLimits{ContextTokens: 6000, OutputTokens: 750}
	h.Backend.Answer = reply(`"` + strings.Repeat("b", answer) + `"`)
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		if step == steps {
			return rt.Complete(`"done"`)(step, r)
		}
		code := fmt.Sprintf("desk.list {\"step\":%d}\nreturn", step)
		if answer == 0 {
			code = fmt.Sprintf("log %d%s\nreturn %d", step, strings.Repeat("x", 800), step)
		}
		return rt.RunJS(code)(step, r)
	}
	return h
}

// takesAtMost answers requests of at most so many tokens, and refuses the others.
func takesAtMost(h *rt.Host, tokens int64) rt.Step {
	respond := h.Model.Respond
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		if h.Estimator.Request(r) > tokens {
			return nil, &runtime.ModelError{Class: runtime.ClassOverflow, Status: 400, Err: errors.New("too long")}
		}
		return respond(step, r)
	}
}

// asked returns the requests for summaries, and the others.
func asked(h *rt.Host) (summaries, steps []*runtime.Request) {
	for _, r := range h.Model.Requests() {
		if runtime.IsSummaryRequest(r) {
			summaries = append(summaries, r)
		} else {
			steps = append(steps, r)
		}
	}
	return summaries, steps
}

// window returns what the store holds.
func window(t *testing.T, h *rt.Host) []events.Message {
	t.Helper()
	w, err := h.Store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestAConversationThatGrowsIsSummarized(t *testing.T) {
	h := longHost(16, 0)
	h.Model.Summarize = func(_ int, r *runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "hush was booked\xff"}}, Finish: runtime.FinishStop, Usage: events.Usage{Input: 7, Output: 7}}, nil
	}
	h.Redactor.Secrets = []string{"hush"}
	h.Input.Message = events.Text("task", events.RoleUser, "Tell nobody that it is hush.")
	finish(t, h)
	summaries, steps := asked(h)
	if n := h.Store.Compactions(); n < 2 || n != len(summaries) {
		t.Fatalf("%d compactions and %d summaries", n, len(summaries))
	}
	for _, r := range summaries {
		if len(r.Tools) != 0 || strings.Contains(rt.Render(r), "hush") || !strings.Contains(r.System, "write summaries") {
			t.Errorf("a summary was asked for with\n%s", rt.Render(r))
		}
	}
	if second := rt.Render(summaries[1]); !strings.Contains(second, "[redacted] was booked") {
		t.Errorf("the second summary is not told of the first:\n%s", second)
	}
	last := steps[len(steps)-1]
	if !strings.HasPrefix(last.Messages[1].Parts[0].Text, "[Summary of the conversation so far") || !strings.HasSuffix(last.Messages[1].Parts[0].Text, "[redacted] was booked\uFFFD") || last.Messages[1].Role != events.RoleUser {
		t.Errorf("the last request is\n%s", rt.Render(last))
	}
	if n, ok := runtime.Summarized(&last.Messages[1]); !ok || n < 10 {
		t.Errorf("the summary stands for %d responses", n)
	}
	// One step of the budget for each request, none of the tokens in the run's usage.
	commits := h.Store.Commits()
	end := commits[len(commits)-1].Checkpoint
	if h.Controller.Charges() != len(summaries)+17 || end.Steps != 17 || end.Usage.Input != 17*100 {
		t.Errorf("%d charges, %d steps, usage %+v", h.Controller.Charges(), end.Steps, end.Usage)
	}
	if len(h.Store.Transcript()) != len(h.Transcript()) || len(h.Transcript()) < 34 {
		t.Errorf("the history has %d messages", len(h.Store.Transcript()))
	}
}

func TestOldResultsArePrunedBeforeASummaryIsPaidFor(t *testing.T) {
	h := longHost(9, 2000)
	finish(t, h)
	summaries, steps := asked(h)
	if h.Store.Compactions() == 0 || len(summaries) > 0 {
		t.Fatalf("%d compactions, %d summaries", h.Store.Compactions(), len(summaries))
	}
	last := rt.Render(steps[len(steps)-1])
	if !strings.Contains(last, "was dropped to make room: 2014 bytes. The call's outcome was ok.") || strings.Count(last, "bbbb") == 0 || strings.Count(last, "desk.list") != 9 {
		t.Errorf("the last request does not have pruned results: %.300s", last)
	}
}

func TestWhatEarlierRunsOfTheSessionSaidIsSummarized(t *testing.T) {
	h := longHost(7, 0)
	h.Input.ModelLimits.ContextTokens = 100_000
	finish(t, h)
	next := newHost(rt.RunJS("return 1"), rt.CompleteQuoting())
	next.Store = h.Store.NextRun()
	next.Input.RunID, next.Input.Message = "run-2", events.Text("task-2", events.RoleUser, "Another task.")
	next.Input.ModelLimits = runtime.ModelLimits{ContextTokens: 3500, OutputTokens: 10}
	script := next.Model.Respond
	next.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) { return script(step-8, r) }
	finish(t, next)
	if w := window(t, next); w[0].ID != "task-2" || len(w) != 6 || !strings.HasPrefix(w[1].ID, "summary-8-") {
		t.Errorf("the window is\n%s", rt.RenderMessages(w))
	}
}

func TestAResponseTellsHowLargeRequestsReallyAre(t *testing.T) {
	h := longHost(3, 0)
	h.Input.ModelLimits.ContextTokens = 8000
	respond := h.Model.Respond
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		response, err := respond(step, r)
		if err == nil {
			response.Usage = events.Usage{Input: 4 * h.Estimator.Request(r), Cached: 4 * h.Estimator.Request(r)}
		}
		return response, err
	}
	finish(t, h)
	if summaries, _ := asked(h); len(summaries) == 0 {
		t.Error("the window was not compacted, although every request has four times its estimate")
	}
}

// useless are responses that are no summary, by what they are; nil: the request
// fails.
func useless() map[string]*runtime.Response {
	says := func(finish runtime.FinishReason, parts ...events.Part) *runtime.Response {
		return &runtime.Response{Parts: parts, Finish: finish}
	}
	text := func(s string) events.Part { return events.Part{Type: events.PartText, Text: s} }
	call := rt.RunJSCall("return")
	return map[string]*runtime.Response{
		"an empty one":                says(runtime.FinishStop, text(" \n")),
		"none":                        says(runtime.FinishStop),
		"one cut at the limit":        says(runtime.FinishLength, text("half of")),
		"one cut by a filter":         says(runtime.FinishFilter, text("half of")),
		"one with a call":             says(runtime.FinishStop, text("and now"), events.Part{Type: events.PartToolCall, Call: &call}),
		"one that is not shorter":     says(runtime.FinishStop, text(strings.Repeat("long ", 4000))),
		"one with an unknown reason":  says("weary", text("hm")),
		"a request that fails":        nil,
		"one that is only a thought":  says(runtime.FinishStop, events.Part{Type: events.PartReasoning, Text: "hm"}),
		"one that ends with no calls": says(runtime.FinishCalls, text("hm")),
	}
}

func TestASummaryThatCannotBeUsedLeavesTheWindowAsItIs(t *testing.T) {
	for promise, response := range useless() {
		t.Run(promise, func(t *testing.T) {
			h := longHost(16, 0)
			respond := h.Model.Respond
			h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
				if step < 3 { // the third goes from well within the context to beyond it
					return rt.RunJS(fmt.Sprintf("desk.list {\"x\":\"%d%s\"}\nreturn", step, strings.Repeat("x", 6700)))(step, r)
				}
				return respond(step, r)
			}
			h.Input.ModelName = "scripted/second"
			bad := true
			h.Model.Summarize = func(_ int, r *runtime.Request) (*runtime.Response, error) {
				if !bad {
					return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "short"}}, Finish: runtime.FinishStop}, nil
				}
				if bad = false; response == nil {
					return nil, &runtime.ModelError{Class: runtime.ClassRetry, Err: errors.New("away")}
				}
				return response, nil
			}
			err := stop(t, h)
			var failed *runtime.ModelError
			if !errors.As(err, &failed) || response != nil && (failed.Class != runtime.ClassInvalid || failed.Status != 0 || failed.Provider != "scripted/second") {
				t.Fatalf("the attempt ended with %v", err)
			}
			if h.Store.Compactions() != 0 || rt.RenderMessages(window(t, h)) != rt.RenderMessages(h.Transcript()) {
				t.Error("the window was changed")
			}
			finish(t, h)
			if h.Store.Compactions() == 0 {
				t.Error("the next attempt did not compact")
			}
		})
	}
}

func TestATaskThatDoesNotFitFailsTheRunBeforeItCosts(t *testing.T) {
	h := longHost(3, 0)
	h.Input.Message = events.Text("task", events.RoleUser, strings.Repeat("very long ", 4000))
	var large *runtime.OverflowError
	for range 2 {
		if err := stop(t, h); !errors.As(err, &large) || large.Tokens < 10_000 || large.Fits != 5250 {
			t.Fatalf("the run ended with %v", err)
		}
	}
	if h.Controller.Charges() != 0 || len(h.Model.Requests()) != 0 {
		t.Error("the model was asked")
	}
}

func TestANewestStepThatDoesNotFitFailsTheRun(t *testing.T) {
	h := longHost(20, 0)
	var large *runtime.OverflowError
	h.Model.Respond = rt.RunJS("log " + strings.Repeat("very long ", 4000) + "\nreturn")
	if err := stop(t, h); !errors.As(err, &large) || large.Tokens <= large.Fits {
		t.Fatalf("the run ended with %v", err)
	}
	if err := h.Check(); err != nil || h.Controller.Charges() != 1 {
		t.Errorf("%d charges, %v", h.Controller.Charges(), err)
	}
}

func TestARequestThatTheProviderRefusesAsTooLargeIsCompactedOnce(t *testing.T) {
	h := longHost(8, 0)
	h.Input.ModelLimits.ContextTokens = 100_000 // the endpoint takes less than it is said to
	h.Model.Respond = takesAtMost(h, 3000)
	finish(t, h)
	if n := h.Store.Compactions(); n == 0 {
		t.Error("nothing was compacted")
	}
	h = longHost(8, 0)
	h.Model.Respond = takesAtMost(h, 10)
	var large *runtime.OverflowError
	var refusal *runtime.ModelError
	if err := stop(t, h); !errors.As(err, &large) || !errors.As(err, &refusal) || refusal.Class != runtime.ClassOverflow {
		t.Errorf("the run ended with %v", err)
	}
	if len(h.Model.Requests()) != 1 {
		t.Errorf("%d requests were made", len(h.Model.Requests()))
	}
}

func TestAMessageThatCameMeanwhileIsReadBeforeItIsSummarized(t *testing.T) {
	h := longHost(16, 0)
	mail := []events.Message{events.Text("mail", events.RoleUser, "Stop at noon.")}
	h.Input.Inbox = func() []events.Message {
		if slices.ContainsFunc(h.Transcript(), func(m events.Message) bool { return m.ID == "mail" }) || h.Store.Compactions() == 0 {
			return nil
		}
		return mail
	}
	finish(t, h)
	_, steps := asked(h)
	read := slices.IndexFunc(steps, func(r *runtime.Request) bool { return strings.Contains(rt.Render(r), "Stop at noon.") })
	compacted := slices.IndexFunc(steps, func(r *runtime.Request) bool { return strings.Contains(rt.Render(r), "[Summary of") })
	if read < 0 || read != compacted {
		t.Errorf("request %d has the message, request %d is the first after a compaction", read, compacted)
	}
}

func TestASummaryThatCannotBeUsedStopsNoRunThatFits(t *testing.T) {
	for promise, response := range useless() {
		if response == nil {
			continue // a provider that is away is so for every request
		}
		t.Run(promise, func(t *testing.T) {
			h := longHost(16, 0)
			bad := true
			h.Model.Summarize = func(_ int, r *runtime.Request) (*runtime.Response, error) {
				if !bad {
					return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "short"}}, Finish: runtime.FinishStop}, nil
				}
				bad = false
				return response, nil
			}
			finish(t, h)
			if h.Store.Compactions() == 0 {
				t.Error("a later summary was not taken")
			}
		})
	}
}

func TestASummaryIsAskedForAgainOnlyWhenTheWindowHasGrown(t *testing.T) {
	h := longHost(100, 0)
	h.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		return rt.RunJS(fmt.Sprintf("desk.list {\"x\":\"%d%s\"}\nreturn", step, strings.Repeat("x", 800)))(step, r)
	}
	h.Input.ModelLimits = runtime.ModelLimits{ContextTokens: 20_000, OutputTokens: 2000}
	var sizes []int64 // of the request before each summary
	h.Model.Summarize = func(int, *runtime.Request) (*runtime.Response, error) {
		_, steps := asked(h)
		sizes = append(sizes, h.Estimator.Request(steps[len(steps)-1]))
		return nil, &runtime.ModelError{Provider: "p", Class: runtime.ClassInvalid, Status: 400, Err: errors.New("not about that")}
	}
	err := stop(t, h)
	var refused *runtime.ModelError
	if !errors.As(err, &refused) || refused.Status != 400 {
		t.Fatalf("the attempt ended with %v", err)
	}
	_, steps := asked(h)
	if last := h.Estimator.Request(steps[len(steps)-1]); last > 18_000 || last < 17_500 {
		t.Errorf("the last request has %d tokens, and 18000 fit", last)
	}
	// From 85 % of what fits to all of it, which is 18 % more, and once when it is needed.
	if len(sizes) < 3 || len(sizes) > 5 {
		t.Errorf("a summary was asked for %d times, after requests of %v tokens", len(sizes), sizes)
	}
	for i := 1; i < len(sizes)-1; i++ {
		if sizes[i] < sizes[i-1]*104/100 {
			t.Errorf("a summary was asked for again after the window grew from %d to %d", sizes[i-1], sizes[i])
		}
	}
}

func TestAWindowWithoutASummaryStillLosesItsOldResults(t *testing.T) {
	h := longHost(100, 300)
	h.Model.Summarize = func(int, *runtime.Request) (*runtime.Response, error) {
		return &runtime.Response{Parts: []events.Part{{Type: events.PartText, Text: "half of"}}, Finish: runtime.FinishLength}, nil
	}
	var refused *runtime.ModelError
	if err := stop(t, h); !errors.As(err, &refused) || refused.Class != runtime.ClassInvalid || refused.Provider != "scripted/one" {
		t.Fatalf("the attempt ended with %v", err)
	}
	_, steps := asked(h)
	last := steps[len(steps)-1]
	if n := h.Store.Compactions(); n == 0 || !strings.Contains(rt.Render(last), "was dropped to make room") {
		t.Errorf("%d compactions, the last request is\n%s", n, rt.Render(last))
	}
	if n := h.Estimator.Request(last); n > 5250 {
		t.Errorf("the last request has %d tokens, and 5250 fit", n)
	}
}
