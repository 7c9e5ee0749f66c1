package events

import (
	"fmt"
	"strings"
)

// The codec follows the NATS binding and the JSON format of CloudEvents 1.0.
// It writes and reads the bytes itself, because the SDK's codecs for NATS do
// not percent-encode, and its JSON codec evaluates the numbers in data and
// takes members twice. URIs are the SDK's to judge.

const (
	maxAttributes     = 64      // of one event, specversion included
	maxAttributeBytes = 4 << 10 // of one value, decoded
	maxNameBytes      = 20
	jsonType          = "application/json"
)

// EventError says what is wrong with an event and what its sender has to do.
// It shows names of attributes, never values.
type EventError struct {
	Attribute string // "" is the event as a whole
	Reason    string
	cause     error
}

func (e *EventError) Error() string {
	if e.Attribute == "" {
		return "not a valid CloudEvent: " + e.Reason
	}
	return fmt.Sprintf("not a valid CloudEvent: attribute %q %s", e.Attribute, e.Reason)
}

// Unwrap returns the *JSONError of an envelope that is not JSON.
func (e *EventError) Unwrap() error { return e.cause }

// headerNames holds the header of every entry of attributes, at its index.
var headerNames = func() []string {
	names := make([]string, len(attributes))
	for i, a := range attributes {
		names[i] = "ce-" + a.name
	}
	return names
}()

// Header returns the event's attributes as the headers of a NATS message in
// binary mode; the data is the message's payload as it is. The caller owns the
// map.
func (e *Event) Header() map[string][]string {
	values := make([]string, len(attributes)+1+len(e.Extra))
	size := 1 + len(e.Extra)
	for i, a := range attributes {
		if values[i] = a.get(e); values[i] != "" {
			size++
		}
	}
	header := make(map[string][]string, size)
	put := func(i int, name, value string) {
		values[i] = encodeHeader(value)
		header[name] = values[i : i+1 : i+1]
	}
	for i, name := range headerNames {
		if values[i] != "" {
			put(i, name, values[i])
		}
	}
	i := len(attributes)
	put(i, "ce-specversion", "1.0")
	for name, value := range e.Extra {
		i++
		put(i, "ce-"+name, value)
	}
	return header
}

// isPlain reports whether a byte stands for itself in a header: printable
// ASCII but space, double quote and percent.
func isPlain(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }

// plainPrefix returns how many bytes at the beginning of s are plain.
func plainPrefix(s string) (n int) {
	for n < len(s) && isPlain(s[n]) {
		n++
	}
	return n
}

// encodeHeader percent-encodes the UTF-8 of all that is not plain.
func encodeHeader(value string) string {
	n := plainPrefix(value)
	if n == len(value) {
		return value
	}
	b := make([]byte, n, len(value)+32)
	copy(b, value)
	for i := n; i < len(value); i++ {
		if c := value[i]; isPlain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return string(b)
}

// decodeHeader is the reverse of encodeHeader. It also takes values in double
// quotes and values that were not encoded, which older writers send.
func decodeHeader(value string) (decoded, reason string) {
	if plainPrefix(value) == len(value) {
		return value, ""
	}
	const bad = "has a percent sign without two hexadecimal digits: write a percent sign as %25"
	quoted := len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"'
	if quoted {
		value = value[1 : len(value)-1]
	}
	b := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case quoted && c == '\\' && i+1 < len(value):
			i++
			c = value[i]
		case c == '%':
			if i+2 >= len(value) {
				return "", bad
			}
			high, ok1 := fromHex(value[i+1])
			low, ok2 := fromHex(value[i+2])
			if !ok1 || !ok2 {
				return "", bad
			}
			c = high<<4 | low
			i += 2
		}
		b = append(b, c)
	}
	return string(b), ""
}

// Decode reads one event from a NATS message. A message whose content-type
// begins with application/cloudevents is in structured mode, every other one
// in binary mode. Of the headers only ce-*, content-type and traceparent are
// read, their names in any case; all others are ignored, Nats-* among them.
//
// The error is an *EventError. A type that is not known is no error. The
// event's data is part of the data given, not a copy, byte for byte.
func Decode(header map[string][]string, data []byte) (Event, error) {
	var d eventDecoder
	failure := d.readHeader(header)
	if d.ambiguous != nil {
		return Event{}, d.ambiguous
	}
	if len(d.contentType) >= len(structuredType) && strings.EqualFold(d.contentType[:len(structuredType)], structuredType) {
		return d.structured(data)
	}
	if failure != nil {
		return Event{}, failure
	}
	if d.contentType != "" && d.event.DataContentType == "" {
		failure = d.set("datacontenttype", d.contentType)
	} else if d.contentType != "" && d.contentType != d.event.DataContentType {
		failure = d.fail("datacontenttype", "is not the content-type of the message: send one of them")
	}
	if failure == nil {
		failure = d.finish()
	}
	if failure != nil {
		return Event{}, failure
	}
	d.event.Data = data
	return d.event, nil
}

// eventDecoder collects one event.
type eventDecoder struct {
	event       Event
	specVersion bool // has been seen
	count       int  // of attributes

	contentType string // of the message, when it has one
	traceParent string
	ambiguous   *EventError         // the message has one of these two twice
	spelled     map[string]struct{} // attributes whose header name is not lower-case
}

func (d *eventDecoder) fail(attribute, reason string) *EventError {
	if len(attribute) > 2*maxNameBytes {
		attribute = strings.ToValidUTF8(attribute[:2*maxNameBytes], "") + "…"
	}
	return &EventError{Attribute: attribute, Reason: reason}
}

// readHeader reads all attributes of binary mode and what the message says
// beside them, and returns what is wrong with the attributes.
func (d *eventDecoder) readHeader(header map[string][]string) (failure *EventError) {
	for key, values := range header {
		if len(values) == 0 {
			continue
		}
		switch name, isAttribute := attributeOf(key); {
		case isAttribute:
			failure = firstOf(failure, d.readAttribute(header, key, name, values))
		case len(key) == len("content-type") && strings.EqualFold(key, "content-type"):
			d.readOnce(&d.contentType, "content-type", values)
		case len(key) == len("traceparent") && strings.EqualFold(key, "traceparent"):
			d.readOnce(&d.traceParent, "traceparent", values)
		}
	}
	return failure
}

// firstOf returns the error that sorts first, so that a message with several
// faults always gets the same answer, whatever the order of its headers.
func firstOf(a, b *EventError) *EventError {
	if a == nil || b != nil && (b.Attribute < a.Attribute || b.Attribute == a.Attribute && b.Reason < a.Reason) {
		return b
	}
	return a
}

// attributeOf returns the lower-case attribute name that a header stands for.
func attributeOf(key string) (name string, ok bool) {
	if len(key) < 3 || key[0]|0x20 != 'c' || key[1]|0x20 != 'e' || key[2] != '-' {
		return "", false
	}
	name = key[3:]
	if strings.IndexFunc(name, isUpper) < 0 {
		return name, true
	}
	lower := []byte(name)
	for i, c := range lower {
		if isUpper(rune(c)) {
			lower[i] = c + 'a' - 'A'
		}
	}
	return string(lower), true
}

// isUpper knows ASCII only: strings.ToLower makes a k of the Kelvin sign.
func isUpper(r rune) bool { return 'A' <= r && r <= 'Z' }

func (d *eventDecoder) readAttribute(header map[string][]string, key, name string, values []string) *EventError {
	const twice = "is there twice: send each attribute once"
	if len(values) > 1 {
		return d.fail(name, twice)
	}
	if key[:2] != "ce" || key[3:] != name {
		_, plain := header["ce-"+name]
		_, other := d.spelled[name]
		if plain || other {
			return d.fail(name, twice)
		}
		if d.spelled == nil {
			d.spelled = make(map[string]struct{})
		}
		d.spelled[name] = struct{}{}
	}
	if len(values[0]) > 3*maxAttributeBytes {
		return d.fail(name, tooLong)
	}
	value, reason := decodeHeader(values[0])
	if reason != "" {
		return d.fail(name, reason)
	}
	return d.set(name, value)
}

func (d *eventDecoder) readOnce(field *string, name string, values []string) {
	if len(values) > 1 || *field != "" {
		d.ambiguous = firstOf(d.ambiguous, &EventError{Reason: "the message has two headers " + name + ": send one"})
	}
	*field = values[0]
}

// set gives an attribute its value, which is decoded.
func (d *eventDecoder) set(name, value string) *EventError {
	if d.count++; d.count > maxAttributes {
		return &EventError{Reason: "it has more than 64 attributes: move some into the data"}
	}
	if reason := checkAttribute(name, value); reason != "" {
		return d.fail(name, reason)
	}
	switch name {
	case "specversion":
		d.specVersion = true
		return nil
	case "time":
		t, ok := parseTime(value)
		if !ok {
			return d.fail(name, "is not a time of RFC 3339 such as 2006-01-02T15:04:05Z")
		}
		d.event.Time = t
		return nil
	}
	if d.event.Set(name, value) != nil {
		return d.fail(name, "is not a whole number from 0 to 18446744073709551615")
	}
	return nil
}

// finish makes sure that nothing required is missing.
func (d *eventDecoder) finish() *EventError {
	switch {
	case !d.specVersion:
		return d.fail("specversion", "is missing: send the attributes as headers ce-specversion, ce-id, ce-source and ce-type, or an envelope with content-type application/cloudevents+json")
	case d.event.ID == "":
		return d.fail("id", "is missing: send one that is unique for the source")
	case d.event.Source == "":
		return d.fail("source", "is missing: send a URI or a path that names the sender")
	case d.event.Type == "":
		return d.fail("type", "is missing: send the name of the command or event")
	case d.event.TraceParent == "" && d.traceParent != "":
		return d.set("traceparent", d.traceParent)
	}
	return nil
}
