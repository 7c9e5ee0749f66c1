package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Public is the stream of events for the outside.
type Public struct {
	Conn *Conn
}

// Attributes of a public event that hold its position.
const (
	attributeShard    = "shard"
	attributePosition = "position"
)

// none stands in the subject for a session or run that the event has not.
const none = "-"

// Publish stores a public event. Its id must be derived from the fact it tells
// of: the same one again is dropped within the server's window and is stored
// twice beyond it, for subscribers to drop. A zero position is not noted.
func (p *Public) Publish(ctx context.Context, event *events.Event, at events.Position) error {
	row := events.TypeOf(event.Type)
	if row.Kind != events.Public {
		return fmt.Errorf("publish %s: it is not a public event", event.Type)
	}
	filter := Filter{Namespace: event.Namespace, Type: row.Short(), Session: event.Session, Run: event.Run}
	if err := errors.Join(events.CheckNamespace(event.Namespace), filter.check()); err != nil {
		return fmt.Errorf("publish %s: %w", event.Type, err)
	}
	header := nats.Header(event.Header())
	header[headerMessageID] = []string{event.ID}
	if at.Sequence != 0 {
		header["ce-"+attributeShard] = []string{strconv.Itoa(at.Shard)}
		header["ce-"+attributePosition] = []string{strconv.FormatUint(at.Sequence, 10)}
	}
	_, err := p.Conn.publish(ctx, place{streamEvents, filter.subject(none)}, p.Conn.timeout, header, event.Data)
	return err
}

// Positions returns, for each shard of which an event is kept, the position of
// the newest one. It reads backwards until it has found every shard, or all
// there is.
func (p *Public) Positions(ctx context.Context) (map[int]uint64, error) {
	found := make(map[int]uint64)
	info, err := p.Conn.stored(ctx, streamEvents)
	if err != nil {
		return nil, err
	}
	if info == nil {
		return nil, fmt.Errorf("read stream %s: %w", streamEvents, events.ErrNotFound)
	}
	for end := info.State.LastSeq; end >= max(info.State.FirstSeq, 1) && len(found) < p.Conn.layout.Shards; {
		begin := max(info.State.FirstSeq, 1, end-min(end, events.MaxRead)+1)
		if err := p.positionsBetween(ctx, begin, end, found); err != nil {
			return nil, fmt.Errorf("read stream %s: %w", streamEvents, err)
		}
		end = begin - 1
	}
	return found, nil
}

// positionsBetween adds the newest positions between two sequences to those
// found after them.
func (p *Public) positionsBetween(ctx context.Context, begin, end uint64, found map[int]uint64) error {
	here := make(map[int]uint64)
	for begin <= end {
		next := begin
		err := p.Conn.readBatch(ctx, streamEvents, batchRequest{begin, "agent.event.>", int(end - begin + 1)}, p.Conn.timeout, func(sequence uint64, m *nats.Msg) error {
			next = sequence + 1
			if sequence <= end {
				notePosition(m.Header, here)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if next == begin {
			break
		}
		begin = next
	}
	for shard, position := range here {
		if _, known := found[shard]; !known {
			found[shard] = position
		}
	}
	return nil
}

func notePosition(header nats.Header, found map[int]uint64) {
	values, positions := header["ce-"+attributeShard], header["ce-"+attributePosition]
	if len(values) == 0 || len(positions) == 0 {
		return
	}
	shard, err := strconv.Atoi(values[0])
	position, err2 := strconv.ParseUint(positions[0], 10, 64)
	if err == nil && err2 == nil {
		found[shard] = max(found[shard], position)
	}
}

// Filter selects public events. An empty field selects all.
type Filter struct {
	Namespace string
	Type      string // without its prefix, for example run.completed
	Session   string
	Run       string
}

func (f Filter) check() error {
	if f.Namespace != "" {
		if err := events.CheckNamespace(f.Namespace); err != nil {
			return err
		}
	}
	if f.Session != "" {
		if err := events.CheckSession(f.Session); err != nil {
			return err
		}
	}
	if f.Run != "" {
		return events.CheckRun(f.Run)
	}
	return nil
}

// subject returns the filter's subject, with what stands for an empty field.
func (f Filter) subject(empty string) string {
	token := func(s string) string {
		if s == "" {
			return empty
		}
		return events.Token(s)
	}
	return "agent.event." + token(f.Namespace) + "." + token(f.Type) + "." + token(f.Session) + "." + token(f.Run)
}

// End returns the sequence of the newest public event, or 0.
func (p *Public) End(ctx context.Context) (uint64, error) {
	info, err := p.Conn.stored(ctx, streamEvents)
	if err != nil || info == nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}
