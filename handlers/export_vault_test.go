package handlers

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// FilesOf returns what the runs of a session keep files with.
func (h *Host) FilesOf(key events.Key) runtime.Files { return files{h, key} }

// SealBytes is sealBytes.
func (v *Vault) SealBytes(ctx context.Context, key events.Key, use string, data []byte) ([]byte, error) {
	return v.sealBytes(ctx, key, use, data)
}

// Prepare is prepare.
func (h *Host) Prepare(ctx context.Context, key events.Key, e *events.Event) error {
	return h.prepare(ctx, key, e)
}
