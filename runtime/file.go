package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentruntime/agentruntime/events"
)

// Files keeps the bytes that file parts refer to. A transcript holds references
// only; the bytes are read when a request is made.
type Files interface {
	// Put stores bytes and returns their reference. To store the same bytes
	// again is harmless. The caller keeps the slice.
	Put(ctx context.Context, data []byte) (ref string, err error)

	// Open returns the bytes of a file, which belong to the caller. It wraps
	// ErrFileGone when there are none any more, and is a *FileDamagedError
	// when there are others; any other error may pass.
	Open(ctx context.Context, f *events.File) ([]byte, error)
}

// ErrFileGone means that the bytes of a file are not kept any more. The model is
// told so in their place.
var ErrFileGone = errors.New("the file is gone")

// FileDamagedError reports stored bytes that are not those that a file's
// reference names. The run has failed: what is wrong with the store is wrong
// for every attempt.
type FileDamagedError struct {
	File events.File
	Err  error
}

func (e *FileDamagedError) Error() string {
	return fmt.Sprintf("the file %q (%s) cannot be sent to the model, since its stored bytes are damaged: restore them and retry the run: %v", e.File.Name, e.File.Ref, e.Err)
}

func (e *FileDamagedError) Unwrap() error { return e.Err }

// FileLimits are which files a model takes, and how many bytes of them. Sizes
// are those of the files; what an API's encoding adds is the limits' to leave
// room for.
type FileLimits struct {
	Types    []string // media types, or image/* for all images; none: every file is described in words
	MaxImage int64    // of an image; 0: MaxFile
	MaxFile  int64    // of any other file; 0: no bound
	MaxTotal int64    // of all files of a request; 0: no bound
}

// Takes reports whether the model takes files of a media type.
func (l *FileLimits) Takes(mediaType string) bool {
	return slices.ContainsFunc(l.Types, func(pattern string) bool {
		begins, open := strings.CutSuffix(pattern, "*")
		return pattern == mediaType || open && strings.HasPrefix(mediaType, begins)
	})
}

// most returns the size of the largest file of a media type that the model takes.
func (l *FileLimits) most(mediaType string) int64 {
	if IsImage(mediaType) && l.MaxImage > 0 {
		return l.MaxImage
	}
	return l.MaxFile
}

// IsImage reports whether a media type is that of an image.
func IsImage(mediaType string) bool { return strings.HasPrefix(mediaType, "image/") }

// IsTextual reports whether files of a media type are text: they are redacted,
// and sent as text. All others are sent as they are.
func IsTextual(mediaType string) bool {
	return strings.HasPrefix(mediaType, "text/") || mediaType == "application/json"
}

// What files are estimated to have, in tokens. No provider tells before a
// request, and each counts in its own way: an image has at most about 1600 with
// any of them, of text a token is four bytes, and of anything else (pages, sound)
// a hundred bytes are taken for a token.
const (
	imageTokens   = 1600
	bytesPerToken = 100
)

// FileTokens estimates the tokens of a file that is sent with a request.
func FileTokens(f *events.File) int64 {
	switch {
	case IsImage(f.MediaType):
		return imageTokens
	case IsTextual(f.MediaType):
		return (f.Size + 3) / 4
	}
	return max(imageTokens, f.Size/bytesPerToken)
}

// What all files of a request may be: half of the context, and a number that
// every provider takes.
const (
	filesPart  = 2
	filesCount = 50
)

// chooser decides what of the files of a window goes with a request: a function
// of the window, of the limits and of which files are known to be gone. Of files
// that are more than a request may have, the oldest go first; one that no request
// may have makes no other go. Each that goes is named in words where it stood.
type chooser struct {
	limits *FileLimits
	words  bool  // a request with files was refused
	most   int64 // tokens that all may have
	tokens int64 // that are left
	count  int
	bytes  int64
	gone   map[string]bool
	chosen map[string][]byte
}

// choose returns the files to send, by reference and without their bytes yet.
// The parts of the messages are the caller's and are changed.
func (l *loop) choose(messages []events.Message) map[string][]byte {
	limits := &l.in.ModelLimits
	if l.in.Files == nil || len(limits.Files.Types) == 0 {
		return nil
	}
	most := limits.ContextTokens / filesPart
	c := chooser{limits: &limits.Files, words: l.inWords, most: most, tokens: most, gone: l.gone, chosen: make(map[string][]byte)}
	for _, m := range slices.Backward(messages) {
		if m.Role != events.RoleAssistant {
			c.walk(m.Parts)
		}
	}
	return c.chosen
}

func (c *chooser) walk(parts []events.Part) {
	for i, p := range slices.Backward(parts) {
		if p.Result != nil {
			c.walk(p.Result.Parts)
		}
		if p.Type != events.PartFile || p.File == nil || p.File.Size <= 0 || !c.limits.Takes(p.File.MediaType) {
			continue
		}
		if why := c.refuse(p.File); why != "" {
			parts[i] = events.Part{Type: events.PartText, Text: Describe(p.File, why)}
		}
	}
}

// refuse says why a file is not sent, or takes it.
func (c *chooser) refuse(f *events.File) string {
	most := c.limits.most(f.MediaType)
	switch {
	case c.gone[f.Ref]:
		return "it is gone"
	case most > 0 && f.Size > most:
		return fmt.Sprintf("it is not shown, since the model takes at most %d bytes", most)
	case c.limits.MaxTotal > 0 && f.Size > c.limits.MaxTotal:
		return fmt.Sprintf("it is not shown, since the files of a request have at most %d bytes together", c.limits.MaxTotal)
	case FileTokens(f) > c.most:
		return fmt.Sprintf("it is not shown, since it has about %d tokens, and the files of a request have at most %d together", FileTokens(f), c.most)
	case c.words:
		return "it is not shown, since the provider refused a request with files"
	}
	c.bytes, c.tokens, c.count = c.bytes+f.Size, c.tokens-FileTokens(f), c.count+1
	if c.limits.MaxTotal > 0 && c.bytes > c.limits.MaxTotal || c.tokens < 0 || c.count > filesCount {
		return "it is not shown any more, to make room for newer files"
	}
	c.chosen[f.Ref] = nil
	return ""
}

// refusesFiles reports whether the provider refused a request that may be valid
// without its files: what only begins like an image, or has too many pages, is
// found by nobody else. A model that is not known is that without them too.
func refusesFiles(r *Request, err error) bool {
	const notFound = 404
	var refused *ModelError
	return len(r.Files) > 0 && errors.As(err, &refused) && refused.Class == ClassInvalid && refused.Status != 0 && refused.Status != notFound
}

// Describe returns a file in words: what stands for one that a model does not
// get, with the reason if there is more to say.
func Describe(f *events.File, why string) string {
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("[file %q, %s, %d bytes, reference %s%s]", f.Name, f.MediaType, f.Size, f.Ref, why)
}

// open reads the files that go with a request. It reports whether some turned
// out to be gone: then the request is another one.
func (l *loop) open(ctx context.Context, r *Request) (gone bool, err error) {
	kept := l.opened
	l.opened = make(map[string][]byte, len(r.Files))
	for i := range r.Messages {
		for _, f := range filesOf(r.Messages[i].Parts) {
			if data, sent := r.Files[f.Ref]; !sent || data != nil {
				continue
			}
			data, known := kept[f.Ref]
			if !known {
				if data, err = l.in.Files.Open(ctx, f); errors.Is(err, ErrFileGone) {
					if l.gone == nil {
						l.gone = make(map[string]bool)
					}
					l.gone[f.Ref], gone = true, true
					continue
				}
				if err != nil {
					return false, fmt.Errorf("open the file %q: %w", f.Name, err)
				}
				data = redactData(l.in.Redactor, f.MediaType, data)
			}
			l.opened[f.Ref], r.Files[f.Ref] = data, data
		}
	}
	return gone, nil
}

// redactData redacts the bytes of a textual file; others are not searched.
func redactData(r Redactor, mediaType string, data []byte) []byte {
	if !IsTextual(mediaType) {
		return data
	}
	return []byte(redactText(r, string(bytes.ToValidUTF8(data, []byte("\uFFFD")))))
}

// filesOf returns the files of parts, those of results included, in their order.
func filesOf(parts []events.Part) (files []*events.File) {
	for _, p := range parts {
		if p.Result != nil {
			files = append(files, filesOf(p.Result.Parts)...)
		}
		if p.Type == events.PartFile && p.File != nil {
			files = append(files, p.File)
		}
	}
	return files
}

// The media types of names, and how the bytes of those begin that a provider
// would refuse a whole request for.
var (
	mediaTypes = map[string]string{
		".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml",
		".pdf": "application/pdf", ".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
		".html": "text/html", ".xml": "text/xml", ".yaml": "text/yaml", ".yml": "text/yaml", ".js": "text/javascript", ".go": "text/plain", ".py": "text/plain",
		".json": "application/json", ".zip": "application/zip", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4",
	}
	beginnings = map[string]string{
		"image/png": "\x89PNG\r\n\x1a\n", "image/jpeg": "\xff\xd8\xff", "image/gif": "GIF8", "image/webp": "RIFF", "application/pdf": "%PDF-",
	}
)

// unknownType is the media type of bytes that are not known to be anything.
const unknownType = "application/octet-stream"

// maxMediaType is the length of the longest media type there is, in bytes.
const maxMediaType = 255

// MediaType returns the media type of a file: the one that is said, without
// parameters, or else that of the name, or else text where the bytes are. What
// says to be an image, a PDF or text and is not becomes
// application/octet-stream, which no model gets: a provider would refuse the
// request, and with it the run.
func MediaType(said, name string, data []byte) string {
	t, _, err := mime.ParseMediaType(said)
	if said == "" || err != nil || !strings.Contains(t, "/") || len(t) > maxMediaType {
		if t = mediaTypes[strings.ToLower(path.Ext(name))]; t == "" && utf8.Valid(data) {
			t = "text/plain"
		}
	}
	begins, checked := beginnings[t]
	if t == "" || checked && !bytes.HasPrefix(data, []byte(begins)) || IsTextual(t) && !utf8.Valid(data) {
		return unknownType
	}
	return t
}
