package scripted

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// noticePrefix begins the ids of the user messages that the loop itself wrote.
const noticePrefix = "notice-"

// transcript is what a script can refer to: the newest message of a user and
// what follows it, and all results before.
type transcript struct {
	turn     int // messages of a user before the newest one
	position int // assistant messages after the user message
	message  *string
	results  []string
	all      []string // results, those before the user message included
}

func read(messages []events.Message) transcript {
	t := transcript{turn: -1}
	for _, m := range messages {
		switch m.Role {
		case events.RoleUser:
			if earlier, ok := runtime.Summarized(&m); ok {
				t.position += earlier
			} else if !strings.HasPrefix(m.ID, noticePrefix) {
				text := textOf(m.Parts)
				t = transcript{turn: t.turn + 1, message: &text, all: t.all}
			}
		case events.RoleAssistant:
			t.position++
		case events.RoleTool:
			for _, p := range m.Parts {
				if p.Result != nil {
					text := textOf(p.Result.Parts)
					t.results, t.all = append(t.results, text), append(t.all, text)
				}
			}
		}
	}
	t.turn = max(t.turn, 0)
	return t
}

func textOf(parts []events.Part) string {
	var text strings.Builder
	for _, p := range parts {
		if p.Type == events.PartText {
			text.WriteString(p.Text)
		}
	}
	return text.String()
}

// resolve returns what a string of a script refers to, and false if it is
// literal.
func (t transcript) resolve(s string) (json.RawMessage, bool) {
	switch {
	case s == "$message":
		return t.quoted(), true
	case s == "$results":
		return encode(append([]string{}, t.results...)), true
	case s == "$result":
		return t.newest(""), true
	case strings.HasPrefix(s, "$result/"):
		return t.newest(strings.TrimPrefix(s, "$result")), true
	case strings.HasPrefix(s, "$all/"):
		number, pointer, more := strings.Cut(strings.TrimPrefix(s, "$all/"), "/")
		if more {
			pointer = "/" + pointer
		}
		if i, ok := index(number, len(t.all)); ok {
			return value(t.all[i], pointer), true
		}
		return null, true
	}
	return nil, false
}

// quoted returns the user message as JSON.
func (t transcript) quoted() json.RawMessage {
	if t.message == nil {
		return null
	}
	return encode(*t.message)
}

// embed replaces what a string refers to in its midst.
func (t transcript) embed(s string) string {
	return strings.ReplaceAll(s, "${message}", string(t.quoted()))
}

var null = json.RawMessage("null")

func (t transcript) newest(pointer string) json.RawMessage {
	if len(t.results) == 0 {
		return null
	}
	return value(t.results[len(t.results)-1], pointer)
}

// value returns what a pointer finds in the text of a result.
func value(text, pointer string) json.RawMessage {
	if pointer == "" && !json.Valid([]byte(text)) {
		return encode(text)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text)); err != nil {
		return null
	}
	return at(compact.Bytes(), pointer)
}

// at follows a JSON pointer (RFC 6901) through the bytes themselves, which
// keeps numbers exact.
func at(value json.RawMessage, pointer string) json.RawMessage {
	if pointer == "" {
		return value
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, token := range strings.Split(pointer[1:], "/") {
		value = step(value, unescape.Replace(token))
	}
	return value
}

func step(value json.RawMessage, token string) json.RawMessage {
	var object map[string]json.RawMessage
	var array []json.RawMessage
	if json.Unmarshal(value, &object) == nil {
		if member, ok := object[token]; ok {
			return member
		}
	} else if json.Unmarshal(value, &array) == nil {
		if i, ok := index(token, len(array)); ok {
			return array[i]
		}
	}
	return null
}

// index reads the number of an element. Only one written in one way names it.
func index(token string, length int) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && strconv.Itoa(i) == token && i >= 0 && i < length
}

// encode keeps <, > and & as they are: code is full of them.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // only strings and lists of strings are encoded
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
