package openairesponses

import (
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

func inputText(text string) wire.Fields {
	return wire.Fields{}.With("type", "input_text").With("text", text)
}

// mapFiles returns the contents of the files that are sent: images, text as
// text, and all else as files.
func mapFiles(sent map[string][]byte, parts ...events.Part) (contents []wire.Fields) {
	for _, f := range wire.Files(sent, parts...) {
		switch {
		case f.Textual():
			contents = append(contents, inputText(f.Text()))
		case f.Image():
			contents = append(contents, wire.Fields{}.With("type", "input_image").With("detail", "auto").With("image_url", f.URL()))
		default:
			contents = append(contents, wire.Fields{}.With("type", "input_file").With("filename", f.NameOr("file")).With("file_data", f.URL()))
		}
	}
	return contents
}
