package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/handlers/policy"
)

// maxPolicy bounds the file of a policy, in bytes.
const maxPolicy = 1 << 20

// ReadPolicy reads a policy from a file. The error is an *Error, or several of
// them, joined.
func ReadPolicy(file string) (*policy.Policy, error) {
	data, err := load(file)
	if err != nil {
		return nil, err
	}
	return parsePolicy(file, data)
}

// load reads the file of a policy, and of one that is too large the beginning.
func load(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &Error{file, fmt.Sprintf("the policy cannot be read: %v", err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, &Error{file, fmt.Sprintf("the policy cannot be read: %v", err)}
	}
	return data, nil
}

func parsePolicy(file string, data []byte) (*policy.Policy, error) {
	if len(data) > maxPolicy {
		return nil, &Error{file, fmt.Sprintf("the policy cannot be read: it has more than %d bytes", maxPolicy)}
	}
	p := &policy.Policy{}
	settings, err := files.ReadSettings(file, data, p)
	switch {
	case err != nil:
		return nil, inFile(err)
	case settings.Empty():
		// It would deny everything, or is half written.
		return nil, &Error{file, "it is empty; to deny everything say namespaces: {}"}
	}
	if err = p.Check(); err == nil {
		return p, nil
	}
	var all []error
	for text := range strings.SplitSeq(err.Error(), "\n") {
		path, reason, _ := strings.Cut(text, ": ")
		all = append(all, &Error{source(file, settings.Line(path), path), reason})
	}
	return nil, errors.Join(all...)
}

// PolicyFile is the policy of a file, as the file is at the moment: it is looked
// at whenever the policy is asked for, and read again when it has changed. A change
// that is not settled may be half written, and half a policy may allow more than
// the whole one: until it is, while the file cannot be read, and while it is wrong,
// the last policy that was right stays in force. What is wrong is read again when the
// file has changed; what cannot be read is tried each time, since a file shows no
// change when its reading is allowed.
type PolicyFile struct {
	file string
	tell func(p *policy.Policy, err error)

	mu     sync.Mutex
	policy *policy.Policy
	seen   os.FileInfo // of the last that was read, right or wrong
	fresh  os.FileInfo // of a change that is not settled yet
	since  time.Time   // when that was seen first
	failed string      // what was told last
}

// OpenPolicy reads the policy of a file for the first time; of a wrong one the
// error is that of ReadPolicy. Tell is called with each later one, and with what is wrong of it.
func OpenPolicy(file string, tell func(p *policy.Policy, err error)) (*PolicyFile, error) {
	p, err := ReadPolicy(file)
	if err != nil {
		return nil, err
	}
	return &PolicyFile{file: file, tell: tell, policy: p}, nil
}

// settled is how long a file must have stood still before it is read, by its own
// time or by what was seen of it. It is far more than the steps of a file system's
// clock, within which two changes show one time.
const settled = 100 * time.Millisecond

// same reports whether two looks at a file show no change.
func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stands reports whether a change is settled. A time of the file that lies ahead of
// this machine's says nothing.
func (f *PolicyFile) stands(info os.FileInfo) bool {
	now := time.Now()
	if !same(info, f.fresh) {
		f.fresh, f.since = info, now
	}
	return now.Sub(info.ModTime()) >= settled || now.Sub(f.since) >= settled
}

// Policy implements handlers.Policies.
func (f *PolicyFile) Policy() *policy.Policy {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.file)
	if err == nil && (same(info, f.seen) || !f.stands(info)) {
		return f.policy
	}
	f.seen = nil
	var p *policy.Policy
	if err == nil {
		var data []byte
		data, err = load(f.file)
		if after, gone := os.Stat(f.file); gone == nil && !same(info, after) {
			return f.policy // it changed while it was read
		}
		if err == nil {
			f.seen = info
			p, err = parsePolicy(f.file, data)
		}
	}
	if err != nil {
		if text := err.Error(); text != f.failed {
			f.failed = text
			f.tell(f.policy, err)
		}
		return f.policy
	}
	changed := f.failed != "" || !reflect.DeepEqual(p, f.policy)
	f.policy, f.failed, f.fresh = p, "", nil
	if changed {
		f.tell(p, nil)
	}
	return p
}
