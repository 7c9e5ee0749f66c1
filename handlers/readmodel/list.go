package readmodel

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// List implements handlers.Lister.
func (m *Model) List(ctx context.Context, namespace string, f handlers.Filter) (list []handlers.Row, next string, err error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return nil, "", &handlers.APIError{Code: handlers.RejectMalformed, Message: err.Error()}
	}
	q, err := m.plan(namespace, &f)
	if err != nil {
		return nil, "", err
	}
	text, args := q.sql()
	rows, err := m.db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list the runs of %s: %w", namespace, err)
	}
	defer rows.Close()
	list = []handlers.Row{}
	var last cursor
	for rows.Next() {
		var at cursor
		var row handlers.Row
		var stuck bool
		var body []byte
		if err := rows.Scan(&at.started, &at.key, &stuck, &body); err != nil {
			return nil, "", fmt.Errorf("list the runs of %s: %w", namespace, err)
		}
		if len(list) == f.Most() {
			next = last.String()
			break
		}
		if err := json.Unmarshal(body, &row); err != nil {
			return nil, "", fmt.Errorf("list the runs of %s: %s: %w", namespace, at.key, err)
		}
		row.Stuck = stuck
		list, last = append(list, row), at
	}
	if err := rows.Err(); err != nil {
		return nil, "", fmt.Errorf("list the runs of %s: %w", namespace, err)
	}
	return list, next, nil
}

// cursor is a place in the order of rows.
type cursor struct {
	started int64
	key     string
}

// String returns the cursor as it is handed out.
func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.started, 10) + " " + c.key))
}

func parseCursor(text string) (c cursor, err error) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	started, key, found := strings.Cut(string(data), " ")
	if err == nil {
		c.key = key
		c.started, err = strconv.ParseInt(started, 10, 64)
	}
	if err != nil || !found {
		return c, &handlers.APIError{Code: handlers.RejectMalformed, Message: "after: it is none that a list returned; begin with the first page"}
	}
	return c, nil
}

// query is a page's query: one branch, or one for each state, each of which
// reads an index in the order of rows. Branches are merged.
type query struct {
	from   string
	order  string // of a branch
	where  []string
	args   []any
	states []projector.State // one branch for each; none: one branch
	limit  int
}

func (q *query) and(condition string, args ...any) {
	q.where, q.args = append(q.where, condition), append(q.args, args...)
}

// plan chooses the index. The planner would have to guess: it knows neither that
// few runs are under way, nor that a parent has few children. The filter leads
// that leaves the fewest rows; the others are checked row by row, in order, so
// that a page ends when it is full.
func (m *Model) plan(namespace string, f *handlers.Filter) (*query, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	states := slices.Compact(slices.Sorted(slices.Values(f.State)))
	few := len(states) > 0 && !slices.ContainsFunc(states, func(s projector.State) bool { return s.Terminal() })
	labels := slices.Sorted(maps.Keys(f.Label))
	q := &query{order: "r.started DESC, r.key DESC", limit: f.Most() + 1}
	// A partial index is used when its own condition stands in the query.
	if f.Parent != "" {
		q.and("r.parent = ? AND r.parent <> ''", f.Parent)
	}
	if f.Root != "" {
		q.and("r.root = ?", f.Root)
	}
	if f.Stuck {
		q.and("r.stuck <> 0")
	}
	if f.Unknown {
		q.and("r.unknown <> 0")
	}
	if f.Reason != "" {
		q.and("r.reason = ? AND r.reason <> ''", f.Reason)
	}
	if f.Agent != "" {
		q.and("r.agent = ?", f.Agent)
	}
	index, byLabel, byState := "", false, false
	switch {
	case f.Parent != "":
		index = "runs_parent"
	case f.Root != "":
		index = "runs_root"
	case f.Stuck:
		index = "runs_stuck"
	case f.Unknown:
		index = "runs_unknown"
	case few:
		index, byState = "runs_state", true
	case len(labels) > 0:
		byLabel = true
	case f.Reason != "":
		index = "runs_reason"
	case f.Agent != "":
		index = "runs_agent"
	case len(states) > 0:
		index, byState = "runs_state", true
	default:
		index = "runs_started"
	}
	table := "r"
	if byLabel {
		table, q.order = "l", "l.started DESC, l.key DESC"
		q.from = "labels l CROSS JOIN runs r ON r.id = l.run"
		q.and("l.name = ? AND l.value = ?", labels[0], f.Label[labels[0]])
		labels = labels[1:]
	} else {
		q.from = "runs r INDEXED BY " + index
	}
	q.and(table+".namespace = ?", namespace)
	for _, name := range labels {
		q.and(`EXISTS (SELECT 1 FROM labels x WHERE x.namespace = r.namespace AND x.name = ? AND x.value = ?
			AND x.started = r.started AND x.key = r.key)`, name, f.Label[name])
	}
	if byState {
		q.states = states
	} else if len(states) > 0 {
		q.and("r.state IN (?"+strings.Repeat(", ?", len(states)-1)+")", asAny(states)...)
	}
	return q, m.bound(q, table, f)
}

// bound keeps a query within the ages asked for and after the page before. A row
// whose start is not known has no age.
func (m *Model) bound(q *query, table string, f *handlers.Filter) error {
	older, err := f.OlderThan.Duration()
	if err != nil {
		return err
	}
	newer, err := f.NewerThan.Duration()
	if err != nil {
		return err
	}
	end := cursor{started: math.MaxInt64}
	if older > 0 {
		end.started = m.now().Add(-older).UnixNano()
		q.and(table + ".started > 0")
	}
	if newer > 0 {
		q.and(table+".started > ?", m.now().Add(-newer).UnixNano())
	}
	if f.After != "" {
		after, err := parseCursor(f.After)
		if err != nil {
			return err
		}
		if after.started < end.started {
			end = after
		}
	}
	q.and("("+table+".started, "+table+".key) < (?, ?)", end.started, end.key)
	return nil
}

// sql returns the query's text and arguments.
func (q *query) sql() (string, []any) {
	const columns = "r.started, r.key, r.stuck, r.body"
	branch := "SELECT " + columns + " FROM " + q.from + " WHERE " + strings.Join(q.where, " AND ")
	tail := " ORDER BY " + q.order + " LIMIT " + strconv.Itoa(q.limit)
	if len(q.states) == 0 {
		return branch + tail, q.args
	}
	var branches []string
	var args []any
	for _, state := range q.states {
		branches = append(branches, "SELECT * FROM ("+branch+" AND r.state = ?"+tail+")")
		args = append(append(args, q.args...), state)
	}
	return strings.Join(branches, " UNION ALL ") + " ORDER BY started DESC, key DESC LIMIT " + strconv.Itoa(q.limit), args
}

func asAny(states []projector.State) []any {
	all := make([]any, len(states))
	for i, s := range states {
		all[i] = s
	}
	return all
}
