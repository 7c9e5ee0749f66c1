package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// API is the synchronous service: what agent.api.<namespace>.<verb> answers.
type API struct {
	*Host
	Lister Lister
	Notes  Notes // optional
}

// The verbs of the API.
const (
	VerbStart       = "run.start"
	VerbContinue    = "run.continue"
	VerbRetry       = "run.retry"
	VerbCancel      = "run.cancel"
	VerbMessage     = "run.message"
	VerbTree        = "run.tree"
	VerbSettle      = "call.settle"
	VerbCalls       = "call.list"
	VerbTopUp       = "budget.topup"
	VerbBudget      = "budget.show"
	VerbGet         = "run.get"
	VerbList        = "run.list"
	VerbEvents      = "run.events"
	VerbResolve     = "call.resolve"
	VerbAgentsApply = "agents.apply"
	VerbAgentsList  = "agents.list"
	VerbFilePut     = "file.put"
)

// Verbs lists every verb.
var Verbs = []string{VerbStart, VerbContinue, VerbRetry, VerbCancel, VerbMessage, VerbGet, VerbTree, VerbList, VerbEvents, VerbCalls, VerbSettle, VerbResolve, VerbTopUp, VerbBudget, VerbErase, VerbAgentsApply, VerbAgentsList, VerbFilePut}

// APIError is a typed answer: what went wrong, in one stable word and for
// people.
type APIError struct {
	Code    string // a reason of a Rejection, or unavailable
	Message string
}

func (e *APIError) Error() string { return e.Code + ": " + e.Message }

// CodeUnavailable is the one code of an APIError that is no reason of a
// Rejection: nothing is known of the outcome, or the answer is not to be had now.
// Ask again.
const CodeUnavailable = "unavailable"

// RunRequest is what run.get, run.tree, run.events and budget.show are asked.
type RunRequest struct {
	Run   string `json:"run"`
	After uint64 `json:"after,omitempty"` // sequence, for run.events
	Limit int    `json:"limit,omitempty"`
	Brief bool   `json:"brief,omitempty"` // for run.tree: counts instead of the runs below
}

// ListAnswer is what run.list answers a Filter. Next, when there are more runs,
// is what Filter.After of the next page is.
type ListAnswer struct {
	Runs []Row  `json:"runs"`
	Next string `json:"next,omitempty"`
}

// RunFactsAnswer is what run.events answers. More tells to ask again, after the
// last sequence.
type RunFactsAnswer struct {
	Events []FactAnswer `json:"events"`
	More   bool         `json:"more"`
}

// FactAnswer is one fact, as a structured CloudEvent, with its sequence.
type FactAnswer struct {
	Sequence uint64          `json:"sequence"`
	Event    json.RawMessage `json:"event"`
}

// AgentsAnswer is what agents.list answers: agents and their versions.
type AgentsAnswer struct {
	Agents map[string]string `json:"agents"`
}

// AppliedAnswer is what agents.apply answers.
type AppliedAnswer struct {
	Agent   string `json:"agent"`
	Version string `json:"version"`
}

// Handle answers one request. The error is always an *APIError, redacted: it
// repeats what it was asked.
func (a *API) Handle(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) (any, error) {
	answer, err := a.handle(ctx, namespace, verb, header, data)
	if err == nil {
		return answer, nil
	}
	typed := apiError(err)
	if typed.Code == CodeUnavailable && !errors.As(err, new(*APIError)) {
		a.Logger.Warn("a request could not be answered", "verb", verb, "namespace", namespace, "error", err)
	}
	return nil, &APIError{typed.Code, a.Redactor.Redact(typed.Message)}
}

// apiError types an error.
func apiError(err error) *APIError {
	var (
		typed   *APIError
		refused *Rejection
		field   *FieldError
		name    *events.ErrName
		unknown *UnknownRunError
		erased  *events.ErasedError
	)
	switch {
	case errors.As(err, &typed):
		return typed
	case errors.As(err, &field), errors.As(err, &name):
		return &APIError{RejectMalformed, err.Error()}
	case errors.As(err, &refused):
		return &APIError{refused.Reason, refused.Detail}
	case errors.As(err, &erased):
		return &APIError{RejectErased, erased.Error()}
	case errors.As(err, &unknown):
		return &APIError{RejectNoRun, unknown.Error()}
	}
	return &APIError{CodeUnavailable, err.Error()}
}

func (a *API) handle(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) (any, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return nil, err
	}
	switch verb {
	case VerbStart, VerbContinue, VerbRetry, VerbCancel, VerbMessage, VerbTopUp, VerbSettle, VerbResolve:
		return a.command(ctx, namespace, verb, header, data)
	case VerbGet:
		var r RunRequest
		if err := decode(data, &r); err != nil {
			return nil, err
		}
		return a.getRun(ctx, namespace, r.Run)
	case VerbList:
		return a.list(ctx, namespace, data)
	case VerbCalls:
		return a.calls(ctx, namespace, data)
	case VerbTree:
		var r RunRequest
		if err := decode(data, &r); err != nil {
			return nil, err
		}
		return a.tree(ctx, namespace, r.Run, r.Brief)
	case VerbBudget:
		var r RunRequest
		if err := decode(data, &r); err != nil {
			return nil, err
		}
		return a.ShowBudget(ctx, namespace, r.Run)
	case VerbErase:
		var r EraseRequest
		if err := decode(data, &r); err != nil {
			return nil, err
		}
		if err := a.Erase(ctx, namespace, r.Session); err != nil {
			return nil, err
		}
		a.Logger.Info("a session was erased", "namespace", namespace, "session", r.Session)
		return EraseAnswer{r.Session, true}, nil
	case VerbEvents:
		return a.facts(ctx, namespace, data)
	case VerbAgentsApply:
		var v Version
		if err := decode(data, &v); err != nil {
			return nil, err
		}
		hash, err := a.Apply(ctx, namespace, &v)
		return AppliedAnswer{v.Agent.Slug, hash}, err
	case VerbAgentsList:
		names, err := a.Definitions.Names(ctx, namespace)
		return AgentsAnswer{names}, err
	case VerbFilePut:
		return a.putFile(ctx, namespace, data)
	}
	return nil, &APIError{RejectUnknown, fmt.Sprintf("there is no verb %q; known are %s", verb, strings.Join(Verbs, ", "))}
}

func (a *API) list(ctx context.Context, namespace string, data []byte) (any, error) {
	var f Filter
	if err := decode(data, &f); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	rows, next, err := a.Lister.List(ctx, namespace, f)
	for i := range rows {
		rows[i].Cost = a.cost(rows[i].Spent)
	}
	if rows == nil {
		rows = []Row{}
	}
	return ListAnswer{rows, next}, err
}

// maxListed is the number of runs that run.list answers unless asked for fewer,
// and maxFacts that of facts that run.events does.
const (
	maxListed    = 1000
	maxFacts     = 100
	maxFactBytes = 256 << 10 // of the facts of one answer; the first one is always part of it
)

func orDefault(n, def int) int {
	if n <= 0 || n > def {
		return def
	}
	return n
}

// command carries out a command. It comes as a CloudEvent in either mode, or as
// bare data, which gets an id of its own: then a repetition is another command.
func (a *API) command(ctx context.Context, namespace, verb string, header map[string][]string, data []byte) (any, error) {
	command := events.Event{ID: a.NewID(), Source: "/agentruntime/api", Type: events.TypePrefix + verb, DataContentType: "application/json", Data: data}
	if isCloudEvent(header) {
		var err error
		if command, err = events.Decode(header, data); err != nil {
			return nil, reject(RejectMalformed, "%v", err)
		}
		if command.Type != events.TypePrefix+verb {
			return nil, reject(RejectMalformed, "type %q does not belong to %s", command.Type, verb)
		}
	}
	admitted, err := a.admit(ctx, namespace, &command, true)
	a.countCommand(command.Type, err)
	return admitted, err
}

// getRun is GetRun with the holder's note. The note is a convenience: without it
// the run is told all the same.
func (a *API) getRun(ctx context.Context, namespace, run string) (*RunDetail, error) {
	d, err := a.GetRun(ctx, namespace, run)
	if err != nil || d.State != projector.StateRunning || a.Notes == nil {
		return d, err
	}
	note, err := a.Notes.Note(ctx, events.Key{Namespace: namespace, Session: d.Session})
	if err != nil {
		a.Logger.Debug("the note of a run cannot be read", "run", run, "error", err)
	}
	d.Note = note
	return d, nil
}

func isCloudEvent(header map[string][]string) bool {
	for name, values := range header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "ce-") {
			return true
		}
		if lower == "content-type" && len(values) > 0 && strings.HasPrefix(strings.ToLower(values[0]), "application/cloudevents") {
			return true
		}
	}
	return false
}

func (a *API) facts(ctx context.Context, namespace string, data []byte) (any, error) {
	var r RunRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	limit := orDefault(r.Limit, maxFacts)
	records, err := a.RunFacts(ctx, namespace, r.Run, r.After, limit+1)
	if err != nil {
		return nil, err
	}
	if len(records) == 0 && r.After == 0 {
		return nil, &UnknownRunError{namespace, r.Run}
	}
	answer := RunFactsAnswer{Events: []FactAnswer{}, More: len(records) > limit}
	size := 0
	for i := range records[:min(len(records), limit)] {
		if size += len(records[i].Data); size > maxFactBytes && i > 0 {
			answer.More = true
			break
		}
		e := records[i].Event
		if e.Encryption != "" && e.DataRef == "" {
			e.Data, e.Encryption = e.Body, "" // as it was before it was stored
		}
		e = withoutSettleKey(e)
		structured, err := e.Structured()
		if err != nil {
			return nil, err
		}
		answer.Events = append(answer.Events, FactAnswer{records[i].Sequence, runtime.RedactJSON(a.Redactor, structured)})
	}
	return answer, nil
}

// decode reads a request; an empty one is one without fields.
func decode(data []byte, into any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	err := readStrict(data, into)
	if err != nil {
		return &APIError{RejectMalformed, "the request is not what the verb takes: " + err.Error()}
	}
	return nil
}
