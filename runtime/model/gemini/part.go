package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/agentruntime/agentruntime/events"
)

// fields are those of a JSON object.
type fields map[string]json.RawMessage

// kept is what a part carries for this adapter, under Part.Provider: all of the
// API's part but what the part itself says, so that a redactor sees all text.
type kept struct {
	Part fields `json:"part,omitempty"` // all but the text and the call
	Call fields `json:"call,omitempty"` // of the call, all but the name and the arguments
	Bare bool   `json:"bare,omitempty"` // there was no text, or the call had no arguments
}

// readPart takes a part of a response over. A part of a kind that was not asked
// for becomes an empty text that is handed back as it came.
func readPart(data json.RawMessage) (p events.Part, k kept, err error) {
	if json.Unmarshal(data, &k.Part) != nil || k.Part == nil {
		return p, k, errors.New("a part is no object")
	}
	if call, ok := k.Part.take("functionCall"); ok {
		if json.Unmarshal(call, &k.Call) != nil {
			return p, k, errors.New("a function call is no object")
		}
		p.Type, p.Call = events.PartToolCall, new(events.ToolCall)
		if name, ok := k.Call.take("name"); ok && json.Unmarshal(name, &p.Call.Name) != nil {
			return p, k, errors.New("the name of a function call is no string")
		}
		if id := k.Call["id"]; present(id) && json.Unmarshal(id, &p.Call.ID) != nil {
			return p, k, errors.New("the id of a function call is no string")
		}
		if args, ok := k.Call.take("args"); ok {
			p.Call.Arguments = args
		} else {
			k.Bare = true
		}
		return p, k, nil
	}
	p.Type = events.PartText
	if k.thought() {
		p.Type = events.PartReasoning
	}
	if text, ok := k.Part.take("text"); !ok {
		k.Bare = true
	} else if json.Unmarshal(text, &p.Text) != nil {
		return p, k, errors.New("the text of a part is no string")
	}
	return p, k, nil
}

// take removes a field and returns it, unless it is missing or null.
func (f fields) take(name string) (json.RawMessage, bool) {
	value := f[name]
	if !present(value) {
		return nil, false
	}
	delete(f, name)
	return value, true
}

func present(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

func (k kept) thought() bool { return string(k.Part["thought"]) == "true" }

// plain reports whether there is nothing but text, so that the next piece of it
// may be joined. A part with a signature is never joined with another.
func (k kept) plain() bool {
	others := len(k.Part)
	if _, ok := k.Part["thought"]; ok {
		others--
	}
	return !k.Bare && k.Call == nil && others == 0
}

// provider returns what a part carries. Plain text carries nothing; a call
// carries at least that it is the API's own.
func (k kept) provider(p events.Part) (map[string]json.RawMessage, error) {
	if p.Call == nil && len(k.Part) == 0 && !k.Bare {
		return nil, nil
	}
	data, err := events.Marshal(k)
	if err == nil {
		err = events.CheckJSON(data, events.JSONLimits{})
	}
	if err != nil {
		return nil, fmt.Errorf("a part cannot be stored: %w", err)
	}
	return map[string]json.RawMessage{Provider: data}, nil
}

// keptIn returns what a part carries, and whether it is the API's own.
func keptIn(p events.Part) (k kept, own bool, err error) {
	data, own := p.Provider[Provider]
	if !own {
		return k, false, nil
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return k, true, fmt.Errorf("what the adapter keeps on a part: %w", err)
	}
	return k, true, nil
}

// foreignSignature stands in for the signature of a call that another provider's
// model made. The API names it for this purpose.
const foreignSignature = `"skip_thought_signature_validator"`

// mapText returns a part with text of a model's content, or nil for one that the
// API has no place for.
func mapText(p events.Part) (json.RawMessage, error) {
	k, own, err := keptIn(p)
	if err != nil {
		return nil, err
	}
	if !own && (p.Text == "" || p.Type == events.PartReasoning) {
		return nil, nil
	}
	part := fields{}
	maps.Copy(part, k.Part)
	if !k.Bare || p.Text != "" {
		part["text"] = quote(p.Text)
	}
	return events.Marshal(part)
}

// mapCall returns the part of a call. The first call of a content needs a
// signature; of one that came from the API, it is the API's to have given it.
func mapCall(p events.Part, first bool) (json.RawMessage, openCall, error) {
	k, own, err := keptIn(p)
	if err != nil {
		return nil, openCall{}, err
	}
	part, call := fields{}, fields{}
	maps.Copy(part, k.Part)
	maps.Copy(call, k.Call)
	call["name"] = quote(p.Call.Name)
	if !own {
		if p.Call.ID != "" {
			call["id"] = quote(p.Call.ID)
		}
		if first {
			part["thoughtSignature"] = json.RawMessage(foreignSignature)
		}
	}
	arguments := argumentsOf(p.Call.Arguments)
	if !k.Bare || string(arguments) != "{}" {
		call["args"] = arguments
	}
	if part["functionCall"], err = events.Marshal(call); err != nil {
		return nil, openCall{}, err
	}
	data, err := events.Marshal(part)
	return data, openCall{id: p.Call.ID, name: p.Call.Name, wireID: call["id"]}, err
}

// argumentsOf returns arguments as an object, which is all the API takes. Those
// that the runtime found unacceptable are stored as a JSON string of what the
// model wrote, and unpacked here; what never was an object is put into one.
func argumentsOf(stored json.RawMessage) json.RawMessage {
	arguments := stored
	var text string
	if len(stored) > 0 && stored[0] == '"' && json.Unmarshal(stored, &text) == nil {
		arguments = json.RawMessage(text)
	}
	var object fields
	switch {
	case len(stored) == 0:
		return json.RawMessage("{}")
	case json.Unmarshal(arguments, &object) == nil && object != nil:
		return arguments
	case json.Valid(stored):
		return json.RawMessage(`{"arguments":` + string(stored) + `}`)
	}
	return json.RawMessage(`{"arguments":` + string(quote(string(stored))) + `}`)
}

func quote(text string) json.RawMessage {
	data, err := events.Marshal(text)
	if err != nil {
		panic(err) // a string is always written
	}
	return data
}
