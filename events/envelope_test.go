package events_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
)

// envelope returns a small event in the JSON format with more members.
func envelope(members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + members + `}`
}

func TestDecodeStructured(t *testing.T) {
	small := events.Event{ID: "1", Source: "/s", Type: "t"}
	change := func(f func(*events.Event)) events.Event { e := small; f(&e); return e }
	for _, c := range []struct {
		promise, body string
		want          events.Event
	}{
		{"the required attributes are enough", envelope(``), small},
		{"null is no value", envelope(`"subject":null,"time":null,"foo":null,"data_base64":null`), small},
		{"scalars become strings", envelope(`"a":true,"b":false,"c":-2147483648,"d":2147483647,"e":-0,"f":""`), change(func(e *events.Event) {
			e.Extra = map[string]string{"a": "true", "b": "false", "c": "-2147483648", "d": "2147483647", "e": "0", "f": ""}
		})},
		{"a counter may be a number", envelope(`"revision":7,"epoch":"4294967296"`), change(func(e *events.Event) { e.Revision, e.Epoch = 7, 1<<32 })},
		{"escapes are decoded", envelope(`"su\u0062ject":"\u00e9\ud83d\ude00\""`), change(func(e *events.Event) { e.Subject = `é😀"` })},
		{"percent is nothing special", envelope(`"subject":"100%"`), change(func(e *events.Event) { e.Subject = "100%" })},
		{"data without datacontenttype is JSON", envelope(`"data":"x"`), change(func(e *events.Event) { e.Data, e.DataContentType = []byte(`"x"`), "application/json" })},
		{"JSON data keeps its bytes", envelope(`"data": { "n" : [1e400, 1.0,0.10 ] } ,"datacontenttype":"application/vnd.x+json; v=1"`), change(func(e *events.Event) {
			e.Data, e.DataContentType = []byte(`{ "n" : [1e400, 1.0,0.10 ] }`), "application/vnd.x+json; v=1"
		})},
		{"null data is null", envelope(`"data":null`), change(func(e *events.Event) { e.Data, e.DataContentType = []byte("null"), "application/json" })},
		{"text data is its bytes", envelope(`"data":"<a>\u00e9\n","datacontenttype":"text/xml"`), change(func(e *events.Event) { e.Data, e.DataContentType = []byte("<a>é\n"), "text/xml" })},
		{"data_base64 is bytes", envelope(`"data_base64":"/wA\u003d","datacontenttype":"application/json"`), change(func(e *events.Event) { e.Data, e.DataContentType = []byte{0xff, 0}, "application/json" })},
		{"data may be as deep as JSON elsewhere", envelope(`"data":` + strings.Repeat("[", 128) + strings.Repeat("]", 128)), change(func(e *events.Event) {
			e.Data, e.DataContentType = []byte(strings.Repeat("[", 128)+strings.Repeat("]", 128)), "application/json"
		})},
	} {
		t.Run(c.promise, func(t *testing.T) {
			got, err := events.Decode(structuredHeader(), []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameEvent); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, contentType := range []string{"application/cloudevents", "Application/CloudEvents+JSON; charset=UTF-8"} {
		t.Run(contentType+" is structured mode", func(t *testing.T) {
			h := map[string][]string{"CONTENT-type": {contentType}, "ce-id": {"other"}, "ce-bad_name": {"\xff"}, "traceparent": {"00-1"}}
			got, err := events.Decode(h, []byte(envelope(``)))
			if want := change(func(e *events.Event) { e.TraceParent = "00-1" }); err != nil || !cmp.Equal(want, got, sameEvent) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestDecodeStructuredRefuses(t *testing.T) {
	for _, c := range []struct{ promise, body, attribute string }{
		{"a body that is not JSON", `{"specversion":"1.0",`, ""},
		{"an empty body", ``, ""},
		{"something after the event", envelope(``) + "x", ""},
		{"an array", `[]`, ""},
		{"a string", `"x"`, ""},
		{"a duplicate member", envelope(`"id":"1"`), ""},
		{"a duplicate key inside the data", envelope(`"data":{"a":1,"a":1}`), ""},
		{"data deeper than JSON elsewhere", envelope(`"data":` + strings.Repeat("[", 200) + strings.Repeat("]", 200)), ""},
		{"a lone surrogate", envelope(`"subject":"\ud800"`), ""},
		{"an empty object", `{}`, "specversion"},
		{"a specversion that is a number", `{"specversion":1.0}`, "specversion"},
		{"another specversion", `{"specversion":"1.1"}`, "specversion"},
		{"a missing id", `{"specversion":"1.0","source":"/s","type":"t"}`, "id"},
		{"a null id", `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`, "id"},
		{"an id that is a number", `{"specversion":"1.0","id":1,"source":"/s","type":"t"}`, "id"},
		{"a subject that is a boolean", envelope(`"subject":true`), "subject"},
		{"an empty subject", envelope(`"subject":""`), "subject"},
		{"an upper-case name", envelope(`"Foo":"x"`), "Foo"},
		{"a null with a bad name", envelope(`"foo-bar":null`), "foo-bar"},
		{"a fraction", envelope(`"foo":1.5`), "foo"},
		{"a whole number spelt as a fraction", envelope(`"foo":1.0`), "foo"},
		{"an exponent", envelope(`"foo":1e2`), "foo"},
		{"a huge exponent", envelope(`"foo":1e5000000`), "foo"},
		{"an integer beyond 32 bits", envelope(`"foo":2147483648`), "foo"},
		{"an integer below 32 bits", envelope(`"foo":-2147483649`), "foo"},
		{"an object as attribute", envelope(`"foo":{}`), "foo"},
		{"an array as attribute", envelope(`"foo":[1]`), "foo"},
		{"a control character", envelope(`"foo":"\u0000"`), "foo"},
		{"a malformed time", envelope(`"time":"yesterday"`), "time"},
		{"data together with data_base64", envelope(`"data":1,"data_base64":"AA=="`), "data"},
		{"null data together with data_base64", envelope(`"data":null,"data_base64":"AA=="`), "data"},
		{"base64 without padding", envelope(`"data_base64":"AA"`), "data_base64"},
		{"base64 that is no string", envelope(`"data_base64":[]`), "data_base64"},
		{"an object as text", envelope(`"data":{},"datacontenttype":"text/plain"`), "data"},
		{"null as text", envelope(`"data":null,"datacontenttype":"text/plain"`), "data"},
		{"a value over 4 KiB", envelope(`"foo":"` + strings.Repeat("a", 4097) + `"`), "foo"},
	} {
		t.Run(c.promise+" is refused", func(t *testing.T) {
			_, err := events.Decode(structuredHeader(), []byte(c.body))
			wantEventError(t, err, c.attribute)
		})
	}
	for _, contentType := range []string{"application/cloudevents-batch+json", "APPLICATION/cloudevents-batch", "application/cloudevents+xml", "application/cloudevents+protobuf", "application/cloudeventsx"} {
		t.Run(contentType+" is refused", func(t *testing.T) {
			_, err := events.Decode(map[string][]string{"content-type": {contentType}}, []byte(envelope(``)))
			wantEventError(t, err, "")
		})
	}
	t.Run("the reason of a body that is not JSON is a JSONError", func(t *testing.T) {
		_, err := events.Decode(structuredHeader(), []byte(envelope(`"data":{"a":[tru]}`)))
		var e *events.JSONError
		if !errors.As(err, &e) || e.Pointer != "/data/a/0" {
			t.Error(err)
		}
	})
}

func TestDecodeBatch(t *testing.T) {
	batch, err := events.DecodeBatch([]byte(" [ " + envelope(`"data":1`) + "," + envelope(`"subject":"x"`) + " ] "))
	want := []events.Event{
		{ID: "1", Source: "/s", Type: "t", DataContentType: "application/json", Data: []byte("1")},
		{ID: "1", Source: "/s", Type: "t", Subject: "x"},
	}
	if err != nil || !cmp.Equal(want, batch, sameEvent) {
		t.Errorf("%+v, %v", batch, err)
	}
	if batch, err := events.DecodeBatch([]byte(`[]`)); err != nil || len(batch) != 0 {
		t.Errorf("an empty batch: %v, %v", batch, err)
	}
	for promise, text := range map[string]string{
		"an event outside an array":   envelope(``),
		"a number in the array":       `[1]`,
		"one bad event":               `[` + envelope(``) + `,{"specversion":"1.0"}]`,
		"an array that does not end":  `[` + envelope(``),
		"something after the array":   `[]]`,
		"no text":                     ``,
		"a duplicate key in an event": `[` + envelope(`"a":"1","a":"1"`) + `]`,
	} {
		t.Run(promise+" refuses the batch", func(t *testing.T) {
			_, err := events.DecodeBatch([]byte(text))
			if e := (*events.EventError)(nil); !errors.As(err, &e) {
				t.Errorf("got %v, want an *EventError", err)
			}
		})
	}
}

func TestStructured(t *testing.T) {
	for _, c := range []struct {
		promise string
		event   events.Event
		want    string
	}{
		{"JSON data stands inline without the space around it", events.Event{ID: "1", Source: "/s", Type: "t", Revision: 1 << 40, DataContentType: "application/json", Data: []byte(" {\"n\": 1e400}\n")},
			`{"specversion":"1.0","datacontenttype":"application/json","id":"1","revision":"1099511627776","source":"/s","type":"t","data":{"n": 1e400}}`},
		{"data that is not the JSON it says is in base64", events.Event{ID: "1", Source: "/s", Type: "t", DataContentType: "application/json", Data: []byte("{")},
			`{"specversion":"1.0","datacontenttype":"application/json","id":"1","source":"/s","type":"t","data_base64":"ew=="}`},
		{"data of another type is in base64", events.Event{ID: "1", Source: "/s", Type: "t", DataContentType: "text/plain", Data: []byte("1")},
			`{"specversion":"1.0","datacontenttype":"text/plain","id":"1","source":"/s","type":"t","data_base64":"MQ=="}`},
		{"no data is no member", events.Event{ID: "1", Source: "/s", Type: "t", DataContentType: "application/json", Extra: map[string]string{"a": "\"<é"}},
			`{"specversion":"1.0","a":"\"<é","datacontenttype":"application/json","id":"1","source":"/s","type":"t"}`},
	} {
		t.Run(c.promise, func(t *testing.T) {
			got, err := c.event.Structured()
			if err != nil || string(got) != c.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
	t.Run("an attribute that no reader accepts is refused", func(t *testing.T) {
		for attribute, e := range map[string]events.Event{
			"subject":     {Subject: "\xff"},
			"specversion": {Extra: map[string]string{"specversion": "2"}},
			"a b":         {Extra: map[string]string{"a b": "x"}},
		} {
			_, err := e.Structured()
			wantEventError(t, err, attribute)
		}
	})
}

func TestAnEventSurvivesItsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		body, err := e.Structured()
		if err != nil {
			t.Fatal(err)
		}
		got, err := events.Decode(structuredHeader(), body)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(body, []byte(`"data":`)) {
			e.Data = trimJSON(e.Data)
		}
		if diff := cmp.Diff(e, got, sameEvent); diff != "" {
			t.Fatal(diff)
		}
		batch, err := events.DecodeBatch(slices.Concat([]byte("["), body, []byte(","), body, []byte("]")))
		if err != nil || !cmp.Equal([]events.Event{e, e}, batch, sameEvent) {
			t.Fatalf("%+v, %v", batch, err)
		}
	})
}

func trimJSON(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }

func TestTheSDKReadsWhatWeWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := anyEvent().Draw(t, "event")
		// The SDK trims what it validates, evaluates numbers in data, takes
		// JSON of other types for text, and knows no empty extension.
		e.DataContentType = "application/json"
		e.ID, e.Type, e.Subject = "i"+e.ID, "t"+e.Type, "s"+e.Subject
		e.Data = []byte(`{"a":[1,"é"]}`)
		maps.DeleteFunc(e.Extra, func(_, v string) bool { return v == "" })
		body, err := e.Structured()
		if err != nil {
			t.Fatal(err)
		}
		var theirs event.Event
		if err := json.Unmarshal(body, &theirs); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if err := theirs.Validate(); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if theirs.ID() != e.ID || theirs.Type() != e.Type || theirs.Subject() != e.Subject || !theirs.Time().Equal(e.Time) || string(theirs.Data()) != string(e.Data) {
			t.Fatalf("%s became %v", body, theirs)
		}
		for name, value := range e.Extra {
			if theirs.Extensions()[name] != value {
				t.Fatalf("%s is %v", name, theirs.Extensions()[name])
			}
		}
	})
}

func TestWeReadWhatTheSDKWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theirs := event.New()
		want := events.Event{
			ID: "i" + attributeText(0).Draw(t, "id"), Source: "https://example.com/s", Type: "t" + attributeText(0).Draw(t, "type"),
			Time: time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), 5e8).UTC(), Run: "r" + attributeText(0).Draw(t, "run"),
			Extra: map[string]string{"flag": "true", "count": fmt.Sprint(rapid.Int32().Draw(t, "count"))},
		}
		want.ID, want.Type = strings.TrimSpace(want.ID), strings.TrimSpace(want.Type) // as the SDK does
		theirs.SetID(want.ID)
		theirs.SetSource(want.Source)
		theirs.SetType(want.Type)
		theirs.SetTime(want.Time)
		theirs.SetExtension("run", want.Run)
		theirs.SetExtension("flag", true)
		theirs.SetExtension("count", json.Number(want.Extra["count"]).String())
		var err error
		switch rapid.IntRange(0, 3).Draw(t, "data") {
		case 1:
			want.DataContentType, want.Data = "application/json", []byte(`{"a":"é"}`)
			err = theirs.SetData(want.DataContentType, map[string]string{"a": "é"})
		case 2:
			want.DataContentType, want.Data = "text/plain", []byte("é\n")
			err = theirs.SetData(want.DataContentType, "é\n")
		case 3:
			want.DataContentType, want.Data = "application/octet-stream", []byte{0xff, 0}
			err = theirs.SetData(want.DataContentType, []byte{0xff, 0})
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := events.Decode(structuredHeader(), body)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got, sameEvent); diff != "" {
			t.Fatalf("%s\n%s", body, diff)
		}
	})
}
