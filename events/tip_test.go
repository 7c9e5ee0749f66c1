package events_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/agentruntime/agentruntime/events"
)

// history returns the facts of a session with two claims and external facts,
// ending with a fenced one.
func history(t *testing.T) []events.Record {
	t.Helper()
	var tip events.Tip
	var records []events.Record
	add := func(payload any, claim string, epoch uint64) {
		e, err := events.New(payload)
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Source, e.Namespace, e.Session, e.Run = fmt.Sprint("f", len(records)), "/t", "n", "s", "r"
		e.ClaimID, e.Epoch = claim, epoch
		tip.Seal(&e)
		r := events.Record{Event: e, Sequence: uint64(10 * (len(records) + 1))}
		if err := tip.Advance(&r); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	add(events.RunAdmitted{Agent: "a"}, "", 0)
	add(events.RunClaimed{Worker: "w"}, "c1", 1)
	add(events.CheckpointCommitted{}, "c1", 1)
	add(events.MessageReceived{Message: events.Text("m", events.RoleUser, "hello")}, "", 0)
	add(events.CancelRequested{Reason: "why"}, "", 0)
	add(events.RunReleased{Reason: "drain"}, "c1", 1)
	add(events.RunClaimed{Worker: "x"}, "c2", 2)
	add(events.RunCompleted{}, "c2", 2)
	return records
}

func TestChain(t *testing.T) {
	damaged := func(t *testing.T, records []events.Record) {
		t.Helper()
		_, err := events.Verify(records)
		if d := (*events.DamageError)(nil); !errors.As(err, &d) {
			t.Fatalf("got %v, want damage", err)
		}
	}
	t.Run("an intact session verifies", func(t *testing.T) {
		tip, err := events.Verify(history(t))
		if err != nil || tip.Sequence != 80 || tip.Claim != (events.Claim{ID: "c2", Epoch: 2, Run: "r"}) {
			t.Fatalf("got %+v, %v", tip, err)
		}
	})
	for i := range len(history(t)) {
		t.Run(fmt.Sprintf("a flipped bit of fact %d is reported", i), func(t *testing.T) {
			for _, flip := range []func(*events.Record){
				func(r *events.Record) { r.Data[len(r.Data)/2] ^= 1 },
				func(r *events.Record) { r.ID += "x" },
				func(r *events.Record) { r.ContentHash = "x" + r.ContentHash[1:] },
				func(r *events.Record) { r.Extra = map[string]string{"added": "1"} },
			} {
				records := history(t)
				flip(&records[i])
				damaged(t, records)
			}
		})
		t.Run(fmt.Sprintf("a rewritten fact %d with a fresh hash is reported", i), func(t *testing.T) {
			records := history(t)
			records[i].Subject = "rewritten"
			records[i].ContentHash = records[i].Content()
			damaged(t, records)
		})
		t.Run(fmt.Sprintf("a hole at fact %d is reported", i), func(t *testing.T) {
			records := history(t)
			if i == len(records)-1 {
				return // the newest fact has no witness; the README says so
			}
			damaged(t, append(records[:i], records[i+1:]...))
		})
		t.Run(fmt.Sprintf("fact %d read twice is reported", i), func(t *testing.T) {
			records := history(t)
			damaged(t, append(records[:i+1], records[i:]...))
		})
	}
	t.Run("facts that changed places are reported", func(t *testing.T) {
		for i := range len(history(t)) - 1 {
			records := history(t)
			records[i].Event, records[i+1].Event = records[i+1].Event, records[i].Event
			damaged(t, records)
		}
	})
	t.Run("an owner fact after the claim closed is reported", func(t *testing.T) {
		records := history(t)
		tip, err := events.Verify(records)
		if err != nil {
			t.Fatal(err)
		}
		e := records[2].Event
		e.ClaimID, e.Epoch = "c2", 2
		tip.Seal(&e)
		damaged(t, append(records, events.Record{Event: e, Sequence: 90}))
	})
	t.Run("a failed advance leaves the tip as it was", func(t *testing.T) {
		records := history(t)
		var tip events.Tip
		records[0].Data[0] ^= 1
		if err := tip.Advance(&records[0]); err == nil || tip != (events.Tip{}) {
			t.Fatalf("got %+v, %v", tip, err)
		}
	})
}
