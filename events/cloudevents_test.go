package events_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

var sameEvent = cmp.Options{cmpopts.EquateEmpty()}

func structuredHeader() map[string][]string {
	return map[string][]string{"content-type": {"application/cloudevents+json"}}
}

// with returns the headers of a small event, some changed; an empty value
// removes a header.
func with(pairs ...string) map[string][]string {
	h := map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(h, pairs[i])
		} else {
			h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
		}
	}
	return h
}

func TestHeader(t *testing.T) {
	e := events.Event{
		ID: `a "b" 100%`, Source: "/s", Type: "t", Subject: "grün 😀\x01", Revision: 7,
		Time: time.Date(2026, 1, 2, 3, 4, 5, 60, time.FixedZone("", 3600)), DataContentType: "application/json",
		Extra: map[string]string{"color": "~!"},
	}
	want := map[string][]string{
		"ce-specversion": {"1.0"}, "ce-id": {"a%20%22b%22%20100%25"}, "ce-source": {"/s"}, "ce-type": {"t"},
		"ce-subject": {"gr%C3%BCn%20%F0%9F%98%80%01"}, "ce-revision": {"7"}, "ce-time": {"2026-01-02T02:04:05.00000006Z"},
		"ce-datacontenttype": {"application/json"}, "ce-color": {"~!"},
	}
	if diff := cmp.Diff(want, e.Header()); diff != "" {
		t.Error(diff)
	}
	t.Run("adding to one header does not change another", func(t *testing.T) {
		h := e.Header()
		for name := range h {
			h[name] = append(h[name], "more")
		}
		for name, values := range want {
			if diff := cmp.Diff(append(values, "more"), h[name]); diff != "" {
				t.Error(diff)
			}
		}
	})
}

func TestDecodeBinary(t *testing.T) {
	small := events.Event{ID: "1", Source: "/s", Type: "t"}
	change := func(f func(*events.Event)) events.Event { e := small; f(&e); return e }
	for _, c := range []struct {
		promise string
		header  map[string][]string
		want    events.Event
	}{
		{"the required attributes are enough", with(), small},
		{"header names have any case", map[string][]string{"CE-SpecVersion": {"1.0"}, "Ce-Id": {"1"}, "cE-source": {"/s"}, "Ce-Type": {"t"}}, small},
		{"an unknown type is data", with("ce-type", "", "Ce-Type", "com.example.never.seen.v99"), change(func(e *events.Event) { e.Type = "com.example.never.seen.v99" })},
		{"an unknown attribute is kept", with("ce-Color", "blue"), change(func(e *events.Event) { e.Extra = map[string]string{"color": "blue"} })},
		{"content-type is the datacontenttype", with("Content-Type", "text/plain; charset=utf-8"), change(func(e *events.Event) { e.DataContentType = "text/plain; charset=utf-8" })},
		{"content-type may repeat datacontenttype", with("Content-Type", "a/b", "ce-datacontenttype", "a/b"), change(func(e *events.Event) { e.DataContentType = "a/b" })},
		{"traceparent is taken from the message", with("Traceparent", "00-1"), change(func(e *events.Event) { e.TraceParent = "00-1" })},
		{"the event's own traceparent wins", with("traceparent", "00-1", "ce-traceparent", "00-2"), change(func(e *events.Event) { e.TraceParent = "00-2" })},
		{"other headers are ignored", with("Nats-Msg-Id", "x", "id", "2", "cex-id", "3", "Nats-Expected-Last-Sequence", "\xff", "Authorization", "x"), small},
		{"a header without a value is absent", map[string][]string{"ce-specversion": {"1.0"}, "ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}, "ce-x": {}}, small},
		{"percent-encoding has any case", with("ce-subject", "%c3%A9%25%20"), change(func(e *events.Event) { e.Subject = "é% " })},
		{"percent-encoding is decoded once", with("ce-subject", "%2541"), change(func(e *events.Event) { e.Subject = "%41" })},
		{"older writers do not encode", with("ce-subject", `grün "x" b`), change(func(e *events.Event) { e.Subject = `grün "x" b` })},
		{"older writers quote", with("ce-subject", `"a \"b\" %41\\"`), change(func(e *events.Event) { e.Subject = `a "b" A\` })},
		{"a time of another zone is the same time", with("ce-time", "2026-01-02T03:04:05.5+01:00"), change(func(e *events.Event) { e.Time = time.Date(2026, 1, 2, 2, 4, 5, 5e8, time.UTC) })},
		{"a source may be a URN", with("ce-source", "", "ce-Source", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66"), change(func(e *events.Event) { e.Source = "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66" })},
		{"counters are numbers", with("ce-revision", "18446744073709551615", "ce-epoch", "2"), change(func(e *events.Event) { e.Revision, e.Epoch = 1<<64-1, 2 })},
		{"sixty-four attributes are accepted", many(60), change(func(e *events.Event) {
			e.Extra = map[string]string{}
			for i := range 60 {
				e.Extra[fmt.Sprint("x", i)] = "v"
			}
		})},
		{"a value may have 4 KiB, however encoded", with("ce-subject", strings.Repeat("%20", 4096)), change(func(e *events.Event) { e.Subject = strings.Repeat(" ", 4096) })},
	} {
		t.Run(c.promise, func(t *testing.T) {
			got, err := events.Decode(c.header, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameEvent); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("the data is not looked at", func(t *testing.T) {
		data := []byte("{\xff 1e400")
		got, err := events.Decode(with("content-type", "application/json"), data)
		if err != nil || !bytes.Equal(got.Data, data) {
			t.Errorf("%q, %v", got.Data, err)
		}
	})
}

func many(n int) map[string][]string {
	h := with()
	for i := range n {
		h[fmt.Sprint("ce-x", i)] = []string{"v"}
	}
	return h
}

func TestDecodeBinaryRefuses(t *testing.T) {
	for _, c := range []struct {
		promise   string
		header    map[string][]string
		attribute string
	}{
		{"a message that is no CloudEvent", nil, "specversion"},
		{"a missing specversion", with("ce-specversion", ""), "specversion"},
		{"another specversion", with("ce-specversion", "", "CE-specversion", "0.3"), "specversion"},
		{"a missing id", with("ce-id", ""), "id"},
		{"an empty id", map[string][]string{"ce-id": {""}}, "id"},
		{"a missing source", with("ce-source", ""), "source"},
		{"a missing type", with("ce-type", ""), "type"},
		{"an empty subject", map[string][]string{"ce-subject": {""}}, "subject"},
		{"an attribute with two values", with("ce-id", "2"), "id"},
		{"an attribute in two spellings", with("ce-ID", "1"), "id"},
		{"an attribute in two odd spellings", with("ce-Foo", "1", "Ce-foo", "1"), "foo"},
		{"two content types", with("content-type", "a/b", "Content-Type", "a/b"), ""},
		{"two structured content types", with("content-type", "application/cloudevents+json", "Content-Type", "a/b"), ""},
		{"two traceparents beside an envelope", map[string][]string{"content-type": {"application/cloudevents+json"}, "traceparent": {"00-1"}, "Traceparent": {"00-2"}}, ""},
		{"a content-type against the datacontenttype", with("content-type", "a/b", "ce-datacontenttype", "a/c"), "datacontenttype"},
		{"a datacontenttype that is no media type", with("ce-datacontenttype", "json"), "datacontenttype"},
		{"a time without zone", with("ce-time", "2026-01-02T03:04:05"), "time"},
		{"a time with a one-digit hour", with("ce-time", "2026-01-02T3:04:05Z"), "time"},
		{"a time with a decimal comma", with("ce-time", "2026-01-02T03:04:05,5Z"), "time"},
		{"a time with an offset of 24 hours", with("ce-time", "2026-01-02T03:04:05+24:00"), "time"},
		{"a time with an offset of 60 minutes", with("ce-time", "2026-01-02T03:04:05-01:60"), "time"},
		{"a date alone", with("ce-time", "2026-01-02"), "time"},
		{"a time before the year 0", with("ce-time", "0000-01-01T00:00:00+01:00"), "time"},
		{"a source with a space", with("ce-source", "", "Ce-Source", "a%20b"), "source"},
		{"a source that is not ASCII", with("ce-source", "", "Ce-Source", "/%C3%A9"), "source"},
		{"a source with a broken escape", with("ce-source", "", "Ce-Source", "/%25zz"), "source"},
		{"a source with a broken scheme", with("ce-source", "", "Ce-Source", "1a:b"), "source"},
		{"a relative dataschema", with("ce-dataschema", "/schema"), "dataschema"},
		{"a percent sign alone", with("ce-x", "100%"), "x"},
		{"a percent sign before one digit", with("ce-x", "%4"), "x"},
		{"a percent sign before other letters", with("ce-x", "%4g"), "x"},
		{"encoded bytes that are not UTF-8", with("ce-x", "%ff"), "x"},
		{"plain bytes that are not UTF-8", with("ce-x", "\xff"), "x"},
		{"a control character", with("ce-x", "%0A"), "x"},
		{"a C1 control character", with("ce-x", "%C2%85"), "x"},
		{"DEL", with("ce-x", "%7F"), "x"},
		{"a code point that is no character", with("ce-x", "%EF%BF%BF"), "x"},
		{"a name with a hyphen", with("ce-a-b", "x"), "a-b"},
		{"a name with an underscore", with("ce-data_base64", "x"), "data_base64"},
		{"an empty name", with("ce-", "x"), ""},
		{"a name that is not ASCII", with("ce-A\u212a", "x"), "a\u212a"},
		{"a name of 21 letters", with("ce-"+strings.Repeat("a", 21), "x"), strings.Repeat("a", 21)},
		{"an attribute named data", with("ce-data", "x"), "data"},
		{"a revision that is no number", with("ce-revision", "-1"), "revision"},
		{"an epoch beyond 64 bits", with("ce-epoch", "18446744073709551616"), "epoch"},
		{"the sixty-fifth attribute", many(61), ""},
		{"a value over 4 KiB", with("ce-x", strings.Repeat("a", 4097)), "x"},
		{"an encoded value over 4 KiB", with("ce-x", strings.Repeat("%20", 4097)), "x"},
		{"of two faults of one attribute always the same one", with("ce-X", "%", "ce-x", "%ff"), "x"},
		{"of two faults always the same one", with("ce-x", "%", "ce-a", "%", "ce-m", "%"), "a"},
	} {
		t.Run(c.promise+" is refused", func(t *testing.T) {
			if _, err := events.Decode(c.header, nil); true {
				wantEventError(t, err, c.attribute)
			}
		})
	}
}

func wantEventError(t *testing.T, err error, attribute string) {
	t.Helper()
	var e *events.EventError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *EventError", err)
	}
	if e.Attribute != attribute || e.Reason == "" {
		t.Errorf("got %q, want attribute %q: %v", e.Attribute, attribute, err)
	}
}

func TestEventErrorShowsNoValue(t *testing.T) {
	_, err := events.Decode(with("ce-revision", "hunter2"), nil)
	if got, want := err.Error(), `not a valid CloudEvent: attribute "revision" is not a whole number from 0 to 18446744073709551615`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	t.Run("a long name is cut", func(t *testing.T) {
		_, err := events.Decode(with("ce-"+strings.Repeat("é", 1000), "x"), nil)
		if n := len(err.Error()); n > 300 {
			t.Errorf("the message has %d bytes", n)
		}
	})
}

// attributeText draws what the String type of CloudEvents allows.
func attributeText(low int) *rapid.Generator[string] {
	character := rapid.Rune().Filter(func(r rune) bool {
		return r >= ' ' && (r < 0x7f || r > 0x9f) && (r < 0xfdd0 || r > 0xfdef) && r&0xfffe != 0xfffe
	})
	return rapid.StringOfN(character, low, 40, -1)
}

// anyEvent draws events that Decode accepts.
func anyEvent() *rapid.Generator[events.Event] {
	return rapid.Custom(func(t *rapid.T) events.Event {
		e := events.Event{
			ID:     attributeText(1).Draw(t, "id"),
			Source: rapid.SampledFrom([]string{"/s", "urn:x:y", "https://example.com/a%20b?c=d#e", "a/b", "//h:1/p", "mailto:a@b"}).Draw(t, "source"),
			Type:   attributeText(1).Draw(t, "type"),
		}
		optional := attributeText(0)
		for _, field := range []*string{
			&e.Subject, &e.Namespace, &e.Session, &e.Run, &e.ClaimID, &e.CommitID, &e.ContentHash, &e.ChainHash, &e.RootRun, &e.ParentRun,
			&e.CorrelationID, &e.CausationID, &e.TraceParent, &e.AuthType, &e.AuthID, &e.DataRef, &e.Encryption,
		} {
			*field = optional.Draw(t, "field")
		}
		e.Revision = rapid.Uint64().Draw(t, "revision")
		e.Epoch = rapid.Uint64().Draw(t, "epoch")
		if rapid.Bool().Draw(t, "has time") {
			e.Time = time.Unix(rapid.Int64Range(-60_000_000_000, 250_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 1e9-1).Draw(t, "ns")).UTC()
		}
		e.DataSchema = rapid.SampledFrom([]string{"", "https://example.com/schema#/a", "urn:a"}).Draw(t, "dataschema")
		e.DataContentType = rapid.SampledFrom([]string{"", "application/json", "text/plain; charset=utf-8", "application/x+json"}).Draw(t, "datacontenttype")
		e.Extra = rapid.MapOfN(rapid.StringMatching(`x[0-9][a-z0-9]{0,18}`), optional, 0, 20).Draw(t, "extra")
		if rapid.Bool().Draw(t, "data is JSON") {
			e.Data = bytes.TrimSpace(spell(t, jsonValue(2).Draw(t, "value")))
		} else {
			e.Data = rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		}
		return e
	})
}

func TestAnEventSurvivesItsHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		header := e.Header()
		for name, values := range header {
			if strings.Trim(values[0], "!#$&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~%") != "" {
				t.Fatalf("%s is not encoded: %q", name, values[0])
			}
		}
		got, err := events.Decode(header, e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got, sameEvent); diff != "" {
			t.Fatal(diff)
		}
		if e.Content() != got.Content() {
			t.Fatal("the content hash is another one")
		}
	})
}

// FuzzDecode holds that what Decode accepts survives both modes.
func FuzzDecode(f *testing.F) {
	f.Add("", "", "", []byte(envelope(`"data":{"a":[1e400]},"foo":1`)), true)
	f.Add("ce-subject", "%C3%A9%25", "application/json", []byte(`{}`), false)
	f.Add("Ce-Time", "2026-01-02T03:04:05.678+09:00", "a/b", []byte(nil), false)
	f.Add("ce-ID", "1", "", []byte("x"), false)
	f.Add("ce-epoch", `"1"`, "", []byte(envelope(`"data_base64":"AA=="`)), true)
	f.Add("ce-source", "urn:%41", "", []byte(envelope(`"time":null,"x":true`)), true)
	f.Fuzz(func(t *testing.T, name, value, contentType string, data []byte, structured bool) {
		header := with("ce-foo", "bar")
		header[name] = append(header[name], value)
		header["content-type"] = []string{contentType}
		if structured {
			header = structuredHeader()
		}
		e, err := events.Decode(header, data)
		if err != nil {
			if want := (*events.EventError)(nil); !errors.As(err, &want) {
				t.Fatalf("%v is no *EventError", err)
			}
			return
		}
		again, err := events.Decode(e.Header(), e.Data)
		if diff := cmp.Diff(e, again, sameEvent); err != nil || diff != "" {
			t.Fatalf("binary: %v %s", err, diff)
		}
		body, err := e.Structured()
		if err != nil {
			t.Fatal(err)
		}
		again, err = events.Decode(structuredHeader(), body)
		e.Data, again.Data = trimJSON(e.Data), trimJSON(again.Data)
		if diff := cmp.Diff(e, again, sameEvent); err != nil || diff != "" {
			t.Fatalf("structured: %v %s", err, diff)
		}
	})
}

// sampleFact is a fact as a session has many of.
func sampleFact() events.Event {
	return events.Event{
		ID: "s4kq2w8n6x0v1c3b5m7z-9hd2kf0a.000042", Source: "/agentruntime/acme", Type: "agent.fact.checkpoint.committed.v1", Subject: "s4kq2w8n6x0v1c3b5m7z",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC), DataContentType: "application/json",
		Namespace: "acme", Session: "s4kq2w8n6x0v1c3b5m7z", Run: "s4kq2w8n6x0v1c3b5m7z-9hd2kf0a", Revision: 421, Epoch: 3,
		ClaimID: "01JGK3Q4Z5X6V7B8N9M0", CommitID: "01JGK3Q4Z5X6V7B8N9M1", ContentHash: strings.Repeat("h", 43), ChainHash: strings.Repeat("c", 43),
		RootRun: "s4kq2w8n6x0v1c3b5m7z-9hd2kf0a", CorrelationID: "order-4711", CausationID: "s4kq2w8n6x0v1c3b5m7z-9hd2kf0a.000041",
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", AuthType: "user", AuthID: "jane@example.com",
		Data: sampleJSON,
	}
}

func BenchmarkHeader(b *testing.B) {
	e := sampleFact()
	b.ReportAllocs()
	for b.Loop() {
		e.Header()
	}
}

func BenchmarkDecode(b *testing.B) {
	e := sampleFact()
	header := e.Header()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := events.Decode(header, e.Data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStructured(b *testing.B) {
	e := sampleFact()
	body, err := e.Structured()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := events.Decode(structuredHeader(), body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContent(b *testing.B) {
	e := sampleFact()
	b.ReportAllocs()
	for b.Loop() {
		e.Content()
	}
}
