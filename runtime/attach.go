package runtime

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Attachment is a file that a capability's answer or a script adds to the result
// of its run_js call.
type Attachment struct {
	Name      string // without folders; "file" when empty
	MediaType string // see MediaType
	Data      []byte
}

// The bounds of what one call may attach, in bytes.
const (
	MaxAttachments     = 16
	MaxAttachment      = 32 << 20
	MaxAttachmentBytes = 48 << 20 // of all of them together
)

// maxFileName is where the name of a file is cut, in bytes.
const maxFileName = 200

// NewFile returns the file part of bytes that are stored under a reference. The
// name loses its secrets while it is whole, and then its folders and what no name
// has; a media type with a secret in it is none.
func NewFile(r Redactor, ref, name, mediaType string, data []byte) events.Part {
	return events.Part{Type: events.PartFile, File: &events.File{Ref: ref, Name: fileName(r.Redact(name)), MediaType: redactMediaType(r, MediaType(mediaType, name, data)), Size: int64(len(data))}}
}

func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(path.Base(strings.ReplaceAll(name, `\`, "/")), "\uFFFD"))
	if name == "." || name == "/" {
		return "file"
	}
	if len(name) > maxFileName {
		name = strings.ToValidUTF8(name[:maxFileName], "")
	}
	return name
}

// RedactAttachment returns the bytes of a file as they are stored: redacted where
// it is text.
func RedactAttachment(r Redactor, name, mediaType string, data []byte) []byte {
	return redactData(r, MediaType(mediaType, name, data), data)
}

// taken is a file that was taken, and the index of the callback that it came with.
type taken struct {
	Attachment
	from int
}

// byScript is the index of a file that no callback came with.
const byScript = -1

// attach takes a file of the script, or of the one call, itself.
func (h *callbacks) attach(a Attachment) error { return h.take(byScript, a) }

// attacher takes the files that one callback's answer comes with.
func (h *callbacks) attacher(index int) func(Attachment) error {
	return func(a Attachment) error { return h.take(index, a) }
}

// take takes a file for the result of the call. What was taken stays, whatever
// becomes of the script.
func (h *callbacks) take(from int, a Attachment) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := len(a.Data)
	for _, other := range h.attached {
		total += len(other.Data)
	}
	switch {
	case h.loop.in.Files == nil:
		return errors.New("this host keeps no files")
	case len(h.attached) >= MaxAttachments:
		return fmt.Errorf("a call attaches at most %d files", MaxAttachments)
	case len(a.Data) > MaxAttachment:
		return fmt.Errorf("the file has %d bytes, at most %d may be attached", len(a.Data), MaxAttachment)
	case total > MaxAttachmentBytes:
		return fmt.Errorf("the files of a call have at most %d bytes together", MaxAttachmentBytes)
	}
	h.attached = append(h.attached, taken{a, from})
	return nil
}

// came returns the files that came with a callback.
func (h *callbacks) came(from int) (list []taken) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.attached {
		if t.from == from {
			list = append(list, t)
		}
	}
	return list
}

// keepFiles stores what the callbacks of a call attached, before the result that
// refers to it is committed.
func (l *loop) keepFiles(ctx context.Context, h *callbacks) error {
	h.mu.Lock()
	attached := slices.Clone(h.attached)
	h.mu.Unlock()
	parts, err := l.store(ctx, h.call, attached)
	if err == nil && len(parts) > 0 {
		l.keep(h.call, parts)
	}
	return err
}

// keep makes stored files part of the result of a call.
func (l *loop) keep(call string, parts []events.Part) {
	if l.attached == nil {
		l.attached = make(map[string][]events.Part)
	}
	l.attached[call] = parts
}

// store stores what was attached, redacted where it is text, and returns the file
// parts. A crash before these are committed leaves objects that nothing refers to.
func (l *loop) store(ctx context.Context, call string, attached []taken) (parts []events.Part, err error) {
	for _, a := range attached {
		mediaType := MediaType(a.MediaType, a.Name, a.Data)
		data := redactData(l.in.Redactor, mediaType, a.Data)
		ref, err := l.in.Files.Put(ctx, data)
		if err != nil {
			return nil, fmt.Errorf("store the file %q that call %s attached: %w", fileName(l.in.Redactor.Redact(a.Name)), call, err)
		}
		part := NewFile(l.in.Redactor, ref, a.Name, mediaType, data)
		if !slices.ContainsFunc(parts, func(p events.Part) bool { return *p.File == *part.File }) {
			parts = append(parts, part)
		}
	}
	return parts, nil
}
