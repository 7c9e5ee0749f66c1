package readmodel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/projector"
)

// epoch is when every run of these tests begins, or a little later.
var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// open returns a model that ends with the test; the clock stands an hour after
// the epoch.
func open(t testing.TB, path string) *readmodel.Model {
	t.Helper()
	m, err := readmodel.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	m.Now = func() time.Time { return epoch.Add(time.Hour) }
	return m
}

// row is run n of a session named s<n>, admitted n seconds after the epoch.
func row(n int, change ...func(*handlers.Row)) handlers.Row {
	session := fmt.Sprintf("s%06d", n)
	r := handlers.Row{Summary: projector.Summary{Run: session + "-00000001", Session: session, Root: session + "-00000001",
		Agent: "planner", State: projector.StateCompleted, Started: epoch.Add(time.Duration(n) * time.Second)}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func apply(t testing.TB, m *readmodel.Model, sequence uint64, rows ...handlers.Row) {
	t.Helper()
	var updates []readmodel.Update
	for _, r := range rows {
		updates = append(updates, readmodel.Update{Namespace: "ns", Session: r.Session, Sequence: sequence, Rows: []handlers.Row{r}})
	}
	if err := m.ApplyAll(t.Context(), 0, sequence, updates); err != nil {
		t.Fatal(err)
	}
}

// pages returns all rows that match, in pages of a size.
func pages(ctx context.Context, m *readmodel.Model, f handlers.Filter, size int, between func()) ([]handlers.Row, error) {
	var all []handlers.Row
	f.Limit = size
	for {
		rows, next, err := m.List(ctx, "ns", f)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if next == "" {
			return all, nil
		}
		if len(rows) != size {
			return nil, fmt.Errorf("a page with a next one has %d rows, want %d", len(rows), size)
		}
		f.After = next
		if between != nil {
			between()
		}
	}
}

func list(t testing.TB, m *readmodel.Model, f handlers.Filter) []handlers.Row {
	t.Helper()
	rows, err := pages(t.Context(), m, f, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func ids(rows []handlers.Row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Run)
	}
	return all
}

func TestPagesHaveNeitherGapsNorRepeatsWhileRunsAreAdmitted(t *testing.T) {
	for name, f := range map[string]handlers.Filter{
		"all":      {},
		"by state": {State: []projector.State{projector.StateCompleted, projector.StateFailed}},
		"by label": {Label: map[string]string{"team": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := open(t, "")
			const n = 1000
			some := func(i int, at time.Time) handlers.Row {
				return row(i, func(r *handlers.Row) {
					r.Started, r.Labels = at, map[string]string{"team": "a"}
					if i%3 == 0 {
						r.State = projector.StateFailed
					}
				})
			}
			var before []handlers.Row
			for i := range n {
				before = append(before, some(i, epoch.Add(time.Duration(i/7)*time.Second))) // seven of each moment
			}
			apply(t, m, 1, before...)
			added := n
			got, err := pages(t.Context(), m, f, 17, func() {
				apply(t, m, uint64(added), some(added, epoch.Add(time.Hour)), some(added+1, epoch.Add(time.Minute)))
				added += 2
			})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for i, r := range got {
				if seen[r.Run] {
					t.Fatalf("run %s is listed twice", r.Run)
				}
				seen[r.Run] = true
				if i > 0 && !later(got[i-1], r) {
					t.Fatalf("%s stands before %s", got[i-1].Run, r.Run)
				}
			}
			for _, r := range before {
				if !seen[r.Run] {
					t.Fatalf("run %s is not listed", r.Run)
				}
			}
		})
	}
}

// later reports whether a stands before b in a list.
func later(a, b handlers.Row) bool {
	if c := a.Started.Compare(b.Started); c != 0 {
		return c > 0
	}
	return a.Run > b.Run
}

// sample has, for each field of a filter, runs that match it and some that do
// not.
func sample(t testing.TB, m *readmodel.Model) {
	t.Helper()
	state := func(s projector.State) func(*handlers.Row) { return func(r *handlers.Row) { r.State = s } }
	label := func(name, value string) func(*handlers.Row) {
		return func(r *handlers.Row) {
			labels := maps.Clone(r.Labels)
			if labels == nil {
				labels = map[string]string{}
			}
			labels[name], r.Labels = value, labels
		}
	}
	child := func(r *handlers.Row) { r.Parent, r.Root = row(0).Run, row(0).Run }
	apply(t, m, 1,
		row(0, state(projector.StateParked), label("team", "a")),
		row(1, state(projector.StateRunning), child, label("team", "a"), label("tier", "1")),
		row(2, state(projector.StatePending), child, label("team", "b"), label("tier", "1")),
		row(3, state(projector.StateFailed), func(r *handlers.Row) { r.Agent, r.Reason = "helper", "timeout" }),
		row(4, state(projector.StateFailed), func(r *handlers.Row) { r.Reason = "aborted" }),
		row(5, func(r *handlers.Row) { r.Agent = "helper" }, label("team", "a")),
		row(6, state(handlers.StateUnreadable), func(r *handlers.Row) {
			r.Summary = projector.Summary{Session: r.Session, State: r.State, Reason: "damaged"}
		}),
		row(7, state(projector.StateParked), func(r *handlers.Row) { r.Stuck = true }),
	)
	other := row(8)
	if err := m.Apply(t.Context(), 0, 2, "other", other.Session, []handlers.Row{other}); err != nil {
		t.Fatal(err)
	}
}

// filtered is a filter with the numbers of the runs of the sample that match.
type filtered struct {
	handlers.Filter
	want []int
}

func filters() map[string]filtered {
	states := func(s ...projector.State) []projector.State { return s }
	run0 := row(0).Run
	type filter = handlers.Filter
	return map[string]filtered{
		"nothing":             {filter{}, []int{7, 5, 4, 3, 2, 1, 0, 6}}, // what has no age comes last
		"a state":             {filter{State: states(projector.StateFailed)}, []int{4, 3}},
		"a state twice":       {filter{State: states(projector.StateFailed, projector.StateFailed)}, []int{4, 3}},
		"states":              {filter{State: states(projector.StateRunning, projector.StateCompleted)}, []int{5, 1}},
		"live states":         {filter{State: states(projector.StateRunning, projector.StateParked)}, []int{7, 1, 0}},
		"unreadable":          {filter{State: states(handlers.StateUnreadable)}, []int{6}},
		"agent":               {filter{Agent: "helper"}, []int{5, 3}},
		"agent and state":     {filter{Agent: "helper", State: states(projector.StateFailed)}, []int{3}},
		"agent and live":      {filter{Agent: "planner", State: states(projector.StateParked)}, []int{7, 0}},
		"label":               {filter{Label: map[string]string{"team": "a"}}, []int{5, 1, 0}},
		"labels":              {filter{Label: map[string]string{"team": "a", "tier": "1"}}, []int{1}},
		"label and state":     {filter{Label: map[string]string{"team": "a"}, State: states(projector.StateParked)}, []int{0}},
		"label and ended":     {filter{Label: map[string]string{"team": "a"}, State: states(projector.StateCompleted)}, []int{5}},
		"older":               {filter{OlderThan: "59m57s"}, []int{2, 1, 0}},
		"newer":               {filter{NewerThan: "59m57s"}, []int{7, 5, 4}},
		"older and newer":     {filter{OlderThan: "59m56s", NewerThan: "59m59s"}, []int{3, 2}},
		"label and newer":     {filter{Label: map[string]string{"team": "a"}, NewerThan: "59m59.5s"}, []int{5, 1}},
		"states and older":    {filter{State: states(projector.StateRunning, projector.StateCompleted), OlderThan: "59m57s"}, []int{1}},
		"parent":              {filter{Parent: run0}, []int{2, 1}},
		"parent and state":    {filter{Parent: run0, State: states(projector.StateRunning)}, []int{1}},
		"root":                {filter{Root: run0}, []int{2, 1, 0}},
		"root and label":      {filter{Root: run0, Label: map[string]string{"tier": "1"}}, []int{2, 1}},
		"reason":              {filter{Reason: "timeout"}, []int{3}},
		"reason and agent":    {filter{Reason: "aborted", Agent: "helper"}, nil},
		"stuck":               {filter{Stuck: true}, []int{7}},
		"stuck and an agent":  {filter{Stuck: true, Agent: "helper"}, nil},
		"a run that is none":  {filter{Parent: row(99).Run}, nil},
		"all of it":           {filter{Root: run0, Parent: run0, State: states(projector.StateRunning), Label: map[string]string{"tier": "1"}, OlderThan: "1s", NewerThan: "2h", Agent: "planner"}, []int{1}},
		"what holds wildcard": {filter{Reason: "%"}, nil},
	}
}

func TestEveryFilterListsWhatMatches(t *testing.T) {
	for name, test := range filters() {
		t.Run(name, func(t *testing.T) {
			m := open(t, "")
			sample(t, m)
			for _, size := range []int{1, 2, 1000} {
				rows, err := pages(t.Context(), m, test.Filter, size, nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []int
				for _, r := range rows {
					var n int
					if _, err := fmt.Sscanf(r.Session, "s%d", &n); err != nil {
						t.Fatal(err)
					}
					got = append(got, n)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("in pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestNoFilterReadsTheWholeTable(t *testing.T) {
	m := open(t, "")
	sample(t, m)
	for name, test := range filters() {
		f := test.Filter
		steps, err := m.Explain(t.Context(), "ns", f)
		if err != nil {
			t.Fatal(err)
		}
		searched := false
		for _, step := range steps {
			if strings.HasPrefix(step, "SCAN r") || strings.HasPrefix(step, "SCAN l") || strings.HasPrefix(step, "SCAN x") {
				t.Errorf("%s: %s", name, step)
			}
			// Only branches are merged, of which each is a page at most.
			if strings.Contains(step, "TEMP B-TREE") && len(f.State) < 2 {
				t.Errorf("%s: %s", name, step)
			}
			if strings.HasPrefix(step, "SEARCH r") || strings.HasPrefix(step, "SEARCH l") {
				searched = true
				if !strings.Contains(step, "(started,key)<") && !strings.Contains(step, "INTEGER PRIMARY KEY") {
					t.Errorf("%s: a page does not begin where the one before ended: %s", name, step)
				}
			}
		}
		if !searched {
			t.Errorf("%s: no index leads: %s", name, steps)
		}
	}
}

func TestARowIsListedAsItWasApplied(t *testing.T) {
	m := open(t, "")
	ended := epoch.Add(time.Minute)
	want := row(1, func(r *handlers.Row) {
		r.State, r.Ended, r.Steps, r.Worker, r.Wake, r.Stuck = projector.StateParked, &ended, 3, "w1", "a message", true
		r.Usage.Input, r.Labels = 7, map[string]string{"a": "b'\"?", "": "empty"}
	})
	apply(t, m, 1, want)
	if diff := cmp.Diff([]handlers.Row{want}, list(t, m, handlers.Filter{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n, err := m.Count(t.Context(), "ns"); err != nil || n != 1 {
		t.Errorf("Count = %d, %v", n, err)
	}
}

func TestABadRequestIsInvalid(t *testing.T) {
	m := open(t, "")
	for name, f := range map[string]handlers.Filter{
		"state": {State: []projector.State{"done"}},
		"age":   {OlderThan: "tomorrow"},
		"after": {After: "YWJj"},
		"text":  {After: "?"},
	} {
		var invalid *handlers.APIError
		if _, _, err := m.List(t.Context(), "ns", f); !errors.As(err, &invalid) || invalid.Code != handlers.RejectMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := m.List(t.Context(), "n s", handlers.Filter{}); err == nil {
		t.Error("a namespace that is none was listed")
	}
}

func TestTheStuckRunsAreReplaced(t *testing.T) {
	m := open(t, "")
	park := func(r *handlers.Row) { r.State = projector.StateParked }
	apply(t, m, 1, row(1, park), row(2, park), row(3))
	stuck := func(want ...int) {
		t.Helper()
		var runs []string
		for _, n := range want {
			runs = append(runs, row(n).Run)
		}
		got := list(t, m, handlers.Filter{Stuck: true})
		if !slices.Equal(ids(got), runs) {
			t.Errorf("stuck are %v, want %v", ids(got), runs)
		}
		for _, r := range got {
			if !r.Stuck {
				t.Errorf("run %s is not called stuck", r.Run)
			}
		}
	}
	set := func(runs ...int) {
		t.Helper()
		var names []string
		for _, n := range runs {
			names = append(names, row(n).Run)
		}
		if err := m.SetStuck(t.Context(), map[string][]string{"ns": names, "other": {""}}); err != nil {
			t.Fatal(err)
		}
	}
	set(1, 3, 99) // 3 has ended, 99 is not known
	stuck(1)
	set(2, 1, 1)
	stuck(2, 1)
	set(2)
	stuck(2)
	apply(t, m, 2, row(2, park)) // nothing happened to it
	stuck(2)
	apply(t, m, 3, row(2, func(r *handlers.Row) { r.State = projector.StateRunning }))
	stuck()
}
