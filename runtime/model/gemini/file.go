package gemini

import (
	"encoding/json"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// mapFiles returns the parts of the files that are sent. Those of a response
// stand after all responses of a content: a response itself may hold them with
// some models only.
func mapFiles(sent map[string][]byte, parts ...events.Part) (out []json.RawMessage) {
	for _, f := range wire.Files(sent, parts...) {
		mediaType := f.MediaType
		if f.Textual() {
			mediaType = "text/plain" // the API knows not every kind of text
		}
		data := wire.Fields{}.With("mimeType", mediaType).With("data", f.Base64())
		out = append(out, wire.Fields{}.WithJSON("inlineData", data.JSON()).JSON())
	}
	return out
}
