package handlers

import (
	"context"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
)

// tell hands a run under way a message. It is delivered at the run's next model
// boundary; one that comes too late for that stays in the conversation.
func (a *admission) tell(ctx context.Context) (*Admission, error) {
	var data events.MessageRun
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	if strings.TrimSpace(data.Message) == "" {
		return nil, reject(RejectMalformed, "message is missing")
	}
	if err := checkFiles(data.Files); err != nil {
		return nil, err
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	id := "message-" + events.Derive(16, a.cause.Source, a.cause.ID)
	admitted := &Admission{Run: data.Run, Session: key.Session}
	run, err := a.find(ctx, key, data.Run)
	if err != nil {
		return nil, err
	}
	if err := a.accept(ctx, key, data.Run, true); err != nil {
		return nil, err
	}
	if !run.State.Terminal() && !slices.Contains(run.Heard, id) {
		files, err := a.store(ctx, key, data.Files)
		if err != nil {
			return nil, err
		}
		message := events.Text(id, events.RoleUser, data.Message)
		message.Parts = append(message.Parts, files...)
		if err := a.host.notify(ctx, key, data.Run, id, events.MessageReceived{Message: message}); err != nil {
			return nil, err
		}
	}
	if !run.State.Terminal() {
		if run, err = a.find(ctx, key, data.Run); err != nil || !run.State.Terminal() {
			return admitted, err
		}
	}
	heard, err := a.heard(ctx, key, data.Run, id)
	if err == nil && !heard {
		return nil, reject(RejectEnded, "run %s has ended; continue its session instead", data.Run)
	}
	return admitted, err
}

// heard reports whether an external fact came to a run before the run ended: one
// after the end says nothing.
func (a *admission) heard(ctx context.Context, key events.Key, run, id string) (bool, error) {
	s, err := a.host.Latest(ctx, key)
	if err != nil {
		return false, err
	}
	for after := uint64(0); after < s.At.Sequence; {
		records, err := a.host.Log.Read(ctx, key, after, events.MaxRead)
		if err == nil && len(records) == 0 {
			err = a.host.Pause(ctx, readPause)
		}
		if err != nil {
			return false, err
		}
		for _, f := range records {
			if after = f.Sequence; f.Run == run && events.TypeOf(f.Type).Ends {
				return false, nil
			}
			if f.ID == id {
				return true, nil
			}
		}
	}
	return false, nil
}
