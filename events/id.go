package events

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"hash/fnv"
	"strings"
)

// MaxNameLength is the longest namespace or session id, in bytes. A name is
// one token of a NATS subject and one part of several others, which is why it
// is short.
const MaxNameLength = 40

// ErrName reports a namespace, session or run id that cannot be part of a
// subject. It is returned before any subject is built.
type ErrName struct {
	What  string // "namespace", "session" or "run"
	Value string
}

func (e *ErrName) Error() string {
	v := e.Value
	if len(v) > 80 {
		v = v[:80] + "…"
	}
	if e.What == "run" {
		return fmt.Sprintf("run %q is not valid: a run's id is its session's id, a hyphen and %d characters", v, runSuffix)
	}
	return fmt.Sprintf("%s %q is not valid: it must be 1 to %d characters of A-Z a-z 0-9 _ - and start with a letter or a digit", e.What, v, MaxNameLength)
}

// CheckNamespace refuses a namespace that does not match
// [A-Za-z0-9][A-Za-z0-9_-]{0,39}.
func CheckNamespace(s string) error { return checkName("namespace", s, MaxNameLength) }

// CheckSession refuses a session id that does not match
// [A-Za-z0-9][A-Za-z0-9_-]{0,39}.
func CheckSession(s string) error { return checkName("session", s, MaxNameLength) }

// CheckRun refuses an id that cannot be a run id: a session id, a hyphen and
// eight characters.
func CheckRun(s string) error {
	if _, err := SessionOf(s); err != nil {
		return err
	}
	return nil
}

func checkName(what, s string, limit int) error {
	if s == "" || len(s) > limit {
		return &ErrName{What: what, Value: s}
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '-') {
			return &ErrName{What: what, Value: s}
		}
	}
	return nil
}

// runSuffix is the number of characters a run id adds to its session's id,
// the hyphen not counted.
const runSuffix = 8

// SessionOf returns the session a run id belongs to. No look-up is needed: a
// run id is its session id, a hyphen and eight characters.
func SessionOf(run string) (string, error) {
	cut := len(run) - runSuffix - 1
	if cut < 1 || run[cut] != '-' {
		return "", &ErrName{What: "run", Value: run}
	}
	if checkName("run", run[:cut], MaxNameLength) != nil || checkName("run", "x"+run[cut+1:], MaxNameLength) != nil {
		return "", &ErrName{What: "run", Value: run}
	}
	return run[:cut], nil
}

// idText writes hashes as lower-case letters and digits, so that an id is
// valid in a subject, a file name and a host name.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Derive returns n characters (at most 52) derived from the parts. The parts
// are length-prefixed before they are hashed, so no two lists collide by
// concatenation. The same parts give the same id for ever: ids of sessions,
// runs and public events are derived from their cause by it.
func Derive(n int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return idText.EncodeToString(h.Sum(nil))[:n]
}

// SessionFor derives the id of the session that a command without a session
// starts, from what identifies the command.
func SessionFor(namespace, source, id string) string {
	return "s" + Derive(20, "session", namespace, source, id)
}

// RunFor derives the id of the run that a cause starts in a session. The cause
// is the command's source and id, or the parent run and call id.
func RunFor(namespace, session, source, id string) string {
	return session + "-" + Derive(runSuffix, "run", namespace, session, source, id)
}

// ChildSession derives the id of the session of the child that a run's call
// spawns. No command's session can have the same id.
func ChildSession(namespace, parentRun, callID string) string {
	return "c" + Derive(20, "child", namespace, parentRun, callID)
}

// IsChildSession reports whether a session id has the form of a child's. No
// other session may have one.
func IsChildSession(session string) bool {
	if len(session) != 21 || session[0] != 'c' {
		return false
	}
	_, err := idText.DecodeString(session[1:] + "0000")
	return err == nil
}

// ShardHash names the function of Shard. It stands in the metadata of the log
// streams: a process that computes another one refuses to start.
const ShardHash = "fnv1a32-ns/session"

// Shard returns which of n log shards holds a session.
func Shard(key Key, n int) int {
	h := fnv.New32a()
	h.Write([]byte(key.Namespace))
	h.Write([]byte{'/'})
	h.Write([]byte(key.Session))
	return int(h.Sum32() % uint32(n))
}

// Key names one session: the unit of fencing. All facts of a session form one
// sequence.
type Key struct {
	Namespace string
	Session   string
}

// Check refuses a key that cannot be part of a subject.
func (k Key) Check() error {
	if err := CheckNamespace(k.Namespace); err != nil {
		return err
	}
	return CheckSession(k.Session)
}

// String returns namespace/session, for people.
func (k Key) String() string { return k.Namespace + "/" + k.Session }

// KeyOfRun returns the session of a run.
func KeyOfRun(namespace, run string) (Key, error) {
	session, err := SessionOf(run)
	if err != nil {
		return Key{}, err
	}
	k := Key{Namespace: namespace, Session: session}
	return k, k.Check()
}

// Token turns an event type's last words into one subject token:
// run.completed becomes run_completed.
func Token(s string) string { return strings.ReplaceAll(s, ".", "_") }
