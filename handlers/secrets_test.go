package handlers_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

const gone = handlers.Redacted

func TestSecretsAreRemovedWithWhatOverlapsThem(t *testing.T) {
	s := handlers.NewSecrets([]string{"secret", "secret-longer", "longer-still", "b", "", "+a/b\"c\\d\n<é😀"},
		regexp.MustCompile(`sk-[a-z0-9]{4,}`), regexp.MustCompile(`q*`))
	for text, want := range map[string]string{
		"a secret-longer text":     "a " + gone + " text",
		"secretsecret":             gone + gone,
		"secret-longer-still here": gone + " here",
		"bob":                      "bob", // too short to be told from words
		gone + " secre":            gone + " secre",
		"sec" + gone + "ret":       "sec" + gone + "ret",
		"key sk-ab12, sk-a":        "key " + gone + ", sk-a",
		`a sk\u002dab12.`:          "a " + gone + ".",
		"":                         "",

		`\u0073\u0065cret \/ \x`:      gone + ` \/ \x`,
		`\\u0073\\u0065cret`:          gone,
		`C:\\u0073ecret %4secre%74`:   "C:" + gone + " %4" + gone, // what stands before makes another escape
		`\\\\u0073ecret \u00`:         gone + ` \u00`,
		"%73ecre%74%2":                gone + "%2",
		"%2573ecret":                  gone,
		"736563726574 736563726 SEC":  gone + " 736563726 SEC",
		"c2VjcmV0 xzZWNyZXQ== yc2Vj.": gone + " " + gone + " yc2Vj.",
		`+a/b\"c\\d\n<é😀 tail`:        gone + " tail",
		`+a\/b\u0022c\u005Cd\u000a\u003C\u00E9\uD83D\uDE00 tail`: gone + " tail",
		"%2Ba%2fb%22c%5cd%0A%3C%C3%a9%F0%9f%98%80+tail":          gone + "+tail",
		"2b612f622263":                        "2b612f622263",
		"2b612f6222635c640a3cc3a9f09f9880":    gone,
		"2B612F6222635C640A3CC3A9F09F9880":    gone,
		"K2EvYiJjXGQKPMOp8J-YgA and more":     gone + " and more",
		`K2EvYiJjXGQKPMOp8J+YgA== and more`:   gone + " and more",
		`K2EvYiJjXGQKPMOp8J%2BYgA%3D%3D more`: gone + " more",
	} {
		if got := s.Redact(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := (handlers.Secrets{}).Redact("a secret"); got != "a secret" {
		t.Errorf("the zero value made %q", got)
	}
}

// What is made so that each removal uncovers the next secret goes as a whole.
func TestATextThatIsMadeToUncoverSecretsGoes(t *testing.T) {
	s := handlers.NewSecrets([]string{`abcdef\`})
	text := "kept" + gone + strings.Repeat(`abcdef\\u0061bcdef\\u0062`, 300)
	got := s.Redact(text)
	if !strings.HasPrefix(got, "kept"+gone) || s.Redact(got) != got || strings.Contains(got, `abcdef\`) {
		t.Errorf("left: %.200q", got)
	}
}

func TestASecretSplitOverPartsGoesFromAllOfThem(t *testing.T) {
	s := handlers.NewSecrets([]string{"hunter2-secret"})
	text := func(s string) events.Part { return events.Part{Type: events.PartText, Text: s} }
	reasoning := events.Part{Type: events.PartReasoning, Text: "secret"}
	call := events.Part{Type: events.PartToolCall, Call: &events.ToolCall{ID: "c"}}
	parts := []events.Part{text("a hun"), text(""), text("ter2-"), reasoning, text(" b hunter2"), call, text("-secret c hunter2-secret"), text(".")}
	before := fmt.Sprint(parts)
	want := []events.Part{text("a " + gone), text(""), text(gone), {Type: events.PartReasoning, Text: gone}, text(" b hunter2"), call, text("-secret c " + gone), text(".")}
	got := s.RedactParts(parts)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, s.RedactParts(got)); diff != "" {
		t.Errorf("again (-once +twice):\n%s", diff)
	}
	if fmt.Sprint(parts) != before {
		t.Error("the caller's parts were changed")
	}
}

// spell writes a text as an encoder may, with its choices drawn.
func spell(rt *rapid.T, text string) (spelled string, nested bool) {
	var out strings.Builder
	encoding := rapid.SampledFrom([]string{"plain", "json", "url", "hex", "base64", "json in json", "url of json"}).Draw(rt, "encoding")
	switch encoding {
	case "plain":
		return text, false
	case "json":
		for _, r := range text {
			out.WriteString(spellJSON(rt, r))
		}
	case "json in json":
		for _, r := range text {
			for _, r := range spellJSON(rt, r) {
				out.WriteString(spellJSON(rt, r))
			}
		}
	case "url of json":
		for _, r := range text {
			for _, b := range []byte(spellJSON(rt, r)) {
				out.WriteString(spellURL(rt, b))
			}
		}
	case "url":
		for _, b := range []byte(text) {
			out.WriteString(spellURL(rt, b))
		}
	case "hex":
		digits := hex.EncodeToString([]byte(text))
		return rapid.SampledFrom([]string{digits, strings.ToUpper(digits)}).Draw(rt, "hex"), false
	case "base64":
		long := rapid.StringN(0, 5, -1).Draw(rt, "before") + text + rapid.StringN(0, 5, -1).Draw(rt, "after")
		e := rapid.SampledFrom([]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}).Draw(rt, "base64")
		return e.EncodeToString([]byte(long)), false
	}
	return out.String(), strings.Contains(encoding, " ")
}

func spellJSON(rt *rapid.T, r rune) string {
	choices := []string{}
	quoted, _ := json.Marshal(string(r))
	choices = append(choices, string(quoted[1:len(quoted)-1]))
	if r == '/' {
		choices = append(choices, `\/`)
	}
	units := []rune{r}
	if r > 0xffff {
		units = []rune{0xd800 + (r-0x10000)>>10, 0xdc00 + (r-0x10000)&0x3ff}
	}
	lower, upper := "", ""
	for _, u := range units {
		lower += fmt.Sprintf(`\u%04x`, u)
		upper += fmt.Sprintf(`\u%04X`, u)
	}
	return rapid.SampledFrom(append(choices, lower, upper)).Draw(rt, "spelling")
}

func spellURL(rt *rapid.T, b byte) string {
	choices := []string{fmt.Sprintf("%%%02x", b), fmt.Sprintf("%%%02X", b)}
	if b == ' ' {
		choices = append(choices, "+")
	}
	if strings.IndexByte("%+", b) < 0 {
		choices = append(choices, string([]byte{b}))
	}
	return rapid.SampledFrom(choices).Draw(rt, "spelling")
}

// formsOf are forms of a secret as the standard library writes them.
func formsOf(secret string) []string {
	quoted, _ := json.Marshal(secret)
	exact, _ := events.Marshal(secret)
	everyByte, everyRune := "", ""
	for _, b := range []byte(secret) {
		everyByte += fmt.Sprintf("%%%02x", b)
	}
	for _, r := range secret {
		if r > 0xffff {
			everyRune += string(r)
		} else {
			everyRune += fmt.Sprintf(`\u%04x`, r)
		}
	}
	forms := []string{
		secret, string(quoted[1 : len(quoted)-1]), string(exact[1 : len(exact)-1]), everyRune,
		url.QueryEscape(secret), url.PathEscape(secret), everyByte, strings.ToUpper(everyByte),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	for n := range 3 {
		// Of these, only what every neighbour leaves as it is.
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			one := e.EncodeToString([]byte(strings.Repeat("\x00", n) + secret + "\x00\x00\x00"))
			other := e.EncodeToString([]byte(strings.Repeat("\xff", n) + secret + "\xff\xff\xff"))
			first, last := 0, len(one)
			for i := range one {
				if one[i] != other[i] {
					if i < 4 {
						first = i + 1
					} else {
						last = min(last, i)
					}
				}
			}
			forms = append(forms, one[first:last])
		}
	}
	return forms
}

// holds returns the form of a secret that a redacted text holds.
func holds(secrets []string, text string) string {
	for _, piece := range strings.Split(text, gone) {
		for _, secret := range secrets {
			for _, f := range formsOf(secret) {
				if strings.Contains(piece, f) {
					return f
				}
			}
		}
	}
	return ""
}

var secretTexts = rapid.Custom(func(rt *rapid.T) string {
	s := rapid.StringOfN(rapid.RuneFrom([]rune("abAB01+/=%\\\"<&\n tuné😀-_")), 6, 20, -1).Draw(rt, "secret")
	if strings.Trim(s, " +") == "" {
		return "blanks"
	}
	return s
})

func TestNoFormOfASecretIsLeft(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secrets := rapid.SliceOfN(secretTexts, 1, 4).Draw(rt, "secrets")
		s := handlers.NewSecrets(secrets)
		var text strings.Builder
		for range rapid.IntRange(1, 6).Draw(rt, "pieces") {
			text.WriteString(rapid.StringOfN(rapid.RuneFrom([]rune("xyz .%\\u00+=")), 0, 6, -1).Draw(rt, "between"))
			// What stands before an encoding within another may change how it
			// is read.
			spelled, nested := spell(rt, rapid.SampledFrom(secrets).Draw(rt, "which"))
			if nested {
				text.WriteByte(' ')
			}
			text.WriteString(spelled)
		}
		once := s.Redact(text.String())
		if f := holds(secrets, once); f != "" {
			rt.Errorf("%q holds %q", once, f)
		}
		if twice := s.Redact(once); twice != once {
			rt.Errorf("%q became %q", once, twice)
		}
		if !strings.Contains(once, gone) {
			rt.Errorf("nothing was removed of %q", text.String())
		}
		if s.Redact(gone+text.String()) != gone+once {
			rt.Errorf("what follows a removal is not redacted as a text of its own")
		}
	})
}

func TestTextAroundASecretIsKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secret := rapid.StringMatching(`[A-Z]{6,20}`).Draw(rt, "secret")
		s := handlers.NewSecrets([]string{secret})
		around := rapid.StringOf(rapid.RuneFrom([]rune("xyz .,é\\/%{}[]\":\n")))
		before, after := around.Draw(rt, "before"), around.Draw(rt, "after")
		if text := before + after; s.Redact(text) != text {
			rt.Errorf("%q became %q", text, s.Redact(text))
		}
		spelled := secret
		if rapid.Bool().Draw(rt, "escaped") {
			spelled = ""
			for _, r := range secret {
				spelled += spellJSON(rt, r)
			}
		}
		// Escapes that end before the secret are not part of it.
		if got, want := s.Redact(before+" "+spelled+" "+after), before+" "+gone+" "+after; got != want {
			rt.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestSplittingATextIntoPartsHidesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		secrets := rapid.SliceOfN(secretTexts, 1, 3).Draw(rt, "secrets")
		s := handlers.NewSecrets(secrets)
		text, _ := spell(rt, rapid.SampledFrom(secrets).Draw(rt, "which"))
		var parts []events.Part
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(rt, "length")
			parts = append(parts, events.Part{Type: events.PartText, Text: rest[:n]})
			rest = rest[n:]
		}
		joined := ""
		for i, p := range s.RedactParts(parts) {
			joined += p.Text
			if cut := s.Redact(parts[i].Text); cut != parts[i].Text && p.Text == parts[i].Text {
				rt.Errorf("%q is left in one part", p.Text)
			}
		}
		if f := holds(secrets, joined); f != "" || !strings.Contains(joined, gone) {
			rt.Errorf("%q of %q holds %q", joined, text, f)
		}
	})
}

func FuzzNoFormOfASecretIsLeft(f *testing.F) {
	f.Add("hunter2-secret", "a hunter2-secret b", "%68unter2-secret")
	f.Add(`s3cr"et\value`, `{"a":"s3cr\"et\\value"}`, `\u0073`)
	f.Add("abcdef\\", `abcdef\\u0061bcdef\\`, "")
	f.Add("00+00 ", "0", "0")
	f.Add("redacted", "[redacted] redacted", "]")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		if len(secret) < handlers.MinSecret || !utf8.ValidString(secret) || strings.Trim(secret, " +") == "" || strings.Contains(gone, secret) || strings.Contains(secret, gone) {
			return
		}
		s := handlers.NewSecrets([]string{secret}, regexp.MustCompile(`sk-[a-z0-9]{8}`))
		for _, form := range formsOf(secret) {
			text := before + form + after
			once := s.Redact(text)
			if left := holds([]string{secret}, once); left != "" {
				t.Errorf("%q became %q, which holds %q", text, once, left)
			}
			if twice := s.Redact(once); twice != once {
				t.Errorf("%q became %q", once, twice)
			}
		}
		if text := before + after; !strings.Contains(text, gone) {
			if got := s.Redact(text); got != text && !strings.Contains(got, gone) {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}

// BenchmarkSecrets redacts a megabyte, with a thousand secrets of some ten forms.
func BenchmarkSecrets(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	secrets := make([]string, 1000)
	for i := range secrets {
		data := make([]byte, 15+random.IntN(15))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		secrets[i] = base64.RawURLEncoding.EncodeToString(data)
	}
	const size = 1 << 20
	data := make([]byte, size*3/4)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	sentence := "The printer on floor 3 is down, and no one answers the phone; please send somebody. "
	quoted, _ := json.Marshal(sentence + "\n")
	texts := map[string]string{
		"prose":  strings.Repeat(sentence, size/len(sentence)+1)[:size],
		"json":   strings.Repeat(string(quoted), size/len(quoted)+1)[:size],
		"base64": base64.StdEncoding.EncodeToString(data),
		"hits":   strings.Repeat(sentence+secrets[7]+" "+url.QueryEscape(secrets[9]), size/140)[:size],
	}
	b.Run("build", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			handlers.NewSecrets(secrets)
		}
	})
	s := handlers.NewSecrets(secrets)
	for _, name := range []string{"prose", "json", "base64", "hits"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				s.Redact(texts[name])
			}
		})
	}
}
