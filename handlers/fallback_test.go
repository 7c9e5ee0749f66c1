package handlers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// choosing is an agent with several models.
func choosing(models ...string) handlers.Version {
	v := agent("desk.book")
	v.Agent.Model, v.Agent.Models = "", models
	return v
}

// answering gives each model of a world its script.
func answering(scripts map[string]runtimetest.Step) func(*handlerstest.World) {
	return func(w *handlerstest.World) {
		w.Named = make(map[string]*runtimetest.Model)
		for name, script := range scripts {
			w.Named[name] = &runtimetest.Model{Respond: script}
		}
	}
}

func refusal(status int, class runtime.ErrorClass) error {
	return &runtime.ModelError{Provider: "test", Class: class, Status: status, Err: errors.New("no")}
}

// switches returns the reasons for which a world's runs asked another model.
func switches(t *testing.T, w *handlerstest.World) (list []string) {
	t.Helper()
	_, whole := progress(t, w.Published)
	for _, p := range whole {
		if p.Phase == events.PhaseSwitched {
			list = append(list, p.Reason+" "+p.Model)
		}
	}
	return list
}

func TestAModelThatCannotBeAskedIsReplacedByTheNext(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		want  string // the switch
		after time.Duration
		most  int // requests to the first model
	}{
		{"a key that is not taken", refusal(401, runtime.ClassDenied), "denied b/y", 0, 1},
		{"a key that may not", refusal(403, runtime.ClassDenied), "denied b/y", 0, 1},
		{"a model that is not there", refusal(404, runtime.ClassInvalid), "not_found b/y", 0, 1},
		{"a provider that is overloaded", refusal(529, runtime.ClassRetry), "unavailable b/y", time.Minute, 30},
		{"a quota that is spent", refusal(429, runtime.ClassLimited), "unavailable b/y", time.Minute, 30},
		{"a provider that cannot be reached", refusal(0, runtime.ClassRetry), "unavailable b/y", time.Minute, 30},
		{"a provider that asks for more patience", patience(2 * time.Minute), "unavailable b/y", 0, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, worker := started(t, choosing("a/x", "b/y"))
			answering(map[string]runtimetest.Step{
				"a/x": runtimetest.Script(runtimetest.RunJS("desk.book {}\nreturn"), runtimetest.Fails(c.err)),
				"b/y": runtimetest.Script(nil, runtimetest.CompleteQuoting()),
			})(w)
			began := time.Now()
			worker.Settle()
			r := only(t, w)
			if r.State != projector.StateCompleted || r.Model() != "b/y" || r.Checkpoint.Steps != 2 || len(w.Services.Ledger) != 1 {
				t.Errorf("%s: the run is %s at %s, %+v", c.name, r.State, r.Model(), r.Failed)
			}
			if got := switches(t, w); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: told %v", c.name, got)
			}
			if took := time.Since(began); took < c.after || took > c.after+15*time.Second {
				t.Errorf("%s: it took %s", c.name, took)
			}
			if n := len(w.Named["a/x"].Requests()) - 1; n < 1 || n > c.most {
				t.Errorf("%s: %d requests", c.name, n)
			}
			if len(r.Spent) != 2 || r.Spent[0].Model != "a/x" || r.Spent[1].Model != "b/y" {
				t.Errorf("%s: spent %+v", c.name, r.Spent)
			}
		})
	}
}

func TestAFailureThatAnotherModelDoesNotMendIsTheRuns(t *testing.T) {
	w, worker := started(t, choosing("a/x", "b/y"))
	answering(map[string]runtimetest.Step{"a/x": runtimetest.Fails(refusal(400, runtime.ClassInvalid)), "b/y": runtimetest.Complete(`"done"`)})(w)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateFailed || r.Model() != "a/x" || len(w.Named["b/y"].Requests()) != 0 {
		t.Errorf("the run is %s at %s", r.State, r.Model())
	}
}

// A model that has answered meanwhile begins anew.
func TestFailuresThatPassAddUpToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := func(d time.Duration, next runtimetest.Step) runtimetest.Step {
			var since time.Time
			return func(step int, r *runtime.Request) (*runtime.Response, error) {
				if since.IsZero() {
					since = time.Now()
				}
				if time.Since(since) < d {
					return nil, refusal(503, runtime.ClassRetry)
				}
				return next(step, r)
			}
		}
		w, worker := started(t, choosing("a/x", "b/y"))
		answering(map[string]runtimetest.Step{"a/x": runtimetest.Script(
			down(40*time.Second, runtimetest.RunJS("return")), down(40*time.Second, runtimetest.RunJS("return 1")), down(40*time.Second, runtimetest.Complete(`"done"`)))})(w)
		worker.Settle()
		if r := only(t, w); r.State != projector.StateCompleted || r.Model() != "a/x" {
			t.Errorf("the run is %s at %s", r.State, r.Model())
		}
	})
}

// Parks for a provider count as time in which it was not there.
func TestAProviderThatAsksForALittlePatienceForEverIsReplaced(t *testing.T) {
	w, worker := started(t, choosing("a/x", "b/y"))
	answering(map[string]runtimetest.Step{"a/x": runtimetest.Fails(patience(40 * time.Second)), "b/y": runtimetest.Complete(`"done"`)})(w)
	fired := 0
	for worker.Settle(); worker.Fire(); worker.Settle() {
		fired++
	}
	if r := only(t, w); r.State != projector.StateCompleted || r.Model() != "b/y" || fired != 1 {
		t.Errorf("the run is %s at %s after %d parks", r.State, r.Model(), fired)
	}
}

func TestTheLastModelIsWaitedForAsAnOnlyOneIs(t *testing.T) {
	w, worker := started(t, choosing("a/x", "b/y", "c/z"))
	answering(map[string]runtimetest.Step{
		"a/x": runtimetest.Fails(refusal(401, runtime.ClassDenied)), "b/y": runtimetest.Fails(refusal(404, runtime.ClassInvalid)),
		"c/z": first([]error{patience(time.Hour)}, runtimetest.Complete(`"done"`)),
	})(w)
	worker.Settle()
	if r := only(t, w); r.State != projector.StateParked || r.Model() != "c/z" {
		t.Fatalf("the run is %s at %s", r.State, r.Model())
	}
	worker.Fire()
	worker.Settle()
	if r := only(t, w); r.State != projector.StateCompleted || len(w.Named["a/x"].Requests()) != 1 {
		t.Errorf("the run is %s", r.State)
	}
}

func TestANewRunAsksTheFirstModelAgain(t *testing.T) {
	w, worker := started(t, choosing("a/x", "b/y"))
	answering(map[string]runtimetest.Step{
		"a/x": first([]error{refusal(401, runtime.ClassDenied)}, runtimetest.Complete(`"first"`)), "b/y": runtimetest.Complete(`"second"`)})(w)
	worker.Settle()
	w.Send(handlerstest.Continue("c1", w.Keys()[0].Session, "More."))
	worker.Settle()
	var got []string
	for _, r := range runs(t, w) {
		got = append(got, fmt.Sprintf("%s %s", r.Model(), r.Checkpoint.Reply.Output))
	}
	if want := []string{`b/y "second"`, `a/x "first"`}; !slices.Equal(got, want) {
		t.Errorf("the runs ended at %q, want %q", got, want)
	}
}

func TestADefinitionNamesOneModelOrSeveral(t *testing.T) {
	many := make([]string, 9)
	for i := range many {
		many[i] = fmt.Sprintf("a/%d", i)
	}
	for _, c := range []struct {
		model  string
		models []string
		words  string
	}{
		{"a/b", nil, ""}, {"", []string{"a/b"}, ""}, {"", []string{"a/b", "c/d"}, ""},
		{"", nil, "model: is missing"}, {"a/b", []string{"a/b"}, "models: is given beside model"}, {"plain", nil, `model: "plain" must be`},
		{"", []string{"a/b", "/d"}, `models: "/d" must be`}, {"", []string{"a/b", "a/b"}, `models: "a/b" is named twice`}, {"", many, "models: are 9"},
	} {
		v := agent()
		v.Agent.Model, v.Agent.Models = c.model, c.models
		switch err := v.Check(); {
		case c.words == "" && err != nil, c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)):
			t.Errorf("%q, %q: %v, want %q", c.model, c.models, err, c.words)
		}
	}
}
