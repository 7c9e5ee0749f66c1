package jetstream

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Objects keeps payloads that are too large for a message, named by their
// content hash: an object never changes, and equal ones are one. They are laid
// out as the nats command line expects an object store's.
//
// The client library's object store is not used: on replicas it took the end of
// what one of them had for the end of the object, and reported damage; and it
// purges, which no role but the provisioning one may.
type Objects struct {
	Conn *Conn
}

// chunkSize keeps messages small enough for servers to group.
const chunkSize = 128 << 10

// headerChunk numbers the chunks of an object.
const headerChunk = "Agent-Chunk"

// objectInfo is the entry that makes stored chunks an object.
type objectInfo struct {
	Name   string `json:"name"`
	Bucket string `json:"bucket"`
	NUID   string `json:"nuid"` // the last token of the chunks' subject
	Size   int    `json:"size"`
	Chunks int    `json:"chunks"`
	Digest string `json:"digest"`
}

// Put stores the bytes and returns their name. It may be repeated, also at the
// same time: chunks are fenced, and equal for all who store the same bytes, so
// that whoever comes later goes on where another has stopped.
func (o *Objects) Put(ctx context.Context, data []byte) (hash string, err error) {
	hash = contentHash(data)
	entry, chunks := objectPlaces(hash)
	known, err := o.Conn.last(ctx, entry, o.Conn.timeout)
	if err != nil {
		return "", fmt.Errorf("store object %s: %w", hash, err)
	}
	if known.Sequence != 0 && !known.gone() {
		return hash, nil
	}
	n := (len(data) + chunkSize - 1) / chunkSize
	if err := o.putChunks(ctx, chunks, data, n); err != nil {
		return "", fmt.Errorf("store object %s: %w", hash, err)
	}
	info, err := json.Marshal(objectInfo{hash, storeObjects, hash, len(data), n, digest(hash)})
	if err != nil {
		return "", err
	}
	if err := o.putEntry(ctx, entry, known.Sequence, info); err != nil {
		return "", fmt.Errorf("store object %s: %w", hash, err)
	}
	return hash, nil
}

// putEntry stores the entry, or finds that somebody has. A refusal alone does
// not tell: it may mean that another writer's entry is on its way.
func (o *Objects) putEntry(ctx context.Context, at place, after uint64, info []byte) error {
	for {
		_, err := o.Conn.publish(ctx, at, o.Conn.timeout, expecting(after), info)
		if err == nil || !errors.Is(err, events.ErrConflict) {
			return err
		}
		known, lastErr := o.Conn.last(ctx, at, o.Conn.timeout)
		if lastErr != nil {
			return lastErr
		}
		if known.Sequence != after && !known.gone() {
			return nil
		}
		after = known.Sequence
		if events.Sleep(ctx, objectPause) != nil {
			return err
		}
	}
}

// putChunks appends the chunks that are not there yet.
func (o *Objects) putChunks(ctx context.Context, at place, data []byte, n int) error {
	for stored, sequence := 0, uint64(0); stored < n; {
		header := expecting(sequence)
		header[headerChunk] = []string{strconv.Itoa(stored)}
		next, err := o.Conn.publish(ctx, at, o.Conn.timeout, header, data[stored*chunkSize:min((stored+1)*chunkSize, len(data))])
		if err == nil {
			stored, sequence = stored+1, next
			continue
		}
		if !errors.Is(err, events.ErrConflict) || ctx.Err() != nil {
			return err
		}
		// Somebody has stored chunks, perhaps we ourselves.
		if stored, sequence, err = o.storedChunks(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// storedChunks returns how many chunks the leader has, and where the last one
// stands.
func (o *Objects) storedChunks(ctx context.Context, at place) (n int, sequence uint64, err error) {
	m, err := o.Conn.last(ctx, at, o.Conn.timeout)
	if err != nil || m.Sequence == 0 {
		return 0, 0, err
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return 0, 0, err
	}
	index, err := strconv.Atoi(header.Get(headerChunk))
	return index + 1, m.Sequence, err
}

// Get returns the bytes of that name, compared with it, or events.ErrNotFound. While a
// replica lags behind it reads again until ctx ends.
func (o *Objects) Get(ctx context.Context, hash string) ([]byte, error) {
	if err := checkHash(hash); err != nil {
		return nil, fmt.Errorf("read object: %w: %w", events.ErrNotFound, err)
	}
	entry, chunks := objectPlaces(hash)
	m, err := o.Conn.last(ctx, entry, o.Conn.timeout)
	if err == nil && m.gone() {
		err = events.ErrNotFound
	}
	var info objectInfo
	if err == nil {
		err = json.Unmarshal(m.Data, &info)
	}
	var data []byte
	if err == nil {
		data, err = o.getChunks(ctx, chunks, info)
	}
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", hash, err)
	}
	if contentHash(data) != hash {
		return nil, &DamagedError{"object", hash}
	}
	return data, nil
}

// removedChunk stands in place of the chunks of an object that was removed; the
// first chunk of the same bytes, stored again, follows it.
const removedChunk = "-1"

// Remove drops the bytes of that name. An object that is not there is no error.
func (o *Objects) Remove(ctx context.Context, hash string) error {
	if err := checkHash(hash); err != nil {
		return err
	}
	entry, chunks := objectPlaces(hash)
	m, err := o.Conn.last(ctx, entry, o.Conn.timeout)
	if err == nil && m.Sequence == 0 {
		return nil
	}
	if err == nil {
		_, err = o.Conn.publish(ctx, entry, o.Conn.timeout, nats.Header{headerOperation: {"DEL"}, headerRollup: {"sub"}}, nil)
	}
	if err == nil {
		_, err = o.Conn.publish(ctx, chunks, o.Conn.timeout, nats.Header{headerChunk: {removedChunk}, headerRollup: {"sub"}}, nil)
	}
	if err != nil {
		return fmt.Errorf("remove object %s: %w", hash, err)
	}
	return nil
}

// objectPause is the pause before a replica is asked again for what it did not
// have yet.
const objectPause = 5 * time.Millisecond

func (o *Objects) getChunks(ctx context.Context, at place, info objectInfo) ([]byte, error) {
	var data []byte
	for n, from := 0, uint64(1); n < info.Chunks; {
		before := n
		err := o.Conn.readBatch(ctx, at.stream, batchRequest{from, at.subject, min(info.Chunks-n, maxBatchBytes/chunkSize)}, o.Conn.timeout, func(sequence uint64, m *nats.Msg) error {
			if m.Header.Get(headerChunk) == removedChunk {
				from = sequence + 1
				return nil
			}
			if m.Header.Get(headerChunk) != strconv.Itoa(n) {
				return &DamagedError{"object", info.Name}
			}
			data, from, n = append(data, m.Data...), sequence+1, n+1
			return nil
		})
		if err != nil {
			return nil, err
		}
		if n > before {
			continue
		}
		if err := events.Sleep(ctx, objectPause); err != nil {
			return nil, fmt.Errorf("%w: chunk %d of %d is missing: %w", events.ErrUnanswered, n, info.Chunks, err)
		}
	}
	return data, nil
}

func objectPlaces(hash string) (entry, chunks place) {
	stream := "OBJ_" + storeObjects
	name := base64.URLEncoding.EncodeToString([]byte(hash))
	return place{stream, "$O." + storeObjects + ".M." + name}, place{stream, "$O." + storeObjects + ".C." + hash}
}

// digest writes a content hash as object stores do.
func digest(hash string) string {
	raw, err := hex.DecodeString(hash)
	if err != nil {
		panic(err) // contentHash returns hexadecimal digits
	}
	return "SHA-256=" + base64.URLEncoding.EncodeToString(raw)
}
