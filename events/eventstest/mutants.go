package eventstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
)

// mutant is a second, plain implementation of the append rules whose parts can
// be left out one by one. With all of them it passes the suite; with one
// missing, the suite must refuse it.
type mutant struct {
	lastRecordOnly   bool // decides from the newest fact alone
	committedFirst   bool // looks no further than its own commit
	restamps         bool // sends the old decision with a new expectation
	epochOwns        bool // takes equal epochs for one owner
	ownsWithoutCheck bool // does not compare its claim with the fold's
	conflictIsLost   bool // takes a refused expectation for a lost race
}

var mutantIDs atomic.Int64

func (m mutant) commit(ctx context.Context, log events.Log, key events.Key, s events.State, decide func() (*events.Event, error)) (*events.Record, error) {
	var own *events.Event
	for {
		if !m.restamps || own == nil {
			var err error
			if own, err = decide(); own == nil || err != nil {
				return nil, err
			}
		}
		tip := s.Tip()
		if err := m.holds(tip, own); err != nil {
			return nil, err
		}
		own.CommitID = fmt.Sprintf("mutant-%d-%d", time.Now().UnixNano(), mutantIDs.Add(1))
		own.ID = own.CommitID
		tip.Seal(own)
		above, err := m.send(ctx, log, key, tip.Sequence, own)
		if err != nil {
			return nil, err
		}
		for i := range above {
			if err := s.Fold(&above[i]); err != nil {
				return nil, err
			}
		}
		if above[0].CommitID == own.CommitID {
			return &above[0], nil
		}
	}
}

func (m mutant) holds(tip events.Tip, own *events.Event) error {
	switch {
	case events.TypeOf(own.Type).Kind != events.Owner || m.ownsWithoutCheck:
		return nil
	case m.epochOwns && own.Epoch != tip.Claim.Epoch, !m.epochOwns && own.ClaimID != tip.Claim.ID:
		return events.ErrFenced
	case !tip.Claim.Open:
		return events.ErrClaimClosed
	}
	return nil
}

// send returns what stands above the expected sequence once that decides, own
// first when it is committed.
func (m mutant) send(ctx context.Context, log events.Log, key events.Key, expected uint64, own *events.Event) ([]events.Record, error) {
	for ctx.Err() == nil {
		sequence, err := log.Append(ctx, key, own, expected)
		if err == nil {
			return []events.Record{{Event: *own, Sequence: sequence}}, nil
		}
		above := readAbove(ctx, log, key, expected)
		mine := func(r events.Record) bool {
			return r.CommitID == own.CommitID || m.epochOwns && r.Type == own.Type && r.Epoch == own.Epoch
		}
		switch {
		case len(above) == 0 && m.conflictIsLost:
			return nil, events.ErrFenced
		case len(above) == 0:
			_ = events.Sleep(ctx, time.Millisecond)
			continue
		case m.lastRecordOnly && mine(above[len(above)-1]):
			return above, nil
		case m.committedFirst && mine(above[0]):
			return above, nil
		}
		judged := above
		if m.lastRecordOnly {
			judged = above[len(above)-1:]
		}
		if slices.ContainsFunc(judged, func(r events.Record) bool {
			return events.TypeOf(r.Type).Kind != events.External && !mine(r)
		}) {
			return nil, events.ErrFenced
		}
		return above, nil
	}
	return nil, events.ErrUnresolved
}

// TestMutants runs the suites against protocols with one part missing, over a
// log, and fails when a suite accepts one of them.
func TestMutants(t *testing.T, log events.Log) {
	t.Run("nothing missing", func(t *testing.T) { Run(t, log, Protocol{Commit: mutant{}.commit}, AppenderCases()) })
	for name, m := range map[string]mutant{
		"last record only":          {lastRecordOnly: true},
		"committed outranks fenced": {committedFirst: true},
		"old decision re-stamped":   {restamps: true},
		"epoch instead of claim id": {epochOwns: true},
		"any claim is mine":         {ownsWithoutCheck: true},
		"a conflict is a lost race": {conflictIsLost: true},
	} {
		t.Run(name, func(t *testing.T) { refused(t, log, Protocol{Commit: m.commit}, AppenderCases()) })
	}
	for name, attend := range brokenAttendance() {
		t.Run(name, func(t *testing.T) { refused(t, log, Protocol{Attend: attend}, AttendCases()) })
	}
}

// mutantTimeout bounds a case of a broken protocol, which may never end.
const mutantTimeout = 5 * time.Second

// refused passes when at least one case fails; it stops at the first.
func refused(t *testing.T, log events.Log, p Protocol, cases []Case) {
	t.Helper()
	for _, c := range cases {
		ctx, cancel := context.WithTimeout(t.Context(), mutantTimeout)
		err := RunCase(ctx, log, p, c)
		cancel()
		if err != nil {
			t.Logf("refused by %q: %v", c.Name, err)
			return
		}
	}
	t.Error("no case of the suite refuses it")
}

// readAbove reads to where the leader stands, past failing reads.
func readAbove(ctx context.Context, log events.Log, key events.Key, after uint64) []events.Record {
	var above []events.Record
	last, err := log.Last(ctx, key)
	for (err != nil || after < last) && ctx.Err() == nil {
		if err != nil {
			last, err = log.Last(ctx, key)
			continue
		}
		records, _ := log.Read(ctx, key, after, events.MaxRead)
		if len(records) > 0 {
			above = append(above, records...)
			after = records[len(records)-1].Sequence
		}
	}
	return above
}

type attend = func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error

func brokenAttendance() map[string]attend {
	appender := func(log events.Log) *events.Appender {
		return &events.Appender{Log: log, NewID: func() string { return fmt.Sprint("attend", mutantIDs.Add(1)) }, Pause: events.Sleep}
	}
	forgiving := func(cause error) attend {
		return func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error {
			if err := appender(log).Attend(ctx, hint, e); !errors.Is(err, cause) {
				return err
			}
			return nil
		}
	}
	partial := func(sequence, leaderRead, keep bool) attend {
		return func(ctx context.Context, log events.Log, hint events.Hint, e events.Errand) error {
			a := appender(log)
			if !sequence {
				hint.Sequence = 0
			}
			if err := a.Load(ctx, hint.Key, e, hint.Sequence); err != nil {
				return err
			}
			for again := true; again; again = e.Runnable() {
				if e.Runnable() {
					if err := e.Drive(ctx); err != nil {
						return err
					}
				}
				if leaderRead {
					if err := a.LoadLatest(ctx, hint.Key, e); err != nil {
						return err
					}
				}
			}
			if !keep {
				return nil
			}
			return e.Keep(ctx)
		}
	}
	return map[string]attend{
		"acknowledge when busy":        forgiving(events.ErrBusy),
		"acknowledge when fenced":      forgiving(events.ErrFenced),
		"acknowledge when unresolved":  forgiving(events.ErrUnresolved),
		"the hint's sequence ignored":  partial(false, false, true),
		"no leader read before an ack": partial(true, false, true),
		"promises not kept":            partial(true, true, false),
	}
}
