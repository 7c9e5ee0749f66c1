package limit

import "time"

// Bucket fills evenly, up to what burst of it is allowed, and may be in debt.
type Bucket struct {
	Lacks float64   `json:"lacks,omitempty"` // to be full; more than it holds: a debt
	At    time.Time `json:"at,omitzero"`

	// What was taken under looser limits is no debt under stricter ones, which would
	// need hours to pay it: it is set aside until limits as loose are back.
	Limit int64   `json:"limit,omitempty"` // of a minute, under which it lacks that
	Aside float64 `json:"aside,omitempty"`
	Loose int64   `json:"loose,omitempty"` // limit under which that was taken
}

// burst is the part of a minute's limit that may be used at once.
const burst = 6

// size is what a full bucket holds.
func size(perMinute int64) float64 { return max(1, float64(perMinute)/burst) }

// level fills the bucket up to now and returns what it holds.
func (b *Bucket) level(perMinute int64, now time.Time) float64 {
	b.fill(perMinute, now)
	return size(perMinute) - b.Lacks
}

func (b *Bucket) fill(perMinute int64, now time.Time) {
	passed := now.Sub(b.At)
	if passed <= 0 {
		return
	}
	if !b.At.IsZero() {
		b.Lacks = max(0, b.Lacks-passed.Minutes()*float64(perMinute))
		b.Aside = max(0, b.Aside-passed.Minutes()*float64(b.Loose))
	}
	b.At = now
}

// under takes note of the limit that is configured from now on. Under a stricter one
// than before the bucket is empty at worst.
func (b *Bucket) under(perMinute int64, now time.Time) {
	if perMinute == 0 || perMinute == b.Limit {
		return
	}
	before := b.Limit
	b.Limit = perMinute
	if before == 0 {
		return
	}
	b.fill(before, now)
	loose := max(before, b.Loose)
	b.Lacks, b.Aside, b.Loose = b.Lacks+b.Aside, 0, 0
	if over := b.Lacks - size(perMinute); over > 0 && perMinute < loose {
		b.Lacks, b.Aside, b.Loose = size(perMinute), over, loose
	}
}
