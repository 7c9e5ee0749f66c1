package events

import "fmt"

// Claim is the right to append owner facts to a session.
type Claim struct {
	ID    string // unique to the claim; ownership is this and nothing else
	Epoch uint64 // counts the session's claims, for services and people
	Run   string
	Open  bool // neither parked, released nor finished
}

// Tip is where a fold of one session stands: the position, the chain value and
// the claim. Every fold of a session carries one. The zero value is the tip of
// a session without facts.
type Tip struct {
	Sequence uint64 // of the last fact folded
	Chain    string // over every fact folded
	Claim    Claim  // the newest claim
}

// DamageError reports that the log holds what no correct writer can have
// stored: a changed byte, a missing fact, or a fact that was not fenced.
type DamageError struct {
	Key      Key
	Sequence uint64
	Reason   string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("the log of session %s is damaged at sequence %d: %s; do not continue it, restore it from a replica or a backup", e.Key, e.Sequence, e.Reason)
}

// Advance moves the tip over the next fact. It recomputes the hashes: a fact
// that was changed, or that follows a hole, is a *DamageError, and so is an
// owner fact that is not of the open claim. A hole before an external fact is
// seen at the next fenced one. The tip is unchanged on an error.
func (t *Tip) Advance(r *Record) error {
	damaged := func(format string, args ...any) error {
		return &DamageError{Key{r.Namespace, r.Session}, r.Sequence, fmt.Sprintf(format, args...)}
	}
	if r.Sequence <= t.Sequence {
		return damaged("it follows sequence %d", t.Sequence)
	}
	content := r.Content()
	if content != r.ContentHash {
		return damaged("its bytes do not match their hash")
	}
	next := Tip{Sequence: r.Sequence, Chain: link(t.Chain, content), Claim: t.Claim}
	kind := TypeOf(r.Type)
	fenced := kind.Kind == Owner || kind.Kind == Opening
	if fenced != (r.ChainHash != "") && kind.Kind != Unknown {
		return damaged("a %s must%s carry a chain hash", kind.Name, map[bool]string{false: " not"}[fenced])
	}
	if r.ChainHash != "" && r.ChainHash != next.Chain {
		return damaged("the chain is broken: a fact between sequence %d and this one is missing or was changed", t.Sequence)
	}
	switch {
	case r.Type == claimedType:
		if r.ClaimID == "" || r.Epoch != t.Claim.Epoch+1 {
			return damaged("claim epoch %d follows epoch %d", r.Epoch, t.Claim.Epoch)
		}
		next.Claim = Claim{ID: r.ClaimID, Epoch: r.Epoch, Run: r.Run, Open: true}
	case kind.Kind == Owner:
		if r.ClaimID != t.Claim.ID || !t.Claim.Open {
			return damaged("a %s under claim %q, but the claim is %q (open: %t)", kind.Name, r.ClaimID, t.Claim.ID, t.Claim.Open)
		}
		next.Claim.Open = !kind.Closes
	}
	*t = next
	return nil
}

var claimedType = FactPrefix + "run.claimed"

// Seal gives an event the hashes it has as the next fact after the tip: the
// content hash, and for a fenced fact the chain hash.
func (t *Tip) Seal(e *Event) {
	e.ChainHash = ""
	e.ContentHash = e.Content()
	if k := TypeOf(e.Type).Kind; k == Owner || k == Opening {
		e.ChainHash = link(t.Chain, e.ContentHash)
	}
}

// Verify folds a session's facts from its first one and reports the first
// damage. What it cannot see is the loss of the newest facts, and of external
// facts after the last fenced one: they have no witness in the session.
func Verify(records []Record) (Tip, error) {
	var t Tip
	for i := range records {
		if err := t.Advance(&records[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}
