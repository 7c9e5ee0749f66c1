package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
)

// UnknownCall is a callback whose effect is not known, as lists show it. A
// capability that the model called itself is callback 0 of its call.
type UnknownCall struct {
	Run        string          `json:"run"`
	Agent      string          `json:"agent"`
	Call       string          `json:"call"`
	Index      int             `json:"index"`
	Capability string          `json:"capability"`
	Effect     events.Effect   `json:"effect,omitempty"`
	Key        string          `json:"key"`             // the idempotency key that its service saw
	Input      json.RawMessage `json:"input,omitempty"` // absent when it is long
	Reason     string          `json:"reason"`          // why nobody knows, for people
}

// CallsRequest is what call.list is asked: either the open deferred calls or the
// unknown callbacks of one run, or of all of the namespace.
type CallsRequest struct {
	Open    bool   `json:"open,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
	Run     string `json:"run,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Limit   int    `json:"limit,omitempty"` // runs of a page; 0: 100, which is the most
	After   string `json:"after,omitempty"` // what the page before returned as next
}

// CallsAnswer is what call.list answers of unknown callbacks. Next, when there are more, is what After
// of the next page is.
type CallsAnswer struct {
	Calls []UnknownCall `json:"calls"`

	Unreadable []string `json:"unreadable,omitempty"` // runs of the page that are left out: their session is erased, or this worker cannot read it
	Next       string   `json:"next,omitempty"`
}

// maxCallRuns is how many runs one answer of call.list looks at.
const maxCallRuns = 100

// calls lists open calls or unknown callbacks, those of the newest run first.
// Which runs have some is as old as the list of runs; what they are is as the log
// has it.
func (a *API) calls(ctx context.Context, namespace string, data []byte) (any, error) {
	var r CallsRequest
	if err := decode(data, &r); err != nil {
		return nil, err
	}
	if r.Open == r.Unknown {
		return nil, &APIError{RejectMalformed, "say which calls: either open or unknown"}
	}
	filter := Filter{Unknown: r.Unknown, Agent: r.Agent, Limit: orDefault(r.Limit, maxCallRuns), After: r.After}
	if r.Open {
		filter.State, filter.Reason = []projector.State{projector.StateParked}, events.ParkCall
	}
	if r.Limit < 0 {
		return nil, filter.invalid("limit", "%d is negative", r.Limit)
	}
	if err := filter.Validate(); err != nil {
		return nil, err
	}
	runs, next := []string{r.Run}, ""
	if r.Run == "" {
		var rows []Row
		var err error
		if rows, next, err = a.Lister.List(ctx, namespace, filter); err != nil {
			return nil, err
		}
		runs = runs[:0]
		for _, row := range rows {
			runs = append(runs, row.Run)
		}
	}
	if r.Open {
		list, unreadable, err := ofRuns(ctx, namespace, runs, r.Run == "", a.openCalls)
		return OpenCallsAnswer{list, unreadable, next}, err
	}
	list, unreadable, err := ofRuns(ctx, namespace, runs, r.Run == "", a.unknownCalls)
	return CallsAnswer{list, unreadable, next}, err
}

// ofRuns collects what each of the runs has. One that cannot be read fails the
// answer, unless it is only one of a list: that is named instead.
func ofRuns[T any](ctx context.Context, namespace string, runs []string, listed bool, of func(ctx context.Context, namespace, run string) ([]T, error)) (all []T, unreadable []string, err error) {
	all = []T{}
	for _, run := range runs {
		found, err := of(ctx, namespace, run)
		switch {
		case err == nil:
			all = append(all, found...)
		case listed && isUnreadable(err):
			unreadable = append(unreadable, run)
		default:
			return nil, nil, err
		}
	}
	return all, unreadable, nil
}

// isUnreadable reports whether a session cannot be read, however often this worker
// tries.
func isUnreadable(err error) bool {
	var (
		damage  *events.DamageError
		data    *events.DataError
		unknown *projector.UnknownFactError
		sealed  *KeyError
		gone    *UnknownRunError
	)
	return errors.Is(err, events.ErrErased) || errors.Is(err, events.ErrSealed) || errors.As(err, &damage) || errors.As(err, &data) || errors.As(err, &unknown) ||
		errors.As(err, &sealed) || errors.As(err, &gone)
}

// unknownCalls lists the unknown callbacks of a run as the log's leader knows it.
func (h *Host) unknownCalls(ctx context.Context, namespace, run string) ([]UnknownCall, error) {
	key, err := events.KeyOfRun(namespace, run)
	if err != nil {
		return nil, err
	}
	s, err := h.Latest(ctx, key)
	if err != nil {
		return nil, err
	}
	r := s.Run(run)
	if r == nil {
		return nil, &UnknownRunError{namespace, run}
	}
	var list []UnknownCall
	for i := range r.Unknown {
		c := &r.Unknown[i]
		u := UnknownCall{Run: run, Agent: r.Admitted.Agent, Call: c.CallID, Index: c.Index, Capability: c.Capability, Effect: c.Effect, Key: c.Key}
		if len(c.Input) > 0 {
			u.Input = runtime.RedactJSON(h.Redactor, c.Input)
		}
		if c.Done != nil {
			u.Reason = h.Redactor.Redact(c.Done.Text)
		}
		list = append(list, u)
	}
	return list, nil
}

// resolve settles a callback whose effect nobody could know, once: the first
// answer counts. Only an operator does: what it says stands for the service's own
// word, and takes no token.
func (a *admission) resolve(ctx context.Context) (*Admission, error) {
	if !a.operator {
		return nil, reject(RejectDenied, "call.resolve is for operators, over agent.api; a service answers its own deferred call with call.settle and its token")
	}
	var data events.ResolveCall
	if err := strict(a.command.Data, &data); err != nil {
		return nil, err
	}
	switch {
	case data.As != events.ResolvedDone && data.As != events.ResolvedNotDone:
		return nil, reject(RejectMalformed, "as is %q; it is done or not-done", bounded(data.As, maxNamed))
	case data.As == events.ResolvedNotDone && len(data.Result) > 0:
		return nil, reject(RejectMalformed, "what did not take effect has no result")
	case len(data.Result) > maxResolved:
		return nil, reject(RejectMalformed, "the result has %d bytes, more than %d", len(data.Result), maxResolved)
	case strings.TrimSpace(data.Call) == "":
		return nil, reject(RejectMalformed, "call is missing")
	case data.Index < 0:
		return nil, reject(RejectMalformed, "index is %d; the callbacks of a call count from 0", data.Index)
	}
	key, err := a.target(data.Run)
	if err != nil {
		return nil, err
	}
	run, err := a.find(ctx, key, data.Run)
	if err != nil {
		return nil, err
	}
	if err := a.unused(ctx, key, data.Run); err != nil {
		return nil, err
	}
	id := "resolved-" + events.Derive(16, a.cause.Source, a.cause.ID)
	if unknown := run.UnknownCallback(data.Call, data.Index); unknown != nil {
		if err := a.fitsUnknown(ctx, run, unknown, data.Result); err != nil {
			return nil, err
		}
		if err := a.accept(ctx, key, data.Run, true); err != nil {
			return nil, err
		}
		fact := events.CallResolved{CallID: data.Call, Index: data.Index, As: data.As}
		if len(data.Result) > 0 {
			fact.Result = runtime.RedactJSON(a.host.Redactor, data.Result)
		}
		if err := a.host.notify(ctx, key, data.Run, id, fact); err != nil {
			return nil, err
		}
	}
	first, err := a.resolvedBy(ctx, key, &data)
	if err != nil {
		return nil, err
	}
	if first != id {
		return nil, reject(RejectNotUnknown, "callback %d of call %s of run %s is not one whose effect is unknown: it has an outcome, was settled before, or was never made; \"call list --unknown\" shows those that are", data.Index, bounded(data.Call, maxNamed), data.Run)
	}
	return &Admission{Run: data.Run, Session: key.Session}, nil
}

// fitsUnknown refuses a result that the capability of a callback could not have
// returned, as far as the run's definition is still there to say so.
func (a *admission) fitsUnknown(ctx context.Context, run *projector.Run, c *projector.UnknownCallback, result json.RawMessage) error {
	if len(result) == 0 {
		return nil
	}
	v, err := a.host.admitted(ctx, a.namespace, run.ID, &run.Admitted)
	if isUndefined(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range v.Capabilities {
		if v.Capabilities[i].Name == c.Capability {
			return fitsOutput(&v.Capabilities[i], result)
		}
	}
	return nil
}

// maxResolved is the largest result that an operator may give, in bytes: the model
// is told all of it.
const maxResolved = 16 << 10

// resolvedBy returns the id of the fact that settled a callback, or nothing, also
// when it cannot be this command's. A fact that came when nothing was unknown
// settled nothing.
func (a *admission) resolvedBy(ctx context.Context, key events.Key, data *events.ResolveCall) (id string, err error) {
	if accepted, err := a.accepted(ctx); err != nil || !accepted {
		return "", err
	}
	before := false
	err = a.refold(ctx, key, func(s *projector.Session, fact *events.Record) bool {
		run := s.Run(data.Run)
		unknown := run != nil && run.UnknownCallback(data.Call, data.Index) != nil
		if before && !unknown && fact.Type == typeResolved {
			id = fact.ID
			return true
		}
		before = unknown
		return false
	})
	return id, err
}

var typeResolved = events.TypeFor[events.CallResolved]().Name
