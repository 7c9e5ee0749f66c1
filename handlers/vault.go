package handlers

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// SessionKeys keeps the key of each session, wrapped by a key that it does not
// have.
type SessionKeys interface {
	// Get returns what was created for a session, as the store's leader knows
	// it. events.ErrNotFound: nothing was; events.ErrErased: it was erased.
	Get(ctx context.Context, key events.Key) (wrapped []byte, err error)

	// Create stores the key of a session that never had one. After
	// events.ErrConflict Get tells which there is.
	Create(ctx context.Context, key events.Key, wrapped []byte) error

	// Erase drops the session's key for ever, so that no copy stays in the
	// store. It may be repeated, and of a session without a key it is no
	// error: then it never gets one.
	Erase(ctx context.Context, key events.Key) error
}

// WrappingKey is a key of the configuration: it wraps the keys of sessions and
// encrypts nothing else.
type WrappingKey struct {
	ID     string
	Secret [KeySize]byte
}

// KeySize is the size of every key, in bytes.
const KeySize = 32

// Vault encrypts what a session says. Each session has a key of its own, made
// with its first fact and stored wrapped by the first of the vault's Wrapping
// keys; the others still unwrap what they wrapped once. Without any, new facts
// stay plain, and encrypted ones cannot be read.
//
// The scheme is AES-256-GCM. A nonce of 96 bits is the beginning of an
// HMAC-SHA-256, under a second key that derives from the session's, over the
// additional data and the text. So the same text in the same place has the same
// bytes each time it is written, and two different ones share a nonce as rarely
// as two random ones do: with 2^32 texts in a session, one time in 2^33.
// Wrapping takes random nonces; one wrapping key is good for 2^32 sessions.
//
// The additional data of a fact are its namespace, session, id, type, claim and
// revision, so that no fact passes for another. What stands beside the data is
// plain: ids, types, times, how much data there is.
//
// A vault remembers the keys it has unwrapped for KeyTTL. For so long a process
// that another one's erasure is news to could open the session's data. Folds end
// at session.erased all the same, and run.events asks for the key each time.
type Vault struct {
	Keys     SessionKeys
	Wrapping []WrappingKey // the newest first
	Random   io.Reader
	Now      func() time.Time

	mu   sync.Mutex
	open map[events.Key]*sessionKey
}

// KeyTTL is how long a process remembers the key of a session.
const KeyTTL = time.Minute

// maxKeys is how many keys a vault remembers.
const maxKeys = 4096

// scheme names how data is encrypted. It stands before the id of the wrapping
// key in the attribute encryption of an event, and in wrapped keys.
const scheme = "aes-256-gcm"

// KeyError reports that a session cannot be read, or written, by this process
// for want of a key. Another one may have it.
type KeyError struct {
	Key    events.Key
	Reason string
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("session %s is encrypted and not readable for this worker: %s", e.Key, e.Reason)
}

// sessionKey is a session's key, ready for use.
type sessionKey struct {
	aead    cipher.AEAD
	nonces  []byte // key of the nonces
	wrapper string // id of the key that wraps it
	until   time.Time
}

// wrappedKey is a session's key as it is stored.
type wrappedKey struct {
	Scheme  string `json:"scheme"`
	Key     string `json:"key"` // id of the wrapping key
	Wrapped []byte `json:"wrapped"`
}

// encrypts reports whether new facts are encrypted.
func (v *Vault) encrypts() bool { return v != nil && len(v.Wrapping) > 0 }

// key returns the key of a session; with create it makes one when there is none.
// Of several that make one at a time the first wins.
func (v *Vault) key(ctx context.Context, key events.Key, create bool) (*sessionKey, error) {
	if v == nil {
		return nil, &KeyError{key, "no store of keys is configured"}
	}
	if k := v.remembered(key); k != nil {
		return k, nil
	}
	for {
		began := v.Now()
		stored, err := v.Keys.Get(ctx, key)
		if err == nil {
			k, err := v.unwrap(key, stored)
			return v.remember(key, k, began), err
		}
		if errors.Is(err, events.ErrErased) {
			return nil, &events.ErasedError{Key: key}
		}
		if !errors.Is(err, events.ErrNotFound) {
			return nil, fmt.Errorf("read the key of session %s: %w", key, err)
		}
		if !create {
			return nil, &KeyError{key, "its key is not in the store; restore AGENT_KEYS from a backup"}
		}
		k, wrapped, err := v.generate(key)
		if err == nil {
			err = v.Keys.Create(ctx, key, wrapped)
		}
		if err == nil {
			return v.remember(key, k, began), nil
		}
		if !errors.Is(err, events.ErrConflict) || ctx.Err() != nil {
			return nil, fmt.Errorf("create the key of session %s: %w", key, err)
		}
	}
}

func (v *Vault) remembered(key events.Key) *sessionKey {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k := v.open[key]; k != nil && v.Now().Before(k.until) {
		return k
	}
	delete(v.open, key)
	return nil
}

func (v *Vault) remember(key events.Key, k *sessionKey, since time.Time) *sessionKey {
	if k == nil {
		return nil
	}
	k.until = since.Add(KeyTTL)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil || len(v.open) >= maxKeys {
		v.open = make(map[events.Key]*sessionKey) // each is one look away
	}
	v.open[key] = k
	return k
}

// erase drops the key of a session, here and for ever.
func (v *Vault) erase(ctx context.Context, key events.Key) error {
	if err := v.Keys.Erase(ctx, key); err != nil {
		return fmt.Errorf("erase the key of session %s: %w", key, err)
	}
	v.forget(key)
	return nil
}

// forget makes the next look at a session ask the store for its key.
func (v *Vault) forget(key events.Key) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, key)
}

// generate makes a key and wraps it.
func (v *Vault) generate(key events.Key) (*sessionKey, []byte, error) {
	secret := make([]byte, KeySize)
	nonce := make([]byte, nonceSize)
	for _, b := range [][]byte{secret, nonce} {
		if _, err := io.ReadFull(v.Random, b); err != nil {
			return nil, nil, err
		}
	}
	w := &v.Wrapping[0]
	aead, err := gcm(w.Secret[:])
	if err != nil {
		return nil, nil, err
	}
	stored, err := events.Marshal(wrappedKey{scheme, w.ID, aead.Seal(nonce, nonce, secret, wrapping(key, w.ID))})
	if err != nil {
		return nil, nil, err
	}
	k, err := newSessionKey(secret, w.ID)
	return k, stored, err
}

func (v *Vault) unwrap(key events.Key, stored []byte) (*sessionKey, error) {
	var s wrappedKey
	if err := json.Unmarshal(stored, &s); err != nil || s.Scheme != scheme {
		return nil, &KeyError{key, fmt.Sprintf("its key is wrapped in a way this release does not know (%q)", bounded(s.Scheme, maxNamed))}
	}
	for i := range v.Wrapping {
		w := &v.Wrapping[i]
		if w.ID != s.Key {
			continue
		}
		aead, err := gcm(w.Secret[:])
		if err != nil {
			return nil, err
		}
		secret, err := unseal(aead, s.Wrapped, wrapping(key, w.ID))
		if err != nil {
			return nil, &KeyError{key, fmt.Sprintf("the key %q of the configuration does not open its key: it is another key of that id, or the stored one was changed", w.ID)}
		}
		return newSessionKey(secret, w.ID)
	}
	return nil, &KeyError{key, fmt.Sprintf("its key was wrapped by key %q, which is not in this worker's encryption.keys", s.Key)}
}

func newSessionKey(secret []byte, wrapper string) (*sessionKey, error) {
	derive := func(info string) ([]byte, error) { return hkdf.Expand(sha256.New, secret, info, KeySize) }
	data, err := derive("agentruntime data")
	if err != nil {
		return nil, err
	}
	nonces, err := derive("agentruntime nonces")
	if err != nil {
		return nil, err
	}
	aead, err := gcm(data)
	return &sessionKey{aead: aead, nonces: nonces, wrapper: wrapper}, err
}

const nonceSize = 12

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// seal returns the nonce and the encrypted text.
func (k *sessionKey) seal(text, additional []byte) []byte {
	mac := hmac.New(sha256.New, k.nonces)
	mac.Write(binary.AppendUvarint(nil, uint64(len(additional))))
	mac.Write(additional)
	mac.Write(text)
	out := make([]byte, 0, nonceSize+len(text)+k.aead.Overhead())
	out = append(out, mac.Sum(nil)[:nonceSize]...)
	return k.aead.Seal(out, out, text, additional)
}

// errUnsealed means that bytes are not what was sealed with the key and the
// additional data.
var errUnsealed = errors.New("it does not open with the session's key")

func unseal(aead cipher.AEAD, sealed, additional []byte) ([]byte, error) {
	if len(sealed) < nonceSize {
		return nil, errUnsealed
	}
	text, err := aead.Open(nil, sealed[:nonceSize], sealed[nonceSize:], additional)
	if err != nil {
		return nil, errUnsealed
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}

// bind joins texts so that no two lists of them join to the same.
func bind(parts ...string) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

func wrapping(key events.Key, id string) []byte {
	return bind("key", key.Namespace, key.Session, id)
}

func eventData(key events.Key, e *events.Event) []byte {
	return bind("event", key.Namespace, key.Session, e.ID, e.Type, e.ClaimID, strconv.FormatUint(e.Revision, 10))
}

// sealEvent encrypts the data of a fact, which keeps it as its body. A fact that
// is encrypted stays as it is.
func (v *Vault) sealEvent(ctx context.Context, key events.Key, e *events.Event) error {
	if !v.encrypts() || e.Encryption != "" || e.Type == typeErased {
		return nil
	}
	k, err := v.key(ctx, key, true)
	if err != nil {
		return err
	}
	e.Encryption = scheme + "/" + k.wrapper
	e.Body, e.Data = e.Data, k.seal(e.Data, eventData(key, e))
	return nil
}

// openEvent decrypts the stored data of a fact into its body. What anybody
// entitled may append unfenced must not stop a session: an external fact that
// does not open has an empty body, which fits no type.
func (v *Vault) openEvent(ctx context.Context, key events.Key, r *events.Record, stored []byte) error {
	if name, _, _ := strings.Cut(r.Encryption, "/"); name != scheme {
		return &KeyError{key, fmt.Sprintf("%s at sequence %d is encrypted in a way this release does not know (%q)", r.Type, r.Sequence, bounded(r.Encryption, maxNamed))}
	}
	k, err := v.key(ctx, key, false)
	if err != nil {
		return err
	}
	r.Body, err = unseal(k.aead, stored, eventData(key, &r.Event))
	if err == nil {
		return nil
	}
	if events.TypeOf(r.Type).Kind == events.External {
		r.Body = []byte{}
		return nil
	}
	return &events.DamageError{Key: key, Sequence: r.Sequence, Reason: err.Error()}
}
