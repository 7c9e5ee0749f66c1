package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// The bounds of the files that come with a command, in bytes.
const (
	MaxFiles       = 16
	MaxFile        = runtime.MaxAttachment // of one, however it comes
	MaxInlineFiles = 4 << 20               // in the command itself, all of them; a server's payload limit may be less
)

// RejectFile is the reason of a rejection for a reference that leads to nothing.
const RejectFile = "unknown_file"

// files is runtime.Files over the object store. An object is stored before the
// fact that refers to it is appended, and never changes: what the log refers to
// is there as long as the log is, and what a crash between the two leaves is an
// object that nothing refers to.
type files struct {
	host *Host
	key  events.Key
}

var _ runtime.Files = files{}

// Put implements runtime.Files. It tries again until the context ends: the call
// that the file is of has been made, and giving up would make its outcome
// unknown.
func (f files) Put(ctx context.Context, data []byte) (string, error) {
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		ref, err := f.host.objectsOf(f.key).Put(ctx, data)
		if err == nil {
			return ref, nil
		}
		f.host.Logger.Warn("a file was not stored and is stored again", "bytes", len(data), "pause", pause, "error", err)
		if f.host.Pause(ctx, pause) != nil {
			return "", errors.Join(context.Cause(ctx), err)
		}
	}
}

// openWithin bounds how long a store may take to hand out a file, so that a
// piece that is nowhere does not hold a run for ever.
const openWithin = 30 * time.Second

// Open implements runtime.Files.
func (f files) Open(ctx context.Context, file *events.File) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	objects := f.host.objectsOf(f.key)
	if isOld(file.Ref) {
		objects = f.host.Objects
	}
	data, err := objects.Get(ctx, file.Ref)
	switch {
	case errors.Is(err, events.ErrNotFound):
		return nil, fmt.Errorf("%w: %w", runtime.ErrFileGone, err)
	case errors.Is(err, events.ErrDamaged):
		return nil, &runtime.FileDamagedError{File: *file, Err: err}
	}
	return data, err
}

// isOld reports whether a reference, which stands in the log, is of the time
// before references told a file from other objects: the name of a plain object.
func isOld(ref string) bool { return !strings.Contains(ref, "-") }

// objectsOf keeps the files of a session.
func (h *Host) objectsOf(key events.Key) Objects {
	return SealedObjects{h.Objects, h.Vault, key, useFile}
}

// uploads is under whose key files are encrypted that no session has yet.
func uploads(namespace string) events.Key { return events.KeptKey(namespace, "uploads") }

// given reads a file by a reference from outside: one of the session, or one that
// was stored with file.put. Any other reference leads to nothing.
func (h *Host) given(ctx context.Context, key events.Key, ref string) ([]byte, error) {
	data, err := h.objectsOf(uploads(key.Namespace)).Get(ctx, ref)
	if isForeign(err) {
		data, err = h.objectsOf(key).Get(ctx, ref)
	}
	if isForeign(err) {
		err = fmt.Errorf("%w: it belongs to another session: %w", events.ErrNotFound, err)
	}
	return data, err
}

// isForeign reports whether a file may be one of another key.
func isForeign(err error) bool {
	var other *KeyError
	return errors.As(err, &other) || errors.Is(err, errUnsealed)
}

// checkFiles refuses files of a command that can never be taken.
func checkFiles(given []events.GivenFile) error {
	if len(given) > MaxFiles {
		return reject(RejectMalformed, "a command has at most %d files, not %d", MaxFiles, len(given))
	}
	inline := 0
	for i, f := range given {
		switch {
		case f.Name == "":
			return reject(RejectMalformed, "files[%d] has no name", i)
		case (len(f.Data) == 0) == (f.Ref == ""):
			return reject(RejectMalformed, "files[%d] must have exactly one of data and ref, and not be empty", i)
		}
		inline += len(f.Data)
	}
	if inline > MaxInlineFiles {
		return reject(RejectMalformed, "the files in a command have at most %d bytes together, not %d; store larger ones with file.put and give their references", MaxInlineFiles, inline)
	}
	return nil
}

// store stores the files of the command and returns their parts.
func (a *admission) store(ctx context.Context, key events.Key, given []events.GivenFile) ([]events.Part, error) {
	if len(a.files) == len(given) {
		return a.files, nil
	}
	var parts []events.Part
	for i, f := range given {
		data, err := f.Data, error(nil)
		if f.Ref != "" {
			if data, err = a.host.given(ctx, key, f.Ref); gone(err) {
				return nil, reject(RejectFile, "files[%d]: %q is no stored file; store it with file.put", i, bounded(f.Ref, maxNamed))
			}
		}
		if len(data) > MaxFile {
			return nil, reject(RejectMalformed, "files[%d] has %d bytes, at most %d may be given", i, len(data), MaxFile)
		}
		ref := ""
		if err == nil {
			ref, err = a.host.objectsOf(key).Put(ctx, data)
		}
		if err != nil {
			return nil, fmt.Errorf("store the file %q of a command: %w", f.Name, err)
		}
		parts = append(parts, runtime.NewFile(a.host.Redactor, ref, f.Name, f.MediaType, data))
	}
	a.files = parts
	return parts, nil
}

// gone reports whether a reference leads to nothing that can be read, now or
// later.
func gone(err error) bool {
	return errors.Is(err, events.ErrNotFound) || errors.Is(err, events.ErrDamaged)
}

// PutFile is what file.put takes: bytes, or the references of the pieces that a
// larger file was stored in, in their order.
type PutFile struct {
	Data   []byte   `json:"data,omitempty"` // base64
	Pieces []string `json:"pieces,omitempty"`
}

// PutFileAnswer is what file.put answers: what a command refers to the file by.
type PutFileAnswer struct {
	Ref  string `json:"ref"`
	Size int64  `json:"size"`
}

// putFile stores a file, before the command that refers to it. One that no
// command refers to stays until the store is cleared.
func (a *API) putFile(ctx context.Context, namespace string, data []byte) (any, error) {
	var r PutFile
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	if (len(r.Data) == 0) == (len(r.Pieces) == 0) {
		return nil, &APIError{RejectMalformed, "exactly one of data and pieces must be given, and not be empty"}
	}
	whole := r.Data
	for _, ref := range r.Pieces {
		piece, err := a.given(ctx, uploads(namespace), ref)
		if gone(err) {
			return nil, &APIError{RejectFile, fmt.Sprintf("%q is no stored piece", bounded(ref, maxNamed))}
		}
		if err != nil {
			return nil, err
		}
		if whole = append(whole, piece...); len(whole) > MaxFile {
			return nil, &APIError{RejectMalformed, fmt.Sprintf("a file has at most %d bytes", MaxFile)}
		}
	}
	ref, err := a.objectsOf(uploads(namespace)).Put(ctx, whole)
	return PutFileAnswer{ref, int64(len(whole))}, err
}

// AnsweredFile is a file that an answer of a capability comes with.
type AnsweredFile = events.AnsweredFile

// The members of an answer that make it one with files.
const (
	memberFiles = "$attachments"
	memberValue = "$value"
)

// ReadAnswer takes the files out of an answer. An answer comes with files if it
// is a JSON object with the member "$attachments", a list of AnsweredFile: what
// the script gets is the member "$value", if there is one, and otherwise the
// object without "$attachments". Any other answer is returned as it is, as is
// one over MaxAnswer and one that is not JSON, which are the caller's to refuse.
// An error says what is wrong with the files of an answer that has some.
func ReadAnswer(answer []byte) (value []byte, attached []AnsweredFile, err error) {
	if len(answer) > MaxAnswer || !bytes.Contains(answer, []byte(memberFiles)) || events.CheckJSON(answer, events.JSONLimits{}) != nil {
		return answer, nil, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(answer, &members) != nil || members[memberFiles] == nil {
		return answer, nil, nil
	}
	if err := json.Unmarshal(members[memberFiles], &attached); err != nil {
		return answer, nil, fmt.Errorf("%s is no list of files: %w", memberFiles, err)
	}
	if len(attached) > runtime.MaxAttachments {
		return answer, nil, fmt.Errorf("%s has %d files, a call attaches at most %d", memberFiles, len(attached), runtime.MaxAttachments)
	}
	for i, f := range attached {
		if (len(f.Data) == 0) == (f.Ref == "") {
			return answer, nil, fmt.Errorf("%s[%d] must have exactly one of data and ref, and not be empty", memberFiles, i)
		}
	}
	if value := members[memberValue]; value != nil {
		return value, attached, nil
	}
	delete(members, memberFiles)
	value, err = events.Marshal(members)
	return value, attached, err
}

// given reads a file of an answer. Like files.Put it tries again until the context
// ends: the call has been made, and its answer is not to be lost.
func (b *backend) given(ctx context.Context, ref string) ([]byte, error) {
	for pause := firstRetry; ; pause = min(2*pause, maxRetry) {
		data, err := b.host.given(ctx, b.key, ref)
		if err == nil || gone(err) {
			return data, err
		}
		b.host.Logger.Warn("a file of an answer was not read and is read again", "pause", pause, "error", err)
		if b.host.Pause(ctx, pause) != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// attach adds the files of an answer to the result of the call, those of stored
// bytes once all of them are read, which ends where there are more bytes than a
// call may attach. The first one that is refused is the error.
func (b *backend) attach(ctx context.Context, c *runtime.Callback, attached []AnsweredFile) error {
	whole, total := make([]runtime.Attachment, len(attached)), 0
	for i, f := range attached {
		data := f.Data
		if f.Ref != "" {
			var err error
			if data, err = b.given(ctx, f.Ref); err != nil {
				return fmt.Errorf("the file %q: %w", f.Name, err)
			}
		}
		if total += len(data); len(data) > runtime.MaxAttachment || total > runtime.MaxAttachmentBytes {
			return fmt.Errorf("the file %q: a call attaches at most %d bytes in one file, and %d in all", f.Name, runtime.MaxAttachment, runtime.MaxAttachmentBytes)
		}
		whole[i] = runtime.Attachment{Name: f.Name, MediaType: f.MediaType, Data: data}
	}
	if c.Attach == nil {
		return nil // an answer that is only looked at
	}
	for _, a := range whole {
		if err := c.Attach(a); err != nil {
			return fmt.Errorf("the file %q: %w", a.Name, err)
		}
	}
	return nil
}
