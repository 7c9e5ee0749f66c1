package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// HandleCommand carries out one message of the command stream. Nil means that
// everything it causes is stored, a refusal included, and the message may be
// acknowledged; otherwise it must come again.
func (h *Host) HandleCommand(ctx context.Context, namespace string, header map[string][]string, data []byte) error {
	command, err := events.Decode(header, data)
	if err == nil {
		_, err = h.Admit(ctx, namespace, &command)
	} else {
		err = reject(RejectMalformed, "%v", err)
	}
	kind := strings.TrimPrefix(command.Type, events.TypePrefix)
	var refused *Rejection
	switch {
	case err == nil:
		h.Meter.CommandHandled(kind, "accepted")
		return nil
	case !errors.As(err, &refused):
		return fmt.Errorf("command %s of %s: %w", command.ID, command.Source, err)
	}
	h.Meter.CommandHandled(kind, refused.Reason)
	h.Logger.Warn("a command was refused", "namespace", namespace, "source", command.Source, "id", command.ID, "reason", refused.Reason, "error", refused.Detail)
	return h.refuse(ctx, namespace, header, data, &command, refused)
}

// refuse answers a command on the public stream and keeps it as a dead letter.
func (h *Host) refuse(ctx context.Context, namespace string, header map[string][]string, data []byte, command *events.Event, refused *Rejection) error {
	if events.CheckNamespace(namespace) != nil {
		namespace = noNamespace
	}
	if err := h.Dead.Bury(ctx, namespace, refused.Reason, header, data, refused); err != nil {
		return fmt.Errorf("keep a refused command: %w", err)
	}
	e, err := events.New(events.RunRejectedData{Command: command.ID, Source: command.Source, Type: command.Type, Reason: refused.Reason, Error: h.Redactor.Redact(refused.Detail)})
	if err != nil {
		return err
	}
	body, err := events.HashJSON(command.Data)
	if err != nil {
		body = events.Derive(52, string(data))
	}
	e.ID = events.Derive(26, "rejected", namespace, command.Source, command.ID, body)
	e.Source, e.Namespace, e.Time = "/agentruntime", namespace, h.Now().UTC()
	e.CorrelationID, e.CausationID, e.TraceParent = command.ID, command.ID, command.TraceParent
	return h.Public.Publish(ctx, &e, events.Position{})
}

// noNamespace stands for a namespace that cannot be part of a subject.
const noNamespace = "invalid"
