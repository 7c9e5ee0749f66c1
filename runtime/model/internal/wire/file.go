package wire

import (
	"encoding/base64"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Sent is a file whose bytes go with a request.
type Sent struct {
	*events.File
	Data []byte
}

// Files returns those of the parts whose bytes go with a request. Whatever an
// adapter makes of them, the words of the part stand before it.
func Files(sent map[string][]byte, parts ...events.Part) (files []Sent) {
	for _, p := range parts {
		if p.Type == events.PartFile && p.File != nil && len(sent[p.File.Ref]) > 0 {
			files = append(files, Sent{p.File, sent[p.File.Ref]})
		}
	}
	return files
}

// Textual reports whether the file is to be sent as text.
func (s Sent) Textual() bool { return runtime.IsTextual(s.MediaType) }

// Image reports whether the file is an image.
func (s Sent) Image() bool { return runtime.IsImage(s.MediaType) }

// Text returns the file as text.
func (s Sent) Text() string { return string(Valid(s.Data)) }

// Base64 returns the file in base64.
func (s Sent) Base64() string { return base64.StdEncoding.EncodeToString(s.Data) }

// URL returns the file as a data URL.
func (s Sent) URL() string { return "data:" + s.MediaType + ";base64," + s.Base64() }

// NameOr returns the file's name, or another one where it has none.
func (s Sent) NameOr(other string) string {
	if s.Name == "" {
		return other
	}
	return s.Name
}
