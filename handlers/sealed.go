package handlers

import (
	"bytes"
	"context"

	"github.com/agentruntime/agentruntime/events"
)

// sealMark begins what is encrypted beside the log. Neither text nor any usual
// form of a file begins like it.
var sealMark = []byte("\x89agentruntime aes-256-gcm\n\x1a")

// sealBytes encrypts what stands beside a session's log, for a use of that name.
func (v *Vault) sealBytes(ctx context.Context, key events.Key, use string, data []byte) ([]byte, error) {
	k, err := v.key(ctx, key, true)
	if err != nil {
		return nil, err
	}
	sealed := k.seal(data, bind(use, key.Namespace, key.Session))
	return append(bytes.Clone(sealMark), sealed...), nil
}

// openBytes decrypts what sealBytes made. Plain tells that it did not.
func (v *Vault) openBytes(ctx context.Context, key events.Key, use string, stored []byte) (data []byte, plain bool, err error) {
	sealed, found := bytes.CutPrefix(stored, sealMark)
	if !found {
		return stored, true, nil
	}
	k, err := v.key(ctx, key, false)
	if err != nil {
		return nil, false, err
	}
	if data, err = unseal(k.aead, sealed, bind(use, key.Namespace, key.Session)); err != nil {
		return nil, false, &KeyError{key, "what is stored beside its log (" + use + ") was changed, or is another session's"}
	}
	return data, false, nil
}

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
	data, plain, err := s.Vault.openBytes(ctx, key, "snapshot", stored)
	if plain && s.Vault.encrypts() {
		return nil, nil
	}
	return data, err
}

// Put implements Snapshots.
func (s SealedSnapshots) Put(ctx context.Context, key events.Key, data []byte) error {
	if s.Vault.encrypts() {
		var err error
		if data, err = s.Vault.sealBytes(ctx, key, "snapshot", data); err != nil {
			return err
		}
	}
	return s.Snapshots.Put(ctx, key, data)
}

// SealedObjects keeps what belongs to one session encrypted. The same bytes of
// one session have one reference, those of two sessions have two. What was stored
// plain is read as it is: its reference is the hash of it. Payloads of facts are
// encrypted as facts and need none of this.
type SealedObjects struct {
	Objects
	Vault *Vault
	Key   events.Key
}

// Put implements Objects.
func (o SealedObjects) Put(ctx context.Context, data []byte) (ref string, err error) {
	if o.Vault.encrypts() {
		if data, err = o.Vault.sealBytes(ctx, o.Key, "object", data); err != nil {
			return "", err
		}
	}
	return o.Objects.Put(ctx, data)
}

// Get implements Objects.
func (o SealedObjects) Get(ctx context.Context, ref string) ([]byte, error) {
	stored, err := o.Objects.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	data, _, err := o.Vault.openBytes(ctx, o.Key, "object", stored)
	return data, err
}
