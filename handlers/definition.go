package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Definitions stores versions of agent definitions by their content, and for
// each name of a namespace which version new runs get.
type Definitions interface {
	// Put stores a version and makes it the newest one of its name.
	Put(ctx context.Context, namespace, slug string, version []byte) (hash string, err error)

	// Get returns a version. An absent one wraps events.ErrNotFound.
	Get(ctx context.Context, namespace, hash string) ([]byte, error)

	// Latest returns the hash of the newest version. An unknown name wraps
	// events.ErrNotFound.
	Latest(ctx context.Context, namespace, slug string) (hash string, err error)

	// Names returns the names of a namespace, with the hash of each newest
	// version.
	Names(ctx context.Context, namespace string) (map[string]string, error)
}

// Version is one version of an agent: all that a run needs of files, pinned.
type Version struct {
	Agent        events.AgentDefinition `json:"agent"`
	Capabilities []events.Capability    `json:"capabilities,omitempty"`

	// Subagents are the pinned definitions of the children, once a run is
	// resolved. They are stored as versions of their own.
	Subagents []events.AgentDefinition `json:"-"`
}

// Contract returns the contract that a run of this version is begun with.
func (v *Version) Contract() (string, error) {
	return runtime.ContractHash(&v.Agent, v.Subagents, v.Capabilities)
}

// Apply makes a version the current one of its agent in a namespace. Runs under
// way keep theirs.
func (h *Host) Apply(ctx context.Context, namespace string, v *Version) (hash string, err error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return "", err
	}
	if err := v.Check(); err != nil {
		return "", err
	}
	data, err := events.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode agent %s: %w", v.Agent.Slug, err)
	}
	if hash, err = h.Definitions.Put(ctx, namespace, v.Agent.Slug, data); err != nil {
		return "", fmt.Errorf("store agent %s: %w", v.Agent.Slug, err)
	}
	return hash, nil
}

// version reads a pinned version.
func (h *Host) version(ctx context.Context, namespace, hash string) (*Version, error) {
	data, err := h.Definitions.Get(ctx, namespace, hash)
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", hash, err)
	}
	var v Version
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", hash, err)
	}
	return &v, nil
}

// MissingVersionError reports a run whose pinned definition is not stored. The
// run stays as it is.
type MissingVersionError struct {
	Run               string
	Agent, Definition string
	Contract          string // admitted
}

func (e *MissingVersionError) Error() string {
	return fmt.Sprintf("run %s was admitted with version %s of agent %s (contract %s), which is not stored here: restore the definitions bucket; no other version is used in its place", e.Run, e.Definition, e.Agent, e.Contract)
}

// isUndefined reports that the definition of a run is not to be had as the run was
// admitted with it.
func isUndefined(err error) bool {
	var missing *MissingVersionError
	var contract *runtime.ContractError
	return errors.As(err, &missing) || errors.As(err, &contract)
}

func contractError(run string, a *events.RunAdmitted, binary string) error {
	return &runtime.ContractError{RunID: run, Contract: a.Contract, BinaryContract: binary}
}

// grant leaves the capabilities that a run was granted.
func (v *Version) grant(names []string) {
	v.Capabilities = slices.DeleteFunc(v.Capabilities, func(c events.Capability) bool { return !slices.Contains(names, c.Name) })
}
