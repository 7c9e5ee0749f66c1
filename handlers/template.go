package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// URLTemplate is an absolute URL with placeholders {name} in its path and its
// query, as RFC 6570 level 1 has them. No value can change the host, add a
// segment to the path or a parameter to the query, or step up in the path.
type URLTemplate struct {
	parts []urlPart
}

// urlPart is a text and the placeholder after it, which the last part has not.
type urlPart struct {
	text, name string
	query      bool // the placeholder stands in the query
}

// maxURL bounds a template, and the URL that is made of it, in bytes.
const maxURL = 8 << 10

// ParseURLTemplate reads a template. The error says what is wrong with it.
func ParseURLTemplate(s string) (*URLTemplate, error) {
	if len(s) > maxURL {
		return nil, fmt.Errorf("must have at most %d bytes", maxURL)
	}
	t := &URLTemplate{}
	plain, query, rest := "", false, s
	for {
		text, after, found := strings.Cut(rest, "{")
		query = query || strings.Contains(text, "?")
		switch {
		case strings.Contains(text, "}"):
			return nil, errors.New("has a } without its {")
		case !isEncoded(text):
			return nil, errors.New("has a % without two hexadecimal digits")
		}
		plain += text
		if !found {
			t.parts = append(t.parts, urlPart{text: text})
			break
		}
		name, left, closed := strings.Cut(after, "}")
		if !closed || !isCapabilityName(name) || strings.Contains(name, ".") {
			return nil, errors.New("a placeholder must be a name of letters, digits and _ in braces, such as {id}")
		}
		if scheme, authority, _ := strings.Cut(plain, "://"); !strings.Contains(authority, "/") || scheme == plain {
			return nil, errors.New("placeholders may stand in the path and the query only, after the host and a /")
		}
		t.parts = append(t.parts, urlPart{text, name, query})
		plain += "x" // a value keeps its place
		rest = left
	}
	u, err := url.Parse(plain)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("must begin with https:// or http:// and a host")
	case !isPort(u.Port()):
		return nil, errors.New("must have a port from 1 to 65535, or none")
	case u.User != nil:
		return nil, errors.New("must not have a user or a password: use a header with a secret of the worker's configuration")
	case strings.Contains(plain, "#"):
		return nil, errors.New("must not have a fragment, which is never sent")
	case step(plain) > 0:
		return nil, errors.New("must not have the steps . and .. in its path, nor anything there that is percent-encoded over and over")
	case strings.ContainsAny(plain, " \t\r\n\"<>\\^`|") || !isASCII(plain):
		return nil, errors.New("must be ASCII, with other characters percent-encoded")
	}
	return t, nil
}

// step returns which segment of a URL's path, counted from 1, leads elsewhere than
// into itself, or 0.
func step(address string) int {
	_, rest, _ := strings.Cut(address, "://")
	path, _, _ := strings.Cut(rest, "?")
	for i, segment := range strings.Split(path, "/") {
		if i > 0 && isStep(segment) {
			return i
		}
	}
	return 0
}

// maxDecoded is how often a segment is decoded to see what it is.
const maxDecoded = 4

// isStep reports whether a segment may be a step to some server. Some decode a
// segment and resolve what comes of it, some of them more than once, take a backslash
// for a slash, strip white space, or cut off what follows one of endsSegment: no part
// may be . or .. to any of them. What is encoded more often than anybody decodes it is
// taken for a step.
func isStep(segment string) bool {
	for range maxDecoded + 1 {
		for part := range strings.FieldsFuncSeq(segment, func(r rune) bool { return r == '/' || r == '\\' }) {
			part = strings.TrimLeftFunc(part, isBlank)
			if end := strings.IndexFunc(part, endsSegment); end >= 0 {
				part = part[:end]
			}
			if part == "." || part == ".." {
				return true
			}
		}
		decoded := percentDecode(segment)
		if decoded == segment {
			return false
		}
		segment = decoded
	}
	return true
}

func isBlank(r rune) bool { return r <= ' ' || r == '\x7f' }

func endsSegment(r rune) bool { return isBlank(r) || r == ';' || r == '?' || r == '#' }

// percentDecode decodes what is percent-encoded and leaves a % that begins no
// encoding, as lenient servers do.
func percentDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// isEncoded reports whether each % of a text begins a whole percent-encoding, so that
// no value can end one.
func isEncoded(s string) bool {
	_, err := url.PathUnescape(s)
	return err == nil
}

// isPort accepts a port that can be dialled, and an absent one.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && n > 0
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Names returns the names of the placeholders, each once.
func (t *URLTemplate) Names() []string {
	var names []string
	for _, p := range t.parts {
		if p.name != "" && !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// Expand puts the members of an input into the URL and returns the members that
// have no place in it. Without placeholders the input may be any value, and is
// returned whole. The URL has at most 8 KiB. The error names a member and never its
// value.
func (t *URLTemplate) Expand(input json.RawMessage) (address string, rest json.RawMessage, err error) {
	if len(t.parts) == 1 {
		return t.parts[0].text, input, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(input, &members); err != nil || members == nil {
		return "", nil, errors.New("the input is no object, and the URL takes members of one")
	}
	left := maxURL // for the values
	for _, p := range t.parts {
		left -= len(p.text)
	}
	var b strings.Builder
	holds := make(map[int][]string) // the members by the segment of the path
	for _, p := range t.parts {
		b.WriteString(p.text)
		if p.name == "" {
			break
		}
		if !p.query {
			segment := strings.Count(b.String(), "/") - 2 // those of the scheme
			holds[segment] = append(holds[segment], p.name)
		}
		value, err := urlValue(members[p.name])
		if err != nil {
			return "", nil, fmt.Errorf("the input's %s %w", p.name, err)
		}
		if !p.query && value == "" {
			return "", nil, fmt.Errorf("the input's %s is empty, and would make the URL another one", p.name)
		}
		if len(value) <= left { // or encoding it is vain
			value = percentEncode(value)
		}
		if left -= len(value); left < 0 {
			return "", nil, fmt.Errorf("the input's %s makes the URL longer than %d bytes", p.name, maxURL)
		}
		b.WriteString(value)
	}
	if at := step(b.String()); at > 0 {
		return "", nil, fmt.Errorf("the input's %s would make a step, . or .., in the path, and the URL another one, or is percent-encoded over and over", strings.Join(holds[at], " and "))
	}
	for _, name := range t.Names() {
		delete(members, name)
	}
	rest, err = events.Marshal(members)
	return b.String(), rest, err
}

// urlValue returns a string as it is, a number and a boolean as JSON writes them.
func urlValue(raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0:
		return "", errors.New("is missing")
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case raw[0] == '{' || raw[0] == '[' || raw[0] == 'n':
		return "", errors.New("must be a string, a number or a boolean to stand in a URL")
	}
	return string(raw), nil
}

// percentEncode leaves the unreserved characters of RFC 3986 alone.
func percentEncode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// ExpandSecrets replaces each ${name} of a header's value. The error of an
// unknown form does not repeat the value, which may be a secret in the wrong
// place.
func ExpandSecrets(value string, secret func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for {
		text, after, found := strings.Cut(value, "${")
		b.WriteString(text)
		if !found {
			return b.String(), nil
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !isSecretName(name) {
			return "", errors.New("${…} must hold the name of a secret of the worker's configuration: letters, digits, _ and -")
		}
		s, err := secret(name)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
		value = rest
	}
}

func isSecretName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}
