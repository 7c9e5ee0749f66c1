package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Provision creates the streams, buckets and stores that do not exist and
// compares those that do; it never changes one. A difference that matters is a
// *SettingError, each of them in one joined error, and then nothing is created.
// While the servers have no leader or do not answer it tries again until ctx
// ends: give it a deadline.
func (c *Conn) Provision(ctx context.Context) error {
	if err := c.adopt(ctx); err != nil {
		return err
	}
	wanted := c.layout.streams()
	missing, err := c.missing(ctx, wanted)
	if err != nil {
		return err
	}
	for _, s := range missing {
		if err := c.create(ctx, &s); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes the stored shard count where none was configured: it is fixed when
// the log is made, and whoever made it may have had another default.
func (c *Conn) adopt(ctx context.Context) error {
	if c.shardsGiven {
		return nil
	}
	info, err := c.stored(ctx, logStream(0))
	if err != nil || info == nil {
		return err
	}
	if n, err := strconv.Atoi(info.Config.Metadata[metadataShards]); err == nil && n > 0 {
		c.layout.Shards = n
	}
	return nil
}

// MissingShardError reports that a shard of the log is gone while others hold
// facts. An empty one in its place would forget what was acknowledged.
type MissingShardError struct {
	Stream string
}

func (e *MissingShardError) Error() string {
	return fmt.Sprintf("stream %s is missing, but other shards of the log hold facts: restore it from a replica or a backup; it is not created anew", e.Stream)
}

// missing returns the streams that do not exist, after comparing those that do.
func (c *Conn) missing(ctx context.Context, wanted []spec) ([]spec, error) {
	var (
		absent   []spec
		wrong    []error
		hasFacts bool
	)
	for i := range wanted {
		info, err := c.stored(ctx, wanted[i].Name)
		switch {
		case err != nil:
			return nil, err
		case info == nil:
			absent = append(absent, wanted[i])
			continue
		}
		hasFacts = hasFacts || isLog(&wanted[i]) && info.State.LastSeq > 0
		for _, e := range wanted[i].compare(info.Config) {
			wrong = append(wrong, e)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	for i := range absent {
		if hasFacts && isLog(&absent[i]) {
			return nil, &MissingShardError{absent[i].Name}
		}
	}
	return absent, nil
}

// stored returns what the server knows of a stream, or nil when it does not
// exist.
func (c *Conn) stored(ctx context.Context, name string) (*natsjs.StreamInfo, error) {
	var info *natsjs.StreamInfo
	err := c.persist(ctx, func(ctx context.Context) error {
		s, err := c.js.Stream(ctx, name)
		if hasCode(err, codeStreamNotFound) {
			info = nil
			return nil
		}
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	return info, nil
}

// create makes a stream. Another process may be making it as well.
func (c *Conn) create(ctx context.Context, s *spec) error {
	taken := false
	err := c.persist(ctx, func(ctx context.Context) error {
		_, err := c.js.CreateStream(ctx, s.StreamConfig)
		if taken = hasCode(err, codeStreamNameInUse); taken {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create stream %s with %d replicas: %w", s.Name, s.Replicas, err)
	}
	if taken {
		_, err = c.missing(ctx, []spec{*s})
	}
	return err
}

// persistPause is the pause between attempts while the servers do not answer.
const persistPause = 50 * time.Millisecond

// persist repeats an idempotent request until the servers have a leader that
// answers it, or ctx ends.
func (c *Conn) persist(ctx context.Context, request func(context.Context) error) error {
	for {
		attempt, cancel := c.within(ctx)
		err := request(attempt)
		cancel()
		if err == nil || !isLeaderless(err) {
			return translate(err)
		}
		if pause := events.Sleep(ctx, persistPause); pause != nil {
			return fmt.Errorf("%w; the last attempt: %w", pause, translate(err))
		}
	}
}
