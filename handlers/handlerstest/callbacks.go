package handlerstest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
)

// place is one callback of a session.
type place struct {
	call  string
	index int
}

// listed is a line of a notice: a callback and what became of it.
var listed = regexp.MustCompile(`(?m)^(\d+)\. (\S+): (?:was sent again with the same key and |as its service says it )?(not known whether|a read that was under way|not made|did not take effect|failed|finished)`)

// means is what a line says by its words.
var means = map[string]string{"not known whether": "unknown", "a read that was under way": "read", "not made": "skipped", "did not take effect": "skipped", "failed": "failed", "finished": "finished"}

// checkCallbacks holds what the model was told of interrupted and failed scripts
// against the log and the services' ledger: the notice of an interruption lists
// exactly what the log has, nothing that changes something was sent before it was
// announced, and what finished did reach its service.
func (w *World) checkCallbacks(records []events.Record, transcript []events.Message) error {
	made := make(map[place]events.CallbackMade)
	state := make(map[place]string)
	direct := make(map[string]bool)
	for i := range records {
		payload, err := records[i].Payload()
		if err != nil {
			return err
		}
		if p, ok := payload.(events.CheckpointCommitted); ok {
			announceDirect(direct, &p.Delta)
			if p.Direct != nil {
				made[place{p.Direct.CallID, 0}] = p.Direct.Made[0]
			}
		}
		r, ok := payload.(events.CallbacksRecorded)
		if !ok {
			continue
		}
		for _, m := range r.Made {
			at := place{r.CallID, m.Index}
			if made[at].Capability != "" {
				return fmt.Errorf("callback %v is announced twice", at)
			}
			if made[at] = m; m.Effect == events.EffectRead {
				state[at] = "read"
			} else {
				state[at] = "unknown"
			}
		}
		for _, d := range r.Done {
			at := place{r.CallID, d.Index}
			switch {
			case made[at].Capability == "":
				return fmt.Errorf("callback %v ended and was not announced", at)
			case d.Outcome != events.OutcomeUnknown:
				state[at] = map[events.Outcome]string{events.OutcomeOK: "finished", events.OutcomeSkipped: "skipped", events.OutcomeDenied: "failed", events.OutcomeError: "failed"}[d.Outcome]
			}
		}
	}
	sent := make(map[place]bool)
	var runs []string
	for i := range records {
		if run := records[i].Run; run != "" && !slices.Contains(runs, run) {
			runs = append(runs, run)
		}
	}
	for _, run := range runs {
		for _, c := range w.Services.calls(run) {
			at := place{c.Header[handlers.HeaderCall], number(c.Header[handlers.HeaderIndex])}
			if direct[at.call] {
				continue
			}
			if sent[at] = true; w.Effects[c.Header[handlers.HeaderCapability]] != events.EffectRead && made[at].Key != c.Key {
				return fmt.Errorf("callback %v was sent under the key %q and announced under %q", at, c.Key, made[at].Key)
			}
		}
	}
	var errs []error
	for _, m := range transcript {
		for _, p := range m.Parts {
			if p.Result != nil && p.Result.Name == events.ToolRunJS && p.Result.Outcome != events.OutcomeOK {
				errs = append(errs, checkNotice(p.Result, state, made, sent))
			}
		}
	}
	return errors.Join(errs...)
}

// announceDirect notes the calls that the model made itself: their predispatch
// announces them.
func announceDirect(direct map[string]bool, d *events.CheckpointDelta) {
	note := func(id, name string, state events.CallState) {
		if state == events.CallDispatched && name != events.ToolRunJS {
			direct[id] = true
		}
	}
	if d.Calls != nil {
		for _, c := range *d.Calls {
			note(c.ID, c.Name, c.State)
		}
	}
	for _, c := range d.Settle {
		note(c.ID, c.Name, c.State)
	}
}

// checkNotice checks what one result lists.
func checkNotice(r *events.ToolResult, state map[place]string, made map[place]events.CallbackMade, sent map[place]bool) error {
	text := r.Parts[0].Text
	want, got := make(map[int]string), make(map[int]string)
	for at, s := range state {
		if at.call == r.CallID {
			want[at.index] = s
		}
	}
	for _, line := range listed.FindAllStringSubmatch(text, -1) {
		index := number(line[1]) - 1
		at := place{r.CallID, index}
		got[index] = means[line[3]]
		if name := made[at].Capability; name != "" && name != line[2] {
			return fmt.Errorf("call %s: callback %d is listed as one of %s, and was one of %s", r.CallID, index, line[2], name)
		}
		if got[index] == "finished" && !sent[at] {
			return fmt.Errorf("call %s: callback %d is told to have finished and was never sent:\n%s", r.CallID, index, text)
		}
	}
	for at := range sent {
		if at.call == r.CallID && made[at].Effect != events.EffectRead && made[at].Capability != "" && got[at.index] == "" {
			return fmt.Errorf("call %s: callback %d was sent and is not listed:\n%s", r.CallID, at.index, text)
		}
	}
	if r.Outcome == events.OutcomeUnknown && !maps.Equal(want, got) {
		return fmt.Errorf("call %s: the notice says %v, the log %v:\n%s", r.CallID, got, want, text)
	}
	return nil
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// calls returns the callbacks of a run that reached a service, inquiries left out.
func (s *Services) calls(run string) []ServiceCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.Ledger), func(c ServiceCall) bool {
		return c.Header[handlers.HeaderRun] != run || c.Header[handlers.HeaderInquiry] != ""
	})
}

// Sent returns how often a callback with that key reached its service.
func (s *Services) Sent(key string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.Ledger {
		if c.Key == key && c.Header[handlers.HeaderInquiry] == "" {
			n++
		}
	}
	return n
}

// once demands that nothing reached a service twice, but for what is idempotent,
// which is the same each time. It returns each callback once.
func (w *World) once() ([]ServiceCall, error) {
	var list []ServiceCall
	for _, c := range w.Services.Ledger {
		if c.Header[handlers.HeaderInquiry] != "" {
			continue
		}
		at := slices.IndexFunc(list, func(o ServiceCall) bool { return o.Key == c.Key })
		switch {
		case at < 0:
			list = append(list, c)
		case w.Effects[c.Header[handlers.HeaderCapability]] != events.EffectIdempotent:
			return nil, fmt.Errorf("the service was called twice for %s", c.Key)
		case c.Subject != list[at].Subject || !bytes.Equal(c.Data, list[at].Data):
			return nil, fmt.Errorf("%s was sent again as something else: %s, first %s", c.Key, c.Data, list[at].Data)
		}
	}
	return list, nil
}

// effects returns the effect of each capability that the versions name.
func effects(versions []handlers.Version) map[string]events.Effect {
	all := make(map[string]events.Effect)
	for _, v := range versions {
		for _, c := range v.Capabilities {
			all[c.Name] = c.Effect
		}
	}
	return all
}
