package readmodel

import (
	"maps"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
)

// Rows returns the rows of a session's runs, with what redact makes of texts
// that may hold a secret. Without redact they stay as they are.
func Rows(s *projector.Session, redact func(string) string) []handlers.Row {
	rows := make([]handlers.Row, 0, len(s.Runs))
	for i := range s.Runs {
		run := &s.Runs[i]
		row := handlers.Row{Summary: run.Summary()}
		row.Reason = redacted(redact, row.Reason)
		row.Labels = redactLabels(redact, row.Labels)
		rows = append(rows, row)
	}
	return rows
}

// unreadable returns the one row of a session that cannot be folded.
func unreadable(key events.Key, err error, redact func(string) string) []handlers.Row {
	return []handlers.Row{{Summary: projector.Summary{Session: key.Session, State: handlers.StateUnreadable, Reason: redacted(redact, err.Error())}}}
}

// erased returns the one row of a session that was erased.
func erased(key events.Key) []handlers.Row {
	return []handlers.Row{{Summary: projector.Summary{Session: key.Session, State: handlers.StateErased}}}
}

func redacted(redact func(string) string, text string) string {
	if redact == nil {
		return text
	}
	return redact(text)
}

// redactLabels takes the names in order: of two that become the same, the last
// one counts, each time.
func redactLabels(redact func(string) string, labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	out := make(map[string]string, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out[redacted(redact, name)] = redacted(redact, labels[name])
	}
	return out
}
