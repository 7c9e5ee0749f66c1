package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// Definitions keeps every version of every agent under its content hash, and
// beside them which version new runs of a name get.
type Definitions struct {
	Conn *Conn
}

// Version is one name and the hash of the version that new runs get.
type Version struct {
	Slug string
	Hash string
}

// Put stores a version and makes it the newest one of its name. It may be
// repeated; the version is stored before the name points at it.
func (d *Definitions) Put(ctx context.Context, namespace, slug string, definition []byte) (hash string, err error) {
	hash = contentHash(definition)
	at, err := versionPlace(namespace, hash)
	if err != nil {
		return "", err
	}
	name, err := latestPlace(namespace, slug)
	if err != nil {
		return "", err
	}
	if _, err := d.Conn.publish(ctx, at, d.Conn.timeout, nil, definition); err != nil {
		return "", fmt.Errorf("store agent %s/%s: %w", namespace, slug, err)
	}
	pointer, err := json.Marshal(latest{hash})
	if err != nil {
		return "", err
	}
	if _, err := d.Conn.publish(ctx, name, d.Conn.timeout, nil, pointer); err != nil {
		return "", fmt.Errorf("store agent %s/%s: %w", namespace, slug, err)
	}
	return hash, nil
}

type latest struct {
	Hash string `json:"hash"`
}

// Get returns the version of that hash, or events.ErrNotFound. The bytes are compared
// with the hash.
func (d *Definitions) Get(ctx context.Context, namespace, hash string) ([]byte, error) {
	at, err := versionPlace(namespace, hash)
	if err != nil {
		return nil, err
	}
	data, err := d.Conn.lastNearby(ctx, at, d.Conn.timeout)
	if errors.Is(err, events.ErrNotFound) {
		// A replica may lag; only the leader knows that it is nowhere.
		var m stored
		if m, err = d.Conn.last(ctx, at, d.Conn.timeout); err == nil && m.gone() {
			err = events.ErrNotFound
		}
		data = m.Data
	}
	if err != nil {
		return nil, fmt.Errorf("read agent version %s of namespace %s: %w", hash, namespace, err)
	}
	if contentHash(data) != hash {
		return nil, &DamagedError{"agent version", hash}
	}
	return data, nil
}

// Latest returns the hash that new runs of the name get, or events.ErrNotFound.
func (d *Definitions) Latest(ctx context.Context, namespace, slug string) (string, error) {
	at, err := latestPlace(namespace, slug)
	if err != nil {
		return "", err
	}
	m, err := d.Conn.last(ctx, at, d.Conn.timeout)
	if err == nil && m.gone() {
		err = events.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("look up agent %s/%s: %w", namespace, slug, err)
	}
	var l latest
	if err := json.Unmarshal(m.Data, &l); err != nil {
		return "", fmt.Errorf("look up agent %s/%s: %w", namespace, slug, err)
	}
	return l.Hash, nil
}

// List returns the names of a namespace, sorted, and their newest versions.
func (d *Definitions) List(ctx context.Context, namespace string) ([]Version, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	prefix := "$KV." + bucketDefinitions + "." + namespace + ".latest."
	var all []Version
	for found, err := range d.Conn.subjects(ctx, "KV_"+bucketDefinitions, prefix+"*") {
		if err != nil {
			return nil, fmt.Errorf("list the agents of namespace %s: %w", namespace, err)
		}
		slug := strings.TrimPrefix(found.subject, prefix)
		hash, err := d.Latest(ctx, namespace, slug)
		if errors.Is(err, events.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Version{slug, hash})
	}
	return all, nil
}

func versionPlace(namespace, hash string) (place, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return place{}, err
	}
	return place{"KV_" + bucketDefinitions, "$KV." + bucketDefinitions + "." + namespace + ".version." + hash}, checkHash(hash)
}

func latestPlace(namespace, slug string) (place, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return place{}, err
	}
	if events.CheckSession(slug) != nil {
		return place{}, &events.ErrName{What: "agent", Value: slug}
	}
	return place{"KV_" + bucketDefinitions, "$KV." + bucketDefinitions + "." + namespace + ".latest." + slug}, nil
}
