package events

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// structuredType begins the content-type of every message in structured mode.
const structuredType = "application/cloudevents"

// envelopeLimits leave room around data that has the default limits: for the
// attributes, for base64, and for the event's and the batch's own brackets.
var envelopeLimits = JSONLimits{MaxBytes: 24 << 20, MaxDepth: defaultJSONDepth + 2}

// structured reads the JSON envelope of a message.
func (d *eventDecoder) structured(data []byte) (Event, error) {
	format, _, _ := strings.Cut(d.contentType, ";")
	switch format = strings.ToLower(strings.TrimSpace(format)); {
	case strings.HasPrefix(format, structuredType+"-batch"):
		return Event{}, &EventError{Reason: "it is a batch: send each event as a message of its own"}
	case format != structuredType && format != structuredType+"+json":
		return Event{}, &EventError{Reason: "its format is not known: send application/cloudevents+json"}
	}
	*d = eventDecoder{traceParent: d.traceParent}
	s := newJSONScanner(data, envelopeLimits)
	token, err := s.next()
	if err != nil {
		return Event{}, notJSON(err)
	}
	if err := d.readEnvelope(&s, token); err != nil {
		return Event{}, err
	}
	if _, err := s.next(); err != nil {
		return Event{}, notJSON(err)
	}
	return d.event, nil
}

// DecodeBatch reads the events of a JSON batch. One event that is not valid
// refuses the batch; the error wraps an *EventError.
func DecodeBatch(data []byte) ([]Event, error) {
	s := newJSONScanner(data, envelopeLimits)
	token, err := s.next()
	if err != nil {
		return nil, notJSON(err)
	}
	if token.kind != '[' {
		return nil, &EventError{Reason: "a batch must be an array of events"}
	}
	var batch []Event
	for {
		if token, err = s.next(); err != nil {
			return nil, notJSON(err)
		}
		if token.kind == ']' {
			break
		}
		var d eventDecoder
		if err := d.readEnvelope(&s, token); err != nil {
			return nil, fmt.Errorf("event %d of the batch: %w", len(batch), err)
		}
		batch = append(batch, d.event)
	}
	if _, err := s.next(); err != nil {
		return nil, notJSON(err)
	}
	return batch, nil
}

func notJSON(err error) error { return &EventError{Reason: err.Error(), cause: err} }

// envelopeData is where an envelope has its data.
type envelopeData struct {
	kind byte   // of the first token; 0 when there is none
	text []byte // as it stands in the envelope
}

// readEnvelope reads one event of the JSON format; open is its first token.
func (d *eventDecoder) readEnvelope(s *jsonScanner, open jsonToken) error {
	if open.kind != '{' {
		return &EventError{Reason: "an event must be a JSON object"}
	}
	var inline, encoded envelopeData
	for {
		token, err := s.next()
		if err != nil {
			return notJSON(err)
		}
		if token.kind == '}' {
			break
		}
		name := string(s.key())
		if token, err = s.next(); err != nil {
			return notJSON(err)
		}
		end, err := s.skip(token)
		if err != nil {
			return notJSON(err)
		}
		value := envelopeData{token.kind, s.data[token.start:end]}
		switch {
		case name == "data":
			inline = value
		case name == "data_base64" && token.kind != 'n':
			encoded = value
		case name != "data_base64":
			if failure := d.setJSON(name, value); failure != nil {
				return failure
			}
		}
	}
	if failure := d.setData(inline, encoded); failure != nil {
		return failure
	}
	if failure := d.finish(); failure != nil {
		return failure
	}
	return nil
}

// setJSON gives an attribute the value of a JSON member. Null is no value; a
// boolean or integer becomes the string that CloudEvents defines for it.
func (d *eventDecoder) setJSON(name string, value envelopeData) *EventError {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema":
		if value.kind != '"' && value.kind != 'n' {
			return d.fail(name, "must be a JSON string")
		}
	}
	switch value.kind {
	case 'n':
		if reason := checkAttributeName(name); reason != "" {
			return d.fail(name, reason)
		}
		return nil
	case '"':
		return d.set(name, stringValue(value))
	case 't', 'f':
		return d.set(name, string(value.text))
	case '0':
		n, err := strconv.ParseInt(string(value.text), 10, 32)
		if err != nil {
			return d.fail(name, "must be a whole number from -2147483648 to 2147483647: send others as a string")
		}
		return d.set(name, strconv.FormatInt(n, 10))
	}
	return d.fail(name, "must be a string, a whole number or a boolean: move it into the data")
}

func stringValue(value envelopeData) string {
	raw := value.text[1 : len(value.text)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return string(unescapeJSON(nil, raw))
}

// setData takes the data from data or data_base64.
func (d *eventDecoder) setData(inline, encoded envelopeData) *EventError {
	e := &d.event
	switch {
	case inline.kind != 0 && encoded.kind != 0:
		return d.fail("data", "is there together with data_base64: send one of them")
	case encoded.kind != 0:
		if encoded.kind == '"' {
			if b, err := base64.StdEncoding.Strict().DecodeString(stringValue(encoded)); err == nil {
				e.Data = b
				return nil
			}
		}
		return d.fail("data_base64", "must be a string in base64 with padding")
	case inline.kind == 0:
		return nil
	}
	if e.DataContentType == "" {
		e.DataContentType = jsonType // what the JSON format implies
	}
	switch {
	case isJSONType(e.DataContentType):
		e.Data = inline.text
	case inline.kind == '"':
		e.Data = []byte(stringValue(inline))
	default:
		return d.fail("data", "must be a string, because datacontenttype is not JSON")
	}
	return nil
}

// Structured returns the event in the JSON format. Data that its content type
// says is JSON, and that is, stands in it as it is, without white space around
// it; all other data is in base64. An attribute that no reader would accept is
// an *EventError.
func (e *Event) Structured() ([]byte, error) {
	b := make([]byte, 0, 1024+len(e.Data))
	b = append(b, `{"specversion":"1.0"`...)
	for name, value := range e.Attributes {
		if reason := checkAttribute(name, value); reason != "" {
			return nil, (&eventDecoder{}).fail(name, reason)
		}
		b = append(b, `,"`...)
		b = append(b, name...)
		b = append(b, `":`...)
		b = appendJSONString(b, value)
	}
	switch {
	case isJSONType(e.DataContentType) && CheckJSON(e.Data, JSONLimits{}) == nil:
		b = append(b, `,"data":`...)
		b = append(b, bytes.TrimSpace(e.Data)...)
	case len(e.Data) > 0:
		b = append(b, `,"data_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.Data)
		b = append(b, '"')
	}
	return append(b, '}'), nil
}

// isJSONType reports whether data of the media type is JSON: */json or */*+json.
func isJSONType(s string) bool {
	name, _, _ := strings.Cut(s, ";")
	_, name, _ = strings.Cut(strings.ToLower(strings.TrimSpace(name)), "/")
	return name == "json" || strings.HasSuffix(name, "+json")
}
