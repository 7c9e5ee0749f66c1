package jetstream

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// PermissionError is something that the NATS user of this connection may not do.
// The server did not do it and will not: the user's permissions must be changed.
type PermissionError struct {
	Operation string // publish or subscribe
	Subject   string
}

func (e *PermissionError) Error() string {
	return fmt.Sprintf("NATS does not let this user %s to %q; give it the permission to %s to that subject, or use the credentials of the role that has it",
		e.Operation, e.Subject, e.Operation)
}

// denials are what the server said that the connection's user may not do. The
// server answers a publish that it denies with nothing but this, so that whoever
// waits for an answer would wait in vain.
type denials struct {
	mu      sync.Mutex
	list    []PermissionError // the newest last
	replies []*replies        // whose requests are told
}

// maxDenials is how many different denials a connection remembers.
const maxDenials = 16

// The server's one word for a violation has no code for what was tried on which
// subject: only its text names both.
var violation = regexp.MustCompile(`(Publish|Subscription) to "([^"\s]+)"`)

// permissionError reads a violation, or returns nil for any other error.
func permissionError(err error) *PermissionError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return nil
	}
	operation := "publish"
	if m[1] == "Subscription" {
		operation = "subscribe"
	}
	return &PermissionError{operation, m[2]}
}

// note remembers a denial and fails the requests that it concerns.
func (d *denials) note(e *PermissionError) {
	d.mu.Lock()
	d.list = slices.DeleteFunc(d.list, func(o PermissionError) bool { return o == *e })
	if len(d.list) == maxDenials {
		d.list = d.list[1:]
	}
	d.list = append(d.list, *e)
	told := slices.Clone(d.replies)
	d.mu.Unlock()
	for _, r := range told {
		r.deny(e)
	}
}

// tell makes requests hear of denials, those before included.
func (d *denials) tell(r *replies) {
	d.mu.Lock()
	d.replies = append(d.replies, r)
	before := slices.Clone(d.list)
	d.mu.Unlock()
	for i := range before {
		r.deny(&before[i])
	}
}

// forget begins anew with a new connection, whose permissions may be others.
func (d *denials) forget() {
	d.mu.Lock()
	d.list = nil
	told := slices.Clone(d.replies)
	d.mu.Unlock()
	for _, r := range told {
		r.allow()
	}
}

// Denied returns what the server said that this connection's user may not do,
// since it was connected last; the newest last.
func (c *Conn) Denied() []PermissionError {
	c.denials.mu.Lock()
	defer c.denials.mu.Unlock()
	return slices.Clone(c.denials.list)
}

// deny fails the waiting requests that a denial concerns: those to its subject,
// and all of them when their answers cannot arrive.
func (r *replies) deny(e *PermissionError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := e.Operation == "subscribe" && e.Subject == r.prefix+"*"
	if mine {
		r.denied = e
	}
	for _, p := range r.waiting {
		if mine || e.Operation == "publish" && p.subject == e.Subject {
			p.denied = e
			p.put(nil)
		}
	}
}

func (r *replies) allow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied = nil
}
