package events

// Broken appenders, for the test that the suite refuses them.

// LastRecordOnly decides an append from the newest fact alone.
func LastRecordOnly(a *Appender) {
	a.judge = func(own *Event, above []Record) verdict {
		if len(above) > 1 {
			above = above[len(above)-1:]
		}
		return judgeAbove(own, above)
	}
}

// CommittedOutranksFenced looks no further than its own commit.
func CommittedOutranksFenced(a *Appender) {
	a.judge = func(own *Event, above []Record) verdict {
		if len(above) > 0 && above[0].CommitID == own.CommitID {
			return committed
		}
		return judgeAbove(own, above)
	}
}

// EpochInsteadOfClaim takes equal epochs for one owner.
func EpochInsteadOfClaim(a *Appender) {
	a.holds = func(tip Tip, own *Event) error {
		if TypeOf(own.Type).Kind == Owner && own.Epoch != tip.Claim.Epoch {
			return ErrFenced
		}
		return nil
	}
	a.judge = func(own *Event, above []Record) verdict {
		same := make([]Record, len(above))
		for i, r := range above {
			if r.Epoch == own.Epoch && r.Type == own.Type {
				r.CommitID = own.CommitID
			}
			same[i] = r
		}
		return judgeAbove(own, same)
	}
}

// HoldsAnyClaim appends owner facts without looking whose the claim is.
func HoldsAnyClaim(a *Appender) {
	a.holds = func(Tip, *Event) error { return nil }
}

// GivesUpOnConflict takes a refused expectation for a lost race.
func GivesUpOnConflict(a *Appender) {
	a.judge = func(own *Event, above []Record) verdict {
		if len(above) == 0 {
			return fenced
		}
		return judgeAbove(own, above)
	}
}
