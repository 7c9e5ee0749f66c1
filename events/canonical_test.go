package events_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

func canonical(t interface{ Fatalf(string, ...any) }, text string) string {
	c, err := events.Canonical([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return string(c)
}

func TestCanonicalNumbers(t *testing.T) {
	for want, spellings := range map[string][]string{
		"0":                              {"0", "-0", "0.000", "-0e5", "0e-999999999999999999"},
		"1":                              {"1", "1.0", "1e0", "10e-1", "0.1E+1", "0.01e2", "1.000e00"},
		"-10":                            {"-10", "-1e1", "-100e-1", "-10.0"},
		"120":                            {"120", "1.2e2", "12e1"},
		"0.3":                            {"0.3", "3e-1", "0.30"},
		"19.99":                          {"19.99", "1999e-2", "0.1999e2"},
		"-0.001":                         {"-0.001", "-1e-3"},
		"9007199254740993":               {"9007199254740993", "9007199254740993.0", "9.007199254740993e15"},
		"9007199254740993.5":             {"9007199254740993.5", "90071992547409935e-1"},
		"123456789012345678901234567890": {"123456789012345678901234567890", "1.2345678901234567890123456789e29"},
		"100000000000000000000":          {"100000000000000000000", "1e20"},
		"1e21":                           {"1000000000000000000000", "1e21", "10E20", "0.1e22"},
		"-1e21":                          {"-1000000000000000000000", "-1e21"},
		"0.00000000000000000001":         {"1e-20", "0.00000000000000000001"},
		"1e-21":                          {"1e-21", "0.1e-20"},
		"1e400":                          {"1e400", "10e399", "1.0E+0400"},
		"1.5e400":                        {"15e399", "1.50e400"},
		"1e5000000":                      {"1e5000000", "0.1e5000001"},
		"-1.2e-999999999999999999":       {"-1.2e-999999999999999999"},
	} {
		for _, s := range spellings {
			t.Run(s+" becomes "+want, func(t *testing.T) {
				if got := canonical(t, s); got != want {
					t.Errorf("got %s", got)
				}
			})
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, c := range []struct{ promise, text, want string }{
		{"keys are sorted", `{"b":1,"a":2,"aa":3,"":4,"B":5}`, `{"":4,"B":5,"a":2,"aa":3,"b":1}`},
		{"keys are sorted by code point", `{"😀":1,"` + "\uffee" + `":2,"é":3}`, `{"é":3,"` + "\uffee" + `":2,"😀":1}`},
		{"keys are sorted as they read, not as they are spelt", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"inner objects are sorted", `[{"b":{"d":1,"c":[{"z":0,"y":0}]},"a":[]}]`, `[{"a":[],"b":{"c":[{"y":0,"z":0}],"d":1}}]`},
		{"the order of an array is kept", `[3,1,2]`, `[3,1,2]`},
		{"white space goes", " { \"a\" : [ 1 , true , { } , [ ] ] } ", `{"a":[1,true,{},[]]}`},
		{"HTML is not escaped", `"\u003cb\u003e&"`, `"<b>&"`},
		{"a solidus is not escaped", `"a\/b"`, `"a/b"`},
		{"letters are not escaped", `"\u00e9\ud83d\ude00\u2028"`, `"é😀` + "\u2028" + `"`},
		{"control characters have short escapes", `"\u0008\u0009\u000a\u000c\u000d\u001F\u0000"`, `"\b\t\n\f\r\u001f\u0000"`},
		{"quotes and backslashes stay escaped", `"\u0022\u005c"`, `"\"\\"`},
		{"strings that look like structure are strings", `["[","{",":",","]`, `["[","{",":",","]`},
		{"an object of many keys is sorted", `{"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1,"r":1,"q":1,"p":1,"o":1,"n":1,"m":1,"l":1,"k":1,"j":1}`,
			`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"r":1}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			if got := canonical(t, c.text); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEqualJSON(t *testing.T) {
	for _, c := range []struct {
		promise, a, b string
		equal         bool
	}{
		{"key order does not matter", `{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`, true},
		{"neighbours above 2^53 differ", `9007199254740992`, `9007199254740993`, false},
		{"a string is not a number", `"1"`, `1`, false},
		{"null is not absence", `{"a":null}`, `{}`, false},
		{"huge numbers are compared exactly", `1e400`, `1e401`, false},
	} {
		t.Run(c.promise, func(t *testing.T) {
			equal, err := events.EqualJSON([]byte(c.a), []byte(c.b))
			if err != nil || equal != c.equal {
				t.Errorf("got %v, %v", equal, err)
			}
			ha, err1 := events.HashJSON([]byte(c.a))
			hb, err2 := events.HashJSON([]byte(c.b))
			if err1 != nil || err2 != nil || (ha == hb) != c.equal {
				t.Errorf("hashes %s, %v and %s, %v", ha, err1, hb, err2)
			}
		})
	}
	t.Run("a text that is not JSON equals nothing", func(t *testing.T) {
		for _, pair := range [][2]string{{"x", "1"}, {"1", "x"}} {
			if _, err := events.EqualJSON([]byte(pair[0]), []byte(pair[1])); err == nil {
				t.Error("no error")
			}
		}
		if _, err := events.HashJSON([]byte(`{"a":1,"a":1}`)); err == nil {
			t.Error("no error")
		}
	})
}

func TestHashJSONIsStable(t *testing.T) {
	got, err := events.HashJSON([]byte(` { } `))
	if want := "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestMarshal(t *testing.T) {
	got, err := events.Marshal(map[string]any{"b": "<a & b>", "a": json.RawMessage("1e400")})
	if want := `{"a":1e400,"b":"<a & b>"}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := events.Marshal(func() {}); err == nil {
		t.Error("a function has no JSON")
	}
}

// number is an exact decimal: digits times ten to the exp.
type number struct {
	digits int64
	exp    int
}

// jsonValue draws nil, a bool, a number, a string, a []any or a map[string]any.
func jsonValue(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.String().AsAny(),
		rapid.Custom(func(t *rapid.T) number {
			return number{rapid.Int64().Draw(t, "digits"), rapid.IntRange(-30, 30).Draw(t, "exp")}
		}).AsAny(),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	return rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return rapid.SliceOfN(jsonValue(depth-1), 0, 4).Draw(t, "array")
		case 1:
			return rapid.MapOfN(rapid.String(), jsonValue(depth-1), 0, 20).Draw(t, "object")
		}
		return rapid.OneOf(scalars...).Draw(t, "scalar")
	})
}

// spell writes the value in one of its many spellings.
func spell(t *rapid.T, v any) []byte {
	space := func() string { return rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space") }
	var b bytes.Buffer
	b.WriteString(space())
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case string:
		b.WriteString(spellString(t, v))
	case number:
		b.WriteString(spellNumber(t, v))
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(spell(t, item))
		}
		b.WriteByte(']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		b.WriteByte('{')
		for i, k := range rapid.Permutation(keys).Draw(t, "order") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space() + spellString(t, k) + space() + ":")
			b.Write(spell(t, v[k]))
		}
		b.WriteByte('}')
	}
	b.WriteString(space())
	return b.Bytes()
}

func spellString(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "plain string") {
		b, err := events.Marshal(s)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return string(b)
	}
	var b strings.Builder
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return `"` + b.String() + `"`
}

func spellNumber(t *rapid.T, n number) string {
	zeros := rapid.IntRange(0, 40).Draw(t, "zeros")
	digits := strconv.FormatInt(n.digits, 10)
	switch rapid.IntRange(0, 2).Draw(t, "form") {
	case 0:
		return fmt.Sprintf("%se%+d", digits, n.exp)
	case 1:
		return fmt.Sprintf("%s.%sE%03d", digits, strings.Repeat("0", zeros+1), n.exp)
	}
	if n.digits == 0 {
		return "0"
	}
	return fmt.Sprintf("%s%se%d", digits, strings.Repeat("0", zeros), n.exp-zeros)
}

func TestCanonicalIsTheSameForEverySpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := jsonValue(3).Draw(t, "value")
		a, b := spell(t, v), spell(t, v)
		ca, cb := canonical(t, string(a)), canonical(t, string(b))
		if ca != cb {
			t.Fatalf("%s\nand %s\nbecome %s\nand %s", a, b, ca, cb)
		}
		if equal, err := events.EqualJSON(a, b); !equal || err != nil {
			t.Fatalf("%v, %v", equal, err)
		}
	})
}

func TestCanonicalKeepsTheValueOfANumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := spellNumber(t, number{rapid.Int64().Draw(t, "digits"), rapid.IntRange(-300, 300).Draw(t, "exp")})
		want, ok1 := new(big.Rat).SetString(text)
		got, ok2 := new(big.Rat).SetString(canonical(t, text))
		if !ok1 || !ok2 || want.Cmp(got) != 0 {
			t.Fatalf("%s became %s", text, canonical(t, text))
		}
	})
}

func TestCanonicalMeansWhatTheTextMeans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { keepsMeaning(t, spell(t, jsonValue(3).Draw(t, "value"))) })
}

// keepsMeaning holds the laws of Canonical for one text, if it is JSON.
func keepsMeaning(t interface{ Fatalf(string, ...any) }, text []byte) {
	c, err := events.Canonical(text)
	if err != nil {
		return
	}
	again, err := events.Canonical(c)
	if err != nil || !bytes.Equal(c, again) {
		t.Fatalf("%s is not canonical: %s, %v", c, again, err)
	}
	if len(c) > 8*len(text)+len("0.00000000000000000001") {
		t.Fatalf("%d bytes became %d", len(text), len(c))
	}
	if want, got := decode(text), decode(c); want != got {
		t.Fatalf("%s became %s", want, got)
	}
}

// decode shows a text as encoding/json understands it, numbers left out.
func decode(text []byte) string {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%#v", withoutNumbers(v))
}

func withoutNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		return 0
	case []any:
		for i := range v {
			v[i] = withoutNumbers(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = withoutNumbers(v[k])
		}
	}
	return v
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{"b":1.0,"a":[1e400,-0,"\u00e9"]}`, `{"z":{"b":1,"a":2},"y":[]}`, `0.00000000000000000001`, `1e999999999999999999`, `"\/\b\ud83d\ude00"`, `-12300e-2`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) { keepsMeaning(t, text) })
}

var sampleJSON = []byte(`{"call":{"id":"call-1","name":"run_js","arguments":{"code":"const r = await desk.book({room: 4});\nreturn r;","timeout_ms":30000}},` +
	`"usage":{"input":18220,"cached":12000,"output":310,"reasoning":120},"messages":[{"id":"m1","role":"assistant","parts":[{"type":"text","text":"Booking the room now, ` +
	strings.Repeat("and telling everyone about it, ", 20) + `é"}]}],"cost":0.0123,"ok":true,"next":null}`)

func BenchmarkCanonical(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(sampleJSON)))
	for b.Loop() {
		if _, err := events.Canonical(sampleJSON); err != nil {
			b.Fatal(err)
		}
	}
}
