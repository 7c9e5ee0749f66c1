package wiretest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// FilePart returns a file of a message.
func FilePart(name, mediaType, ref string, size int64) events.Part {
	return events.Part{Type: events.PartFile, File: &events.File{Ref: ref, Name: name, MediaType: mediaType, Size: size}}
}

// Files holds an adapter to what it promises of files.
func Files(t *testing.T, a Adapter) {
	t.Run("files go to the API as they are stored", a.files)
	t.Run("files are sent in the vendor's form", a.filesGolden)
}

// sentFiles are the bodies of files, by what they are.
var sentFiles = []struct{ name, mediaType string }{
	{"chart.png", "image/png"}, {"a \"report\".pdf", "application/pdf"}, {"", "text/csv"}, {"answer.json", "application/json"}, {"photo.jpg", "image/jpeg"},
}

// files holds that what is sent of files is what was stored: bytes for bytes,
// each as often as it stands in the window, with its words; and that a file
// that does not go with the request is there in words only.
func (a Adapter) files(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &runtime.Request{Files: map[string][]byte{}}
		stands := map[string]int{}
		words := map[string]bool{}
		draw := func() (parts []events.Part) {
			for range rapid.IntRange(0, 3).Draw(rt, "files") {
				kind := rapid.SampledFrom(sentFiles).Draw(rt, "kind")
				data := rapid.SliceOfN(rapid.Byte(), 12, 40).Draw(rt, "data")
				if runtime.IsTextual(kind.mediaType) {
					data = []byte("»" + rapid.StringN(12, 40, -1).Draw(rt, "text"))
				}
				ref := "ref-" + events.Derive(8, kind.mediaType, string(data))
				if rapid.Bool().Draw(rt, "sent") {
					r.Files[ref] = data
				}
				p := FilePart(kind.name, kind.mediaType, ref, int64(len(data)))
				stands[ref]++
				words[runtime.Describe(p.File, "")] = true
				parts = append(parts, p)
			}
			return parts
		}
		r.Messages = []events.Message{
			{ID: "m1", Role: events.RoleUser, Parts: append([]events.Part{Text("Look.")}, draw()...)},
			{ID: "m2", Role: events.RoleAssistant, Parts: []events.Part{Call("c1", "run_js", "{}"), Call("c2", "run_js", "{}")}},
			{ID: "m3", Role: events.RoleTool, Parts: []events.Part{Result("c1", events.OutcomeOK, append([]events.Part{Text("1")}, draw()...)...)}},
			{ID: "m4", Role: events.RoleTool, Parts: []events.Part{Result("c2", events.OutcomeError, draw()...)}},
		}
		body := a.send(rt, r)
		found, text := map[string]int{}, ""
		for _, s := range stringsIn(rt, body) {
			found[s]++
			text += s + "\n"
			if _, encoded, ok := strings.Cut(s, ";base64,"); ok {
				s = encoded
			}
			if data, err := base64.StdEncoding.DecodeString(s); err == nil {
				found[string(data)]++
			}
		}
		for ref, n := range stands {
			if data, sent := r.Files[ref]; sent && found[string(data)] != n {
				rt.Errorf("the file %s stands %d times in the window and %d times in the request: %s", ref, n, found[string(data)], body)
			}
		}
		for said := range words {
			if !strings.Contains(text, said) {
				rt.Errorf("%s is not said: %s", said, body)
			}
		}
		sum := 0
		for ref := range r.Files {
			sum += stands[ref]
		}
		if bytes.Count(body, []byte(`"image_url":{`))+bytes.Count(body, []byte(`"inlineData"`))+bytes.Count(body, []byte(`"type":"document"`)) > sum {
			rt.Errorf("more is sent than the %d files that go with the request: %s", sum, body)
		}
	})
}

// send makes a request and returns its body.
func (a Adapter) send(t interface {
	Helper()
	Fatal(...any)
}, r *runtime.Request) []byte {
	t.Helper()
	echo := &Echo{Answer: a.Begun + a.Rest}
	m, err := a.New(Config{Name: "m", APIKey: Key, HTTPClient: &http.Client{Transport: echo}})
	if err == nil {
		_, err = m.Generate(context.Background(), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return echo.Sent
}

// stringsIn returns every string of a JSON text that is no key.
func stringsIn(t interface{ Fatal(...any) }, body []byte) (all []string) {
	var root any
	if err := json.Unmarshal(body, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(root)
	return all
}

// filesGolden compares a request with files with testdata/request_files.json,
// which is in the form of the vendor's published schema.
func (a Adapter) filesGolden(t *testing.T) {
	chart, report, table := FilePart("chart.png", "image/png", "ref-chart", 4), FilePart("report.pdf", "application/pdf", "ref-report", 5), FilePart("table.csv", "text/csv", "ref-table", 7)
	body := a.send(t, &runtime.Request{
		Files: map[string][]byte{"ref-chart": []byte("\x89PNG"), "ref-report": []byte("%PDF-"), "ref-table": []byte("a,b\n1,2")},
		Messages: []events.Message{
			{ID: "m1", Role: events.RoleUser, Parts: []events.Part{Text("Compare."), chart, report, FilePart("song.ogg", "audio/ogg", "ref-song", 9)}},
			{ID: "m2", Role: events.RoleAssistant, Parts: []events.Part{Call("c1", "run_js", "{}"), Call("c2", "run_js", "{}")}},
			{ID: "m3", Role: events.RoleTool, Parts: []events.Part{Result("c1", events.OutcomeOK, Text("null"), table, chart)}},
			{ID: "m4", Role: events.RoleTool, Parts: []events.Part{Result("c2", events.OutcomeOK, Text("2"))}},
			{ID: "m5", Role: events.RoleUser, Parts: []events.Part{Text("Go on.")}},
		}})
	name := filepath.Join("testdata", "request_files.json")
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-%s +sent):\n%s\nsent: %s", name, diff, body)
	}
}
