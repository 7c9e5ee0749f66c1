package schema_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// pair is what two validators are asked.
type pair struct {
	Schema   json.RawMessage `json:"schema"`
	Instance json.RawMessage `json:"instance"`
}

// drawPairs draws schemas that pass the gate, each with instances. The numbers
// are exact as float64.
func drawPairs(t *rapid.T) (pairs []pair, verdicts []bool) {
	doc := marshal(t, drawDocument(t))
	s, err := schema.Compile("drawn", doc)
	if err != nil {
		return nil, nil
	}
	for range instancesPerSchema() {
		instance := marshal(t, drawInstance(t, 3))
		pairs = append(pairs, pair{doc, instance})
		verdicts = append(verdicts, violations(t, s, string(instance)) == nil)
	}
	return pairs, verdicts
}

// AGENTRUNTIME_NPM names the folder in which ajv is installed. Without it the
// pairs are only drawn and validated.
func TestAjvAgreesOnFloats(t *testing.T) {
	var pairs []pair
	var verdicts []bool
	schemas := 0
	rapid.Check(t, func(t *rapid.T) {
		p, v := drawPairs(t)
		if len(p) > 0 {
			schemas++
		}
		pairs, verdicts = append(pairs, p...), append(verdicts, v...)
	})
	if schemas < 20 {
		t.Fatalf("only %d schemas passed the gate", schemas)
	}
	folder := os.Getenv("AGENTRUNTIME_NPM")
	if folder == "" {
		return
	}
	var in bytes.Buffer
	for _, p := range pairs {
		// A script of characters has a longer name in JavaScript than in RE2.
		p.Schema = bytes.ReplaceAll(p.Schema, []byte(`p{Han}`), []byte(`p{Script=Han}`))
		if err := json.NewEncoder(&in).Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("node", filepath.Join(folder, "verdicts.mjs"))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	accepted, rejected := 0, 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	for i, p := range pairs {
		if !lines.Scan() {
			t.Fatalf("ajv answered %d of %d", i, len(pairs))
		}
		want := "false"
		if verdicts[i] {
			want = "true"
			accepted++
		} else {
			rejected++
		}
		if lines.Text() != want {
			t.Errorf("ajv says %s, not %s\nschema %s\ninstance %s", lines.Text(), want, p.Schema, p.Instance)
		}
	}
	t.Logf("ajv agrees on %d schemas: %d instances accepted, %d rejected", schemas, accepted, rejected)
}
