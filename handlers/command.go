package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"github.com/agentruntime/agentruntime/events"
)

// HandleCommand carries out one message of the command stream; name is what its
// subject asks for, for example run.start. Nil means that everything it causes
// is stored, a refusal included, and the message may be acknowledged; otherwise
// it must come again.
func (h *Host) HandleCommand(ctx context.Context, namespace, name string, header map[string][]string, data []byte) error {
	command, err := events.Decode(header, data)
	switch {
	case err != nil:
		command = named(header, data)
		err = reject(RejectMalformed, "%v", err)
	case events.TypeOf(command.Type).Kind == events.Command && command.Type != events.TypePrefix+name:
		err = reject(RejectMalformed, "type %q does not belong on a subject that ends in %s", command.Type, name)
	default:
		_, err = h.Admit(ctx, namespace, &command)
	}
	h.countCommand(command.Type, err)
	var refused *Rejection
	if err == nil {
		return nil
	}
	if !errors.As(err, &refused) {
		return fmt.Errorf("command %s of %s: %w", command.ID, command.Source, err)
	}
	h.Logger.Warn("a command was refused", "namespace", namespace, "source", command.Source, "id", command.ID, "reason", refused.Reason, "error", refused.Detail)
	return h.refuse(ctx, namespace, header, data, &command, refused)
}

// countCommand counts a command once it is decided. Types that anybody may make
// up are one.
func (h *Host) countCommand(commandType string, err error) {
	kind := "other"
	if t := events.TypeOf(commandType); t.Kind == events.Command {
		kind = t.Short()
	}
	var refused *Rejection
	switch {
	case err == nil:
		h.Meter.CommandHandled(kind, "accepted")
	case errors.As(err, &refused):
		h.Meter.CommandHandled(kind, refused.Reason)
	}
}

// maxNamed bounds the id, source and type of a message that is no event, in
// bytes.
const maxNamed = 256

// named reads what a message that is no event calls itself, so that its sender
// recognizes the answer.
func named(header map[string][]string, data []byte) events.Event {
	var e struct{ ID, Source, Type string }
	for name, values := range header {
		if len(values) == 0 {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			value = values[0]
		}
		switch strings.ToLower(name) {
		case "ce-id":
			e.ID = value
		case "ce-source":
			e.Source = value
		case "ce-type":
			e.Type = value
		}
	}
	if e.ID == "" && e.Source == "" {
		_ = json.Unmarshal(data, &e) // what does not parse has no name
	}
	clean := func(s string) string {
		s = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return -1
		}, strings.ToValidUTF8(s, ""))
		return bounded(s, maxNamed)
	}
	return events.Event{ID: clean(e.ID), Source: clean(e.Source), Type: clean(e.Type), Data: data}
}

// refuse answers a command on the public stream and keeps it as a dead letter.
func (h *Host) refuse(ctx context.Context, namespace string, header map[string][]string, data []byte, command *events.Event, refused *Rejection) error {
	if events.CheckNamespace(namespace) != nil {
		namespace = noNamespace
	}
	if err := h.bury(ctx, namespace, refused.Reason, header, data, refused); err != nil {
		return fmt.Errorf("keep a refused command: %w", err)
	}
	e, err := events.New(events.RunRejectedData{Command: h.Redactor.Redact(command.ID), Source: h.Redactor.Redact(command.Source), Type: h.Redactor.Redact(command.Type), Reason: refused.Reason, Error: h.Redactor.Redact(refused.Detail)})
	if err != nil {
		return err
	}
	body, err := events.HashJSON(command.Data)
	if err != nil {
		body = events.Derive(52, string(data))
	}
	e.ID = events.Derive(26, "rejected", namespace, command.Source, command.ID, body)
	e.Source, e.Namespace, e.Time = "/agentruntime", namespace, h.Now().UTC()
	e.CorrelationID, e.CausationID, e.TraceParent = h.Redactor.Redact(command.ID), h.Redactor.Redact(command.ID), command.TraceParent
	return h.Public.Publish(ctx, &e, events.Position{})
}

// noNamespace stands for a namespace that cannot be part of a subject.
const noNamespace = "invalid"
