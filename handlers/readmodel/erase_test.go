package readmodel_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/readmodel"
	"github.com/agentruntime/agentruntime/projector"
)

func TestAnErasedSessionLeavesNothingItSaidInTheFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.sqlite")
	m, err := readmodel.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	// Long enough for pages of its own.
	label, reason := "walrus-"+strings.Repeat("w", 40), "tusk-"+strings.Repeat("t", 9000)
	named := row(1, func(r *handlers.Row) {
		r.Session, r.Run, r.Labels, r.Reason = "s", "s-00000001", map[string]string{"patient": label}, reason
	})
	holds := func() (names []string) {
		files, err := filepath.Glob(path + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte(label)) || bytes.Contains(data, []byte(reason[:1000])) {
				names = append(names, filepath.Base(name))
			}
		}
		return names
	}
	if err := m.Apply(t.Context(), 0, 1, "ns", "s", []handlers.Row{named}); err != nil {
		t.Fatal(err)
	}
	if len(holds()) == 0 {
		t.Fatal("no file holds the label")
	}
	if err := m.Apply(t.Context(), 0, 2, "ns", "s", []handlers.Row{{Summary: projector.Summary{Session: "s", State: handlers.StateErased}}}); err != nil {
		t.Fatal(err)
	}
	if names := holds(); len(names) > 0 {
		t.Errorf("%v hold what the session said", names)
	}
	closed(t, m)
	if names := holds(); len(names) > 0 {
		t.Errorf("after the end %v hold what the session said", names)
	}
}
