package executor

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dop251/goja"

	"github.com/agentruntime/agentruntime/events"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// attachName is the function by which a script adds a file to its result. Its
// calls are callbacks like any other, answered by the executor's host, so that
// what was answered is kept whatever becomes of the script. No capability can
// have the name.
const attachName = "attach"

// attachment is the input of such a callback.
type attachment struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type,omitempty"`
	Data      []byte `json:"data"` // base64
}

// attached is the size of the largest input of such a callback.
func (l limits) attached() int {
	return base64.StdEncoding.EncodedLen(l.File) + 6*l.Message + frameOverhead/2
}

// attach is that function.
func (r *realm) attach() *goja.Object { return r.caller(attachName, r.attachment) }

// attachment encodes the arguments of attach(name, data, mediaType).
func (r *realm) attachment(_ string, arguments []goja.Value) (string, *goja.Object) {
	refuse := func(format string, args ...any) (string, *goja.Object) {
		return "", r.newError(r.typeErrorClass, "attach(name, data, mediaType): "+fmt.Sprintf(format, args...))
	}
	if len(arguments) < 2 || len(arguments) > 3 {
		return refuse("it takes two or three arguments")
	}
	name, named := arguments[0].Export().(string)
	if !named || name == "" {
		return refuse("the name is no text, or empty")
	}
	a := attachment{Name: cut(name, r.limits.Message)}
	if len(arguments) == 3 && !goja.IsUndefined(arguments[2]) {
		mediaType, ok := arguments[2].Export().(string)
		if !ok {
			return refuse("the media type is no text")
		}
		a.MediaType = cut(mediaType, r.limits.Message/2)
	}
	data, err := bytesOf(arguments[1])
	switch {
	case err != nil:
		return refuse("%v", err)
	case len(data) > r.limits.File:
		return refuse("the file has %d bytes, more than %d", len(data), r.limits.File)
	}
	a.Data = data
	text, err := events.Marshal(a)
	if err != nil {
		return refuse("%v", err)
	}
	return string(text), nil
}

// bytesOf returns the bytes that a script gave.
func bytesOf(v goja.Value) ([]byte, error) {
	switch data := v.Export().(type) {
	case string:
		return []byte(data), nil
	case []byte:
		return data, nil
	case goja.ArrayBuffer:
		return data.Bytes(), nil
	case map[string]any:
		if encoded, ok := data["base64"].(string); ok && len(data) == 1 {
			decoded, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return nil, errors.New("base64 is not that")
			}
			return decoded, nil
		}
	}
	return nil, errors.New("the data is neither text nor a Uint8Array nor an ArrayBuffer nor {base64: text}")
}

// attaches reports whether a callback is one that adds a file.
func (r *run) attaches(f *frame) bool { return f.Name == attachName && r.script.Attach != nil }

// inputLimit is the size of the largest input of a callback.
func (r *run) inputLimit(f *frame) int {
	if r.attaches(f) {
		return r.limits.attached()
	}
	return r.limits.Input
}

// attach hands a file to the host.
func (r *run) attach(input json.RawMessage) error {
	var a attachment
	if err := json.Unmarshal(input, &a); err != nil {
		return fmt.Errorf("the file cannot be read: %w", err)
	}
	return r.script.Attach(loop.Attachment{Name: a.Name, MediaType: a.MediaType, Data: a.Data})
}
