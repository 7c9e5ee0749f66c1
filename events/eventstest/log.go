package eventstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
)

// TestLog runs every promise of the events.Log port against an implementation.
// open is called once; the suite uses sessions of its own.
func TestLog(t *testing.T, open func(t *testing.T) events.Log) {
	Run(t, open(t), Protocol{}, []Case{
		{"a fenced append expects the session's last sequence", logFence},
		{"of many appends with one expectation one is stored", logRace},
		{"sessions do not disturb each other", logSessions},
		{"an unfenced append is stored whatever stands there", logUnfenced},
		{"what is read is what was appended, byte for byte", logRoundTrip},
		{"reads are prefixes in order and bounded", logReads},
		{"a session without facts is empty, not an error", logEmpty},
		{"an invalid session is refused before anything is sent", logInvalidKey},
		{"an append whose context has ended is unanswered", logCancelled},
		{"a fact of 200 KiB is stored", logLarge},
	})
}

func (b *Bench) fact(id, data string) *events.Event {
	e := &events.Event{ID: id, Type: events.FactPrefix + "message.received", Run: "r", DataContentType: "application/json", Data: []byte(data)}
	b.fill(e)
	(&events.Tip{}).Seal(e)
	return e
}

func logFence(ctx context.Context, b *Bench) error {
	first, err := b.Log.Append(ctx, b.key, b.fact("a", `1`), 0)
	if err != nil {
		return err
	}
	_, again := b.Log.Append(ctx, b.key, b.fact("b", `2`), 0)
	_, ahead := b.Log.Append(ctx, b.key, b.fact("c", `3`), first+7)
	second, err := b.Log.Append(ctx, b.key, b.fact("d", `4`), first)
	if err != nil || second <= first {
		return fmt.Errorf("the second append: sequence %d after %d, %v", second, first, err)
	}
	return errors.Join(
		expect("an append with a passed expectation", again, events.ErrConflict),
		expect("an append with an expectation ahead", ahead, events.ErrConflict))
}

func logRace(ctx context.Context, b *Bench) error {
	var last uint64
	for round := range 20 {
		const racers = 8
		sequences := make([]uint64, racers)
		errs := parallel(racers, func(i int) (err error) {
			sequences[i], err = b.Log.Append(ctx, b.key, b.fact(fmt.Sprintf("%d-%d", round, i), `{}`), last)
			return err
		})
		stored := 0
		for i, err := range errs {
			switch {
			case err == nil:
				stored++
				last = sequences[i]
			case !errors.Is(err, events.ErrConflict) && !errors.Is(err, events.ErrUnanswered):
				return err
			}
		}
		records, err := All(ctx, b.Log, b.key)
		if err != nil {
			return err
		}
		if stored > 1 || len(records) != round+1 {
			return fmt.Errorf("round %d: %d racers were told they won, %d facts stand", round, stored, len(records))
		}
		last = records[round].Sequence
	}
	return nil
}

func logSessions(ctx context.Context, b *Bench) error {
	other := newBench(b.Log, b.Protocol)
	first, err := b.Log.Append(ctx, b.key, b.fact("a", `1`), 0)
	if err != nil {
		return err
	}
	if _, err := b.Log.Append(ctx, other.key, other.fact("b", `2`), 0); err != nil {
		return fmt.Errorf("the first append of another session: %w", err)
	}
	if _, err := b.Log.Append(ctx, b.key, b.fact("c", `3`), first); err != nil {
		return fmt.Errorf("an append after another session's: %w", err)
	}
	records, err := All(ctx, b.Log, b.key)
	if err != nil || len(records) != 2 || records[0].ID != "a" || records[1].ID != "c" {
		return fmt.Errorf("the session reads as %v, %v", ids(records), err)
	}
	return nil
}

func logUnfenced(ctx context.Context, b *Bench) error {
	for i := range 3 {
		if _, err := b.Log.AppendUnfenced(ctx, b.key, b.fact(fmt.Sprint(i), `{}`)); err != nil {
			return err
		}
	}
	// The same fact again is stored again: folds ignore it, not the log.
	if _, err := b.Log.AppendUnfenced(ctx, b.key, b.fact("2", `{}`)); err != nil {
		return err
	}
	records, err := All(ctx, b.Log, b.key)
	if err != nil || len(records) != 4 {
		return fmt.Errorf("4 facts were appended, %v stand (%v)", ids(records), err)
	}
	return nil
}

func logRoundTrip(ctx context.Context, b *Bench) error {
	e := events.Event{
		ID: "id %\"é\u2028", Source: "/a/b%20c", Type: events.FactPrefix + "checkpoint.committed", Subject: "s t",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC), DataContentType: "application/json",
		Revision: 7, Epoch: 9, ClaimID: "c", CommitID: "k", Run: "r", RootRun: "rr", ParentRun: "p",
		CorrelationID: "co", CausationID: "ca", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		AuthType: "user", AuthID: "münchen", DataRef: "sha256:x",
		Extra: map[string]string{"later": "a value with é"},
		Data:  []byte("{ \"n\": 1e400, \"b\":9007199254740993 }\n"),
	}
	b.fill(&e)
	(&events.Tip{}).Seal(&e)
	sequence, err := b.Log.Append(ctx, b.key, &e, 0)
	if err != nil {
		return err
	}
	records, err := All(ctx, b.Log, b.key)
	if err != nil || len(records) != 1 {
		return fmt.Errorf("read %d facts, %v", len(records), err)
	}
	if diff := cmp.Diff(events.Record{Event: e, Sequence: sequence}, records[0]); diff != "" {
		return fmt.Errorf("appended (-) and read (+):\n%s", diff)
	}
	return nil
}

func logReads(ctx context.Context, b *Bench) error {
	const facts = events.MaxRead + 50
	sequences := make([]uint64, facts)
	for i := range facts {
		var err error
		if sequences[i], err = b.Log.AppendUnfenced(ctx, b.key, b.fact(fmt.Sprint(i), `{}`)); err != nil {
			return err
		}
	}
	if last, err := b.Log.Last(ctx, b.key); err != nil || last != sequences[facts-1] {
		return fmt.Errorf("the last sequence is %d, want %d (%v)", last, sequences[facts-1], err)
	}
	if _, err := All(ctx, b.Log, b.key); err != nil { // reads have caught up after it
		return err
	}
	for _, q := range []struct{ after, limit, first, n int }{
		{-1, 1000, 0, events.MaxRead}, {-1, 3, 0, 3}, {9, 5, 10, 5}, {facts - 3, 10, facts - 2, 2}, {facts - 1, 10, 0, 0},
	} {
		var after uint64
		if q.after >= 0 {
			after = sequences[q.after]
		}
		records, err := b.Log.Read(ctx, b.key, after, q.limit)
		if err != nil || len(records) != q.n {
			return fmt.Errorf("a read after fact %d of %d: %d facts, want %d (%v)", q.after, q.limit, len(records), q.n, err)
		}
		for i, r := range records {
			if r.ID != fmt.Sprint(q.first+i) || r.Sequence != sequences[q.first+i] {
				return fmt.Errorf("a read after fact %d has fact %s at place %d", q.after, r.ID, i)
			}
		}
	}
	return nil
}

func logEmpty(ctx context.Context, b *Bench) error {
	records, err := b.Log.Read(ctx, b.key, 0, 10)
	last, lastErr := b.Log.Last(ctx, b.key)
	if len(records) != 0 || last != 0 || err != nil || lastErr != nil {
		return fmt.Errorf("read %d facts (%v), last %d (%v)", len(records), err, last, lastErr)
	}
	return nil
}

func logInvalidKey(ctx context.Context, b *Bench) error {
	var name *events.ErrName
	for _, key := range []events.Key{{}, {Namespace: "n"}, {Namespace: "n", Session: "a.b"}, {Namespace: "*", Session: "s"}, {Namespace: "n", Session: ">"}, {Namespace: "a b", Session: "s"}} {
		_, err := b.Log.Append(ctx, key, b.fact("a", `1`), 0)
		_, unfenced := b.Log.AppendUnfenced(ctx, key, b.fact("a", `1`))
		_, read := b.Log.Read(ctx, key, 0, 1)
		_, last := b.Log.Last(ctx, key)
		for _, err := range []error{err, unfenced, read, last} {
			if !errors.As(err, &name) {
				return fmt.Errorf("session %q: got %v", key, err)
			}
		}
	}
	return nil
}

func logCancelled(ctx context.Context, b *Bench) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := b.Log.Append(ended, b.key, b.fact("a", `1`), 0)
	_, unfenced := b.Log.AppendUnfenced(ended, b.key, b.fact("a", `1`))
	return errors.Join(
		expect("a fenced append", err, events.ErrUnanswered),
		expect("an unfenced append", unfenced, events.ErrUnanswered))
}

func logLarge(ctx context.Context, b *Bench) error {
	data := append(append([]byte(`"`), bytes.Repeat([]byte("x"), 200<<10)...), '"')
	if _, err := b.Log.Append(ctx, b.key, b.fact("a", string(data)), 0); err != nil {
		return err
	}
	records, err := All(ctx, b.Log, b.key)
	if err != nil || len(records) != 1 || !bytes.Equal(records[0].Data, data) {
		return fmt.Errorf("read %d facts, %v", len(records), err)
	}
	return nil
}

func ids(records []events.Record) []string {
	all := make([]string, len(records))
	for i, r := range records {
		all[i] = r.ID
	}
	return all
}
