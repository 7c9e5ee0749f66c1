package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// nested returns a schema of some bytes under some levels.
func nested(depth, size int) string {
	return strings.Repeat(`{"properties":{"a":`, depth) + `{"description":"` + strings.Repeat("x", size) + `"}` + strings.Repeat("}}", depth)
}

func TestAToolThatCannotBeReadIsLeftOutAloneAndSaidBriefly(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	for tool, want := range map[string]struct{ tool, reason string }{
		`{"name":"do"}`:                                                       {"do", "no input schema"},
		`{"name":"do","inputSchema":null}`:                                    {"do", "no input schema"},
		`{"name":"do","inputschema":{"type":"object"}}`:                       {"do", "no input schema"},
		`{"name":"do","inputSchema":"object"}`:                                {"do", "a schema is an object"},
		`{"name":"do","inputSchema":{},"annotations":"x"}`:                    {"do", "its annotations is of the wrong type"},
		`{"name":"do","inputSchema":{},"description":["x"]}`:                  {"do", "its description is of the wrong type"},
		`{"name":"do","inputSchema":{},"annotations":{"readOnlyHint":"yes"}}`: {"do", "its readOnlyHint is of the wrong type"},
		`{"name":5,"inputSchema":{}}`:                                         {"number 2", "no name"},
		`{"inputSchema":{}}`:                                                  {"number 2", "no name"},
		`{"name":"do","name":"other","inputSchema":{}}`:                       {"number 2", "twice"},
		`null`: {"number 2", "no object"},
		`{"name":"` + long + `","inputSchema":{}}`:                                         {long[:200] + "…", "name"},
		`{"name":"do","inputSchema":` + nested(0, 1<<20) + `}`:                             {"do", "larger than"},
		`{"name":"do","inputSchema":{"properties":{"` + long[:1<<19] + `":{"nosuch":1}}}}`: {"do", "not supported"},
	} {
		s, pool := serveStranger(t, nil)
		s.listed = []string{`{"tools":[{"name":"first","NAME":"other","inputSchema":{"type":"object"}},` + tool + `,{"name":"last","inputSchema":{"type":"object"},"annotations":{"READONLYHINT":true}}]}`}
		kept, left, err := pool.Import(t.Context(), "s")
		if err != nil || len(kept) != 2 || kept[0].Name != "mcp.s.first" || kept[1].Name != "mcp.s.last" || kept[1].Effect != events.EffectWrite {
			t.Errorf("%.80s: %v, %v", tool, kept, err)
		}
		if len(left) != 1 || left[0].Tool != want.tool || !strings.Contains(left[0].Error(), want.reason) || len(left[0].Error()) > 2000 {
			t.Errorf("%.80s: left out: %.500v", tool, left)
		}
		pool.Close()
	}
}

func TestReadingACatalogueCostsLittleWhateverIsInIt(t *testing.T) {
	s, pool := serveStranger(t, nil)
	s.listed = []string{`{"tools":[{"name":"deep","inputSchema":` + nested(300, 900_000) + `},{"name":"deeper","inputSchema":` + nested(300, 2_800_000) + `}]}`}
	began := time.Now()
	kept, left, err := pool.Import(t.Context(), "s")
	if took := time.Since(began); err != nil || took > 10*time.Second {
		t.Errorf("it took %s: %v", took, err)
	}
	if len(kept)+len(left) != 2 {
		t.Errorf("kept %d, left out %v", len(kept), left)
	}
}

func TestACatalogueIsReadWhileThereIsTime(t *testing.T) {
	s, pool := serveStranger(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.listed = []string{`{"tools":[{"name":"one","inputSchema":{}}],"nextCursor":"x"}`, `{"tools":[]}`}
	if kept, _, err := pool.Import(ctx, "s"); err != nil || len(kept) != 1 {
		t.Errorf("%v, %v", kept, err)
	}
	cancel()
	if _, _, err := pool.Import(ctx, "s"); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v", err)
	}
}

func TestACatalogueIsBounded(t *testing.T) {
	pages := func(pages, tools, size int) (listed []string) {
		each := make([]string, tools)
		for i := range each {
			each[i] = fmt.Sprintf(`{"name":"t","inputSchema":{},"title":"%s"}`, strings.Repeat("x", size))
		}
		for n := range pages {
			listed = append(listed, `{"tools":[`+strings.Join(each, ",")+`],"nextCursor":"`+strings.Repeat("x", n+1)+`"}`)
		}
		return listed
	}
	for words, listed := range map[string][]string{"more than 1000": pages(2, 600, 1), "more than 100 pages": pages(101, 0, 0), "bytes": pages(3, 3, 1_000_000),
		"cannot be read": {`{"tools":7}`}, "list cannot be read": {`[]`}, "leads back": {`{"tools":[],"nextCursor":"x"}`, `{"tools":[],"nextCursor":"x"}`}} {
		s, pool := serveStranger(t, nil)
		s.listed = listed
		if _, _, err := pool.Import(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
		pool.Close()
	}
}
