package jetstream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/agentruntime/agentruntime/events"
)

// contentHash names bytes by what they are.
func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// checkHash refuses what contentHash cannot have returned.
func checkHash(hash string) error {
	if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
		return fmt.Errorf("%q is no content hash", hash)
	}
	return nil
}

// DamagedError reports stored bytes that are not those they are named after.
type DamagedError struct {
	Where string
	Hash  string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s %s is damaged: its bytes do not match its name; restore it from a replica or a backup", e.Where, e.Hash)
}

// Is makes it an events.ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == events.ErrDamaged }
