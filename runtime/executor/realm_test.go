package executor

import (
	"bytes"
	"testing"

	loop "github.com/agentruntime/agentruntime/runtime"
)

func TestAPanicOfTheEngineIsTheScriptsFailure(t *testing.T) {
	l := new(Factory).limits(loop.ScriptLimits{})
	r := newRealm(&wire{in: new(bytes.Buffer), out: new(bytes.Buffer)})
	r.parse, r.stringify = nil, nil
	if last := serve(r, order{Code: "return 1", Limits: l}); last.Type != frameFail || last.Kind != loop.ScriptException {
		t.Errorf("got %+v", last)
	}
}

func TestHalvesOfCharactersAreReplaced(t *testing.T) {
	for text, want := range map[string]string{
		`"a"`:                    `"a"`,
		`"\ud800"`:               `"\ufffd"`,
		`"\udfff\ud83d\ude00"`:   `"\ufffd\ud83d\ude00"`,
		`"\uD83D\uDE00\uD83D"`:   `"\uD83D\uDE00\ufffd"`,
		`"\\ud800 \\\ud800x"`:    `"\\ud800 \\\ufffdx"`,
		`"\ud800\ud800\udc00\n"`: `"\ufffd\ud800\udc00\n"`,
		`"\u00e9\ud7ff\ue000"`:   `"\u00e9\ud7ff\ue000"`,
	} {
		if got := replaceSurrogates(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		if err := checkValue(want, 1000); err != nil {
			t.Error(err)
		}
	}
}
