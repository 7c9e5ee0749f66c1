package handlers

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// sealBytes encrypts what stands beside a session's log, for a use of that name.
func (v *Vault) sealBytes(ctx context.Context, key events.Key, use string, data []byte) ([]byte, error) {
	k, err := v.key(ctx, key, true)
	if err != nil {
		return nil, err
	}
	return k.seal(data, bind(use, key.Namespace, key.Session)), nil
}

// openBytes decrypts what sealBytes made. Any other bytes are an error that wraps
// events.ErrDamaged.
func (v *Vault) openBytes(ctx context.Context, key events.Key, use string, sealed []byte) ([]byte, error) {
	k, err := v.key(ctx, key, false)
	if err != nil {
		return nil, err
	}
	data, err := unseal(k.aead, sealed, bind(use, key.Namespace, key.Session))
	if err != nil {
		return nil, fmt.Errorf("what is stored beside the log of session %s (%s): %w: %w", key, use, events.ErrDamaged, err)
	}
	return data, nil
}

// sealMark begins an encrypted snapshot. A plain one is compressed, which
// begins otherwise.
var sealMark = []byte("\x89agentruntime aes-256-gcm\n\x1a")

// SealedSnapshots encrypts snapshots. While it does, one that is plain does not
// count: it is older than the encryption, and the facts are there.
type SealedSnapshots struct {
	Snapshots
	Vault *Vault
}

// Get implements Snapshots.
func (s SealedSnapshots) Get(ctx context.Context, key events.Key) ([]byte, error) {
	stored, err := s.Snapshots.Get(ctx, key)
	if err != nil || stored == nil {
		return nil, err
	}
	sealed, found := bytes.CutPrefix(stored, sealMark)
	switch {
	case found:
		return s.Vault.openBytes(ctx, key, "snapshot", sealed)
	case s.Vault.encrypts():
		return nil, nil
	}
	return stored, nil
}

// Put implements Snapshots.
func (s SealedSnapshots) Put(ctx context.Context, key events.Key, data []byte) error {
	if s.Vault.encrypts() {
		sealed, err := s.Vault.sealBytes(ctx, key, "snapshot", data)
		if err != nil {
			return err
		}
		data = append(bytes.Clone(sealMark), sealed...)
	}
	return s.Snapshots.Put(ctx, key, data)
}

// What objects beside the payloads of facts are for.
const (
	useFile   = "file"
	useLetter = "letter"
)

// sealedForm begins the reference of an encrypted object. That of a plain one
// begins with its use and a hyphen.
const sealedForm = "sealed-"

// SealedObjects keeps objects of one use, and those of one session encrypted.
// The reference says whether an object is encrypted, and never its bytes: they
// come from outside. It leads to nothing but what was stored here. An encrypted
// object opens with the session's key and for the use alone; a plain one begins
// with a line that names use and namespace, which no payload of a fact begins
// with. The same bytes have one reference in a namespace, and when they are
// encrypted one in a session.
type SealedObjects struct {
	Objects
	Vault *Vault
	Key   events.Key
	Use   string
}

// Put implements Objects.
func (o SealedObjects) Put(ctx context.Context, data []byte) (ref string, err error) {
	form, stored := o.Use+"-", []byte(nil)
	if o.Vault.encrypts() {
		form = sealedForm
		if stored, err = o.Vault.sealBytes(ctx, o.Key, o.Use, data); err != nil {
			return "", err
		}
	} else {
		stored = append(o.begin(), data...)
	}
	name, err := o.Objects.Put(ctx, stored)
	if err != nil {
		return "", err
	}
	return form + name, nil
}

// Get implements Objects. A reference that Put did not return, of that use and in
// that namespace, leads to events.ErrNotFound.
func (o SealedObjects) Get(ctx context.Context, ref string) ([]byte, error) {
	name, sealed := strings.CutPrefix(ref, sealedForm)
	if !sealed {
		var plain bool
		if name, plain = strings.CutPrefix(ref, o.Use+"-"); !plain {
			return nil, fmt.Errorf("%q is the reference of no %s: %w", bounded(ref, maxNamed), o.Use, events.ErrNotFound)
		}
	}
	stored, err := o.Objects.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if sealed {
		return o.Vault.openBytes(ctx, o.Key, o.Use, stored)
	}
	data, found := bytes.CutPrefix(stored, o.begin())
	if !found {
		return nil, fmt.Errorf("object %s is no %s of namespace %s: %w", name, o.Use, o.Key.Namespace, events.ErrNotFound)
	}
	return data, nil
}

// begin returns the line that a plain object begins with.
func (o SealedObjects) begin() []byte {
	return []byte("agentruntime " + o.Use + " of " + o.Key.Namespace + "\n")
}
