package events

import (
	"mime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/types"
)

const tooLong = "is longer than 4096 bytes: move it into the data"

// checkAttribute says why an event cannot have the attribute, or returns "".
func checkAttribute(name, value string) (reason string) {
	if reason := checkAttributeName(name); reason != "" {
		return reason
	}
	if len(value) > maxAttributeBytes {
		return tooLong
	}
	if reason := checkText(value); reason != "" {
		return reason
	}
	switch name {
	case "specversion":
		if value != "1.0" {
			return "must be 1.0"
		}
	case "id", "type", "subject":
		if value == "" {
			return "must not be empty"
		}
	case "source":
		if !isURIReference(value) {
			return "must be a URI or a path, with everything but ASCII percent-encoded"
		}
	case "dataschema":
		if uri := types.ParseURI(value); uri == nil || !uri.IsAbs() || !isURIReference(value) {
			return "must be an absolute URI"
		}
	case "datacontenttype":
		if !isMediaType(value) {
			return "must be a media type such as application/json"
		}
	}
	return ""
}

func checkAttributeName(name string) (reason string) {
	ok := 0 < len(name) && len(name) <= maxNameBytes && name != "data"
	for i := range len(name) {
		ok = ok && (isDigit(name[i]) || 'a' <= name[i] && name[i] <= 'z')
	}
	if !ok {
		return "has a name that is not allowed: use 1 to 20 characters of a-z and 0-9, and not data"
	}
	return ""
}

// checkText refuses what the String type of CloudEvents excludes.
func checkText(s string) (reason string) {
	if plainPrefix(s) == len(s) {
		return ""
	}
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if r < ' ' || 0x7f <= r && r <= 0x9f {
			return "has a control character"
		}
		if 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			return "has a code point that is not a character"
		}
	}
	return ""
}

// isURIReference leaves to the SDK only what is more than a path.
func isURIReference(s string) bool {
	structure := false
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || strings.IndexByte("-._~/?#!$&'()*+,;=", c) >= 0:
		case strings.IndexByte(":@[]%", c) >= 0:
			structure = true
		default:
			return false
		}
	}
	return s != "" && (!structure || types.ParseURIRef(s) != nil)
}

func isMediaType(s string) bool {
	if s == jsonType {
		return true
	}
	name, _, err := mime.ParseMediaType(s)
	return err == nil && strings.IndexByte(name, '/') > 0
}

// parseTime reads RFC 3339 and refuses what the time package takes beyond it,
// and what is no four-digit year in UTC.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || s[len("2006-01-02T15")] != ':' || strings.Contains(s, ",") {
		return time.Time{}, false
	}
	if !strings.HasSuffix(s, "Z") && (s[len(s)-5:len(s)-3] > "23" || s[len(s)-2:] > "59") {
		return time.Time{}, false
	}
	t = t.UTC()
	return t, 0 <= t.Year() && t.Year() <= 9999
}
