package readmodel

import (
	"context"

	"github.com/agentruntime/agentruntime/handlers"
)

// FileVersion is the version of a file that this package wrote.
const FileVersion = fileVersion

// Explain returns SQLite's plan of a page, one step a line.
func (m *Model) Explain(ctx context.Context, namespace string, f handlers.Filter) ([]string, error) {
	q, err := m.plan(namespace, &f)
	if err != nil {
		return nil, err
	}
	text, args := q.sql()
	rows, err := m.db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var step string
		if err := rows.Scan(new(int), new(int), new(int), &step); err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, rows.Err()
}
