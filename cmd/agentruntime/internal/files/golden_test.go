package files_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// folders returns the files of an archive, with an empty folder of each kind
// that it has no file of.
func folders(archive *txtar.Archive) fstest.MapFS {
	tree := fstest.MapFS{"agents": {Mode: os.ModeDir | 0o755}, "capabilities": {Mode: os.ModeDir | 0o755}}
	for _, f := range archive.Files {
		tree[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	return tree
}

// messages lists the joined errors, each of which must be an *Error of one line
// that points into its file.
func messages(t testing.TB, tree fstest.MapFS, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		var at *files.Error
		if !errors.As(err, &at) {
			t.Errorf("%T is no *Error: %v", err, err)
			continue
		}
		if text := at.Error(); strings.ContainsAny(text, "\n\r") || len(text) > 1000 {
			t.Errorf("not one short line: %q", text)
		}
		lines := strings.Count(string(tree[at.File].Data), "\n") + 1
		if at.Line < 0 || at.Line > lines || at.Line == 0 && at.Column != 0 {
			t.Errorf("%s has %d lines: %v", at.File, lines, err)
		}
	}
	return err.Error() + "\n"
}

func TestEverythingWrongIsReportedWhereItStands(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if last := len(archive.Files) - 1; archive.Files[last].Name == "errors" {
				want = string(archive.Files[last].Data)
				archive.Files = archive.Files[:last]
			}
			tree := folders(archive)
			set, err := files.LoadFS(tree, "agents", "capabilities")
			if err == nil {
				_, err = set.Versions()
			}
			got := messages(t, tree, err)
			if *update {
				archive.Files = append(archive.Files, txtar.File{Name: "errors", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
