package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

func TestCheckJSONRefuses(t *testing.T) {
	wide := func(n int, last string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":{"x":%d},`, i, i)
		}
		return "{" + b.String() + last + "}"
	}
	for _, c := range []struct {
		promise, text string
		offset        int
		pointer       string
	}{
		{"an empty text", ``, 0, ""},
		{"white space alone", " \n", 2, ""},
		{"a byte order mark", "\ufeff1", 0, ""},
		{"a second value", `1 2`, 2, ""},
		{"a bracket too many", `[]]`, 2, ""},
		{"a text that ends in an object", `{"a":1`, 6, "/a"},
		{"a text that ends in a string", `["ab`, 4, "/0"},
		{"a text that ends in an escape", `"\`, 1, ""},
		{"brackets that do not match", `[1}`, 2, "/0"},
		{"a trailing comma in an object", `{"a":1,}`, 7, "/a"},
		{"a trailing comma in an array", `[1,]`, 3, "/1"},
		{"a leading comma", `[,1]`, 1, "/0"},
		{"a missing colon", `{"a" 1}`, 5, "/a"},
		{"a key without quotes", `{a:1}`, 1, ""},
		{"single quotes", `['a']`, 1, "/0"},
		{"a comment", `[1/**/]`, 2, "/0"},
		{"NaN", `NaN`, 0, ""},
		{"a misspelt literal", `[true,nul]`, 6, "/1"},
		{"a literal with a tail", `truex`, 4, ""},
		{"a leading zero", `[01]`, 1, "/0"},
		{"a negative leading zero", `-01`, 0, ""},
		{"a plus sign", `+1`, 0, ""},
		{"a lone minus", `-`, 1, ""},
		{"a number that ends in its point", `1.`, 2, ""},
		{"a number that begins with its point", `.5`, 0, ""},
		{"an exponent without digits", `[1e+]`, 4, "/0"},
		{"an exponent of 19 digits", `[1e1000000000000000000]`, 1, "/0"},
		{"an exponent that has 19 digits when normal", `123e999999999999999999`, 0, ""},
		{"a hexadecimal number", `0x10`, 1, ""},
		{"a control character in a string", "\"a\tb\"", 2, ""},
		{"an unknown escape", `"\x41"`, 1, ""},
		{"an escape with a bad digit", `"\u00g0"`, 1, ""},
		{"a short escape", `"\u00"`, 1, ""},
		{"a lone high surrogate", `{"a":"\ud800"}`, 6, "/a"},
		{"a lone low surrogate", `"\udc00"`, 1, ""},
		{"two high surrogates", `"\ud800\ud800"`, 1, ""},
		{"a surrogate before another escape", `"\ud800\u0041"`, 1, ""},
		{"a lone surrogate in a key", `{"\udfff":1}`, 2, ""},
		{"a byte that is not UTF-8", "[\"\xff\"]", 2, "/0"},
		{"an overlong encoding", "\"\xc0\x80\"", 1, ""},
		{"a surrogate in UTF-8", "\"\xed\xa0\x80\"", 1, ""},
		{"a duplicate key", `{"a":1,"b":2,"a":1}`, 13, "/a"},
		{"a duplicate key spelt with an escape", `{"a":1,"\u0061":1}`, 7, "/a"},
		{"a duplicate empty key", `{"":1,"":1}`, 6, "/"},
		{"a duplicate key in an inner object", `[{"a":{"b":0,"b":1}}]`, 13, "/0/a/b"},
		{"a duplicate among many keys", wide(100, `"k7":1`), len(wide(100, "")) - 1, "/k7"},
		{"a duplicate of the last of many keys", wide(17, `"k16":1`), len(wide(17, "")) - 1, "/k16"},
	} {
		t.Run(c.promise+" is refused", func(t *testing.T) {
			err := events.CheckJSON([]byte(c.text), events.JSONLimits{})
			var e *events.JSONError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a *JSONError", err)
			}
			if e.Offset != c.offset || e.Pointer != c.pointer {
				t.Errorf("at %d in %q, want %d in %q: %v", e.Offset, e.Pointer, c.offset, c.pointer, err)
			}
		})
	}
}

func TestCheckJSONAccepts(t *testing.T) {
	for promise, text := range map[string]string{
		"a scalar":                          ` "x" `,
		"the same key in two objects":       `[{"a":1},{"a":{"a":1}}]`,
		"keys that differ in case":          `{"a":1,"A":1}`,
		"a pair of surrogates":              `"\ud83d\ude00"`,
		"an escaped backslash before u":     `"\\ud800"`,
		"a replacement character":           `"` + "\ufffd" + `\ufffd"`,
		"a NUL that is escaped":             `"\u0000"`,
		"DEL and U+2028":                    "\"\x7f\u2028\"",
		"a number beyond float64":           `[1e400,-1e-400,1e5000000]`,
		"an integer of a thousand digits":   strings.Repeat("9", 1000),
		"zero with an exponent":             `0e999999999999999999`,
		"an exponent with leading zeros":    `1e+0000000000000000000000005`,
		"an exponent of 18 digits":          `1e999999999999999999`,
		"white space wherever it may stand": " [ { \"a\" :\t1 ,\n\"b\" :\r[ ] } , { } ] ",
	} {
		t.Run(promise+" is accepted", func(t *testing.T) {
			if err := events.CheckJSON([]byte(text), events.JSONLimits{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckJSONLimits(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, c := range []struct {
		promise string
		text    []byte
		limits  events.JSONLimits
		ok      bool
	}{
		{"128 levels are accepted", nested(128), events.JSONLimits{}, true},
		{"129 levels are refused", nested(129), events.JSONLimits{}, false},
		{"a level of zero containers is a scalar", []byte("1"), events.JSONLimits{MaxDepth: 1}, true},
		{"the depth is what the caller says", nested(3), events.JSONLimits{MaxDepth: 2}, false},
		{"siblings add no depth", []byte("[[],[],{}]"), events.JSONLimits{MaxDepth: 2}, true},
		{"no caller can ask for more depth than encoding/json has", nested(10001), events.JSONLimits{MaxDepth: 1 << 40}, false},
		{"a text of the largest size is accepted", []byte("12345"), events.JSONLimits{MaxBytes: 5}, true},
		{"a larger text is refused", []byte("123456"), events.JSONLimits{MaxBytes: 5}, false},
		{"more than 16 MiB are refused", make([]byte, 16<<20+1), events.JSONLimits{}, false},
	} {
		t.Run(c.promise, func(t *testing.T) {
			if err := events.CheckJSON(c.text, c.limits); (err == nil) != c.ok {
				t.Error(err)
			}
		})
	}
}

func TestJSONErrorShowsNoValue(t *testing.T) {
	err := events.CheckJSON([]byte(`{"a/b":{"c~":["hunter2", 12345 x]}}`), events.JSONLimits{})
	if got, want := err.Error(), `not valid JSON at byte 31, in "/a~1b/c~0/1": expected a comma or the end of the object or array`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	t.Run("a long pointer is cut", func(t *testing.T) {
		err := events.CheckJSON([]byte(`{"`+strings.Repeat("é", 1000)+`":x}`), events.JSONLimits{})
		if n := len(err.Error()); n > 400 {
			t.Errorf("the message has %d bytes", n)
		}
	})
}

// jsonText draws texts that are often JSON, or nearly.
func jsonText(t *rapid.T) []byte {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{
		"{", "}", "[", "]", ",", ":", `"a":`, `"b"`, `"`, `\`, "1", "0", "-", ".5", "e", "E+", "true", "false", "null", " ", "\n",
		`"\u0061"`, `"\ud83d\ude00"`, `"\ud83d"`, `"é"`, "\"\xff\"", "\x00", "[]", "{}", `{"a":1,"b":[2]}`, "1e5000000",
	}), 0, 12).Draw(t, "parts")
	if rapid.Bool().Draw(t, "valid") {
		return spell(t, jsonValue(4).Draw(t, "value"))
	}
	return []byte(strings.Join(parts, ""))
}

func TestCheckJSONAgreesWithEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { agree(t, jsonText(t)) })
}

// agree holds the law between CheckJSON, Canonical and encoding/json.
func agree(t interface{ Fatalf(string, ...any) }, text []byte) {
	err := events.CheckJSON(text, events.JSONLimits{})
	if err == nil && !json.Valid(text) {
		t.Fatalf("accepted %q, which encoding/json refuses", text)
	}
	if _, cerr := events.Canonical(text); (cerr == nil) != (err == nil) {
		t.Fatalf("CheckJSON says %v and Canonical %v of %q", err, cerr, text)
	}
	var e *events.JSONError
	if err != nil && (!errors.As(err, &e) || e.Offset < 0 || e.Offset > len(text)) {
		t.Fatalf("%v is no *JSONError inside the text", err)
	}
}

func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\ud83d\ude00",null,true]}`, `{"a":1,"\u0061":2}`, "\"\xff\"", `1e5000000`, `[[[`, `-0.0E-12`, `"\ud800"`, ` `, `{"":{"":[]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) { agree(t, text) })
}

func TestCheckJSONDoesNotAllocatePerValue(t *testing.T) {
	text := []byte("[" + strings.Repeat(`{"name":"desk","n":[1,2e3,-4.5],"ok":true},`, 1000) + "0]")
	n := testing.AllocsPerRun(10, func() {
		if err := events.CheckJSON(text, events.JSONLimits{}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 10 {
		t.Errorf("%v allocations for a thousand objects", n)
	}
}

func BenchmarkCheckJSON(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(sampleJSON)))
	for b.Loop() {
		if err := events.CheckJSON(sampleJSON, events.JSONLimits{}); err != nil {
			b.Fatal(err)
		}
	}
}
