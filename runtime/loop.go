package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// loop is one attempt.
type loop struct {
	in       *Input
	box      *toolbox
	contract string
	limits   limits
	base     int64 // tokens of a request without messages

	checkpoint *projector.Checkpoint
	window     []events.Message
	dispatched int  // see state
	noticed    bool // the recovery notice was sent
	untrusted  bool // the call under way may have read what is not trusted

	// The revisions at which this attempt has compacted, before a request and
	// after the provider refused one; 0: none.
	compacted, overflowed uint64

	// The size of the window for which this attempt got no summary that it could
	// take; 0: it got one, or did not ask.
	unsummarized int64

	gone     map[string]bool          // files that are, by reference
	opened   map[string][]byte        // files that the newest request had
	inWords  bool                     // files are described only, to the end of the attempt
	attached map[string][]events.Part // by call; see keepFiles

	// untold records what the result of the call under way was to tell, should
	// that not be committed; nil when nothing is known.
	untold func(context.Context) error

	cleanup error // of executors
}

// run decides, acts and commits until the run has completed.
func (l *loop) run(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	for {
		mail, err := l.mail()
		if err != nil {
			return err
		}
		a := next(state{l.checkpoint, l.dispatched, l.limits.guards, len(mail) > 0, l.box.isDirect})
		if a.kind == actFinish {
			return nil // whatever became of ctx: the reply is committed
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if l.dispatched < 0 && l.stopping() {
			return ErrStopped
		}
		switch a.kind {
		case actFail:
			return a.guard
		case actStart:
			err = l.start(ctx)
		case actDeliver:
			err = l.commit(ctx, func(c *projector.Checkpoint) { c.Append = mail })
		case actModel:
			err = l.askModel(ctx)
		case actDispatch:
			err = l.commit(ctx, func(c *projector.Checkpoint) { l.advance(c, a.call) })
		case actUnknown:
			l.untrusted = l.mayHaveRead(a.call)
			err = l.interrupted(ctx, a.call)
		case actExecute:
			err = l.execute(ctx, a.call)
		}
		if err != nil {
			return err
		}
	}
}

// stopping reports whether the host wants the attempt to end. A run that has
// completed is not stopped.
func (l *loop) stopping() bool {
	if l.checkpoint != nil && l.checkpoint.Phase == projector.PhaseCompleted {
		return false
	}
	select {
	case <-l.in.Stop:
		return true
	default:
		return false
	}
}

// load reads where the run stands. A failed read is never taken for a fresh
// run.
func (l *loop) load(ctx context.Context) error {
	c, err := l.in.Store.LoadCheckpoint(ctx)
	if err != nil {
		return fmt.Errorf("load the checkpoint of run %s: %w", l.in.RunID, err)
	}
	if c == nil {
		if isEmpty(&l.in.Message) {
			return &InputError{"Message", "is empty; a fresh run needs a task"}
		}
	} else {
		if c.Phase != projector.PhaseCompleted {
			if err := l.resumable(c); err != nil {
				return err
			}
		}
		copied := *c
		copied.Append = nil
		l.checkpoint = &copied
		if c.Phase == projector.PhaseCompleted {
			return nil
		}
	}
	if l.window, err = l.in.Store.Load(ctx); err != nil {
		return fmt.Errorf("load the window of run %s: %w", l.in.RunID, err)
	}
	return nil
}

// commit saves the successor of the checkpoint that change makes of it.
func (l *loop) commit(ctx context.Context, change func(*projector.Checkpoint)) error {
	c := &projector.Checkpoint{Version: projector.CheckpointVersion, ContractHash: l.contract}
	if l.checkpoint != nil {
		*c = *l.checkpoint
		c.Append = nil
	}
	c.Revision++
	c.Calls = slices.Clone(c.Calls)
	dispatched := l.dispatched
	change(c)
	if err := l.in.Store.SaveCheckpoint(ctx, c); err != nil {
		l.dispatched = dispatched
		return fmt.Errorf("save revision %d of run %s: %w", c.Revision, l.in.RunID, err)
	}
	l.checkpoint = c
	l.window = append(l.window, c.Append...)
	return nil
}

// start commits the first checkpoint, with the task.
func (l *loop) start(ctx context.Context) error {
	parts, err := stored(l.in.Message.Parts)
	if err != nil {
		return &InputError{"Message", err.Error()}
	}
	return l.commit(ctx, func(c *projector.Checkpoint) {
		task := events.Message{ID: l.in.Message.ID, Parts: parts}
		task.Role = events.RoleUser
		if task.ID == "" {
			task.ID = l.mint("message", c.Revision, 0)
		}
		c.Phase = projector.PhaseModel
		c.Task = task.ID
		c.Append = []events.Message{task}
	})
}

// mail returns the messages that have come and are not part of the transcript,
// at a model boundary.
func (l *loop) mail() ([]events.Message, error) {
	if l.in.Inbox == nil || l.checkpoint == nil || l.checkpoint.Phase != projector.PhaseModel {
		return nil, nil
	}
	mail := slices.Clone(l.in.Inbox())
	for i := range mail {
		parts, err := stored(mail[i].Parts)
		if err != nil {
			return nil, &InputError{"Inbox", err.Error()}
		}
		mail[i].Role, mail[i].Parts = events.RoleUser, parts
	}
	return mail, nil
}

// dispatch marks call k as about to be made.
func (l *loop) dispatch(c *projector.Checkpoint, k int) {
	c.Calls[k].State = events.CallDispatched
	l.dispatched = k
}

// askModel makes one request and commits what came back, with the predispatch
// of its first call. If the window had to be compacted, it returns without a
// request: what has come meanwhile comes first. It also does after a provider has
// refused a request with files; the next one has them in words.
func (l *loop) askModel(ctx context.Context) error {
	request := l.request()
	estimate := l.in.Estimator.Request(request)
	if done, err := l.makeRoom(ctx, l.scaled(estimate)); done || err != nil {
		return err
	}
	if gone, err := l.open(ctx, request); gone || err != nil {
		return err
	}
	response, err := l.generate(ctx, request)
	if isOverflow(err) {
		return l.refused(ctx, l.scaled(estimate), err)
	}
	if refusesFiles(request, err) {
		l.inWords = true
		return nil
	}
	if err != nil {
		return err
	}
	switch response.Finish {
	case FinishStop, FinishCalls, FinishLength, FinishFilter:
	default:
		return l.invalid(fmt.Errorf("the response ended with the unknown reason %q", response.Finish))
	}
	got, err := receive(response)
	if err != nil {
		return l.invalid(err)
	}
	l.noticed = true
	err = l.commit(ctx, func(c *projector.Checkpoint) {
		if scale := scaleOf(estimate, got.usage); scale > 0 {
			c.Scale = scale
		}
		l.accept(c, got)
	})
	if err != nil {
		return err
	}
	if said := got.text(); said != "" {
		l.in.Sink.Text(ctx, l.checkpoint.Revision, l.in.Redactor.Redact(said))
	}
	return nil
}

// invalid is a response that is none, of the model that was asked.
func (l *loop) invalid(err error) *ModelError {
	name := l.in.ModelName
	if name == "" {
		name = l.in.Definition.ModelNames()[0]
	}
	return &ModelError{Provider: name, Class: ClassInvalid, Err: err}
}

// generate reserves one request and makes it.
func (l *loop) generate(ctx context.Context, r *Request) (*Response, error) {
	if err := l.in.Controller.BeforeModel(ctx); err != nil {
		return nil, fmt.Errorf("reserve a model request: %w", err)
	}
	response, err := l.in.Model.Generate(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("ask the model: %w", err)
	}
	return response, nil
}

// requestOf builds what the model sees with that window: everything redacted.
func (l *loop) requestOf(window []events.Message) *Request {
	messages := redactMessages(l.in.Redactor, window)
	return &Request{
		System:          l.in.Redactor.Redact(l.in.Definition.Instructions),
		Files:           l.choose(messages),
		Messages:        messages,
		Tools:           redactTools(l.in.Redactor, l.box.tools()),
		MaxOutputTokens: l.in.ModelLimits.OutputTokens,
	}
}

// request builds the next request.
func (l *loop) request() *Request {
	r := l.requestOf(l.window)
	if l.in.RecoveryNotice != "" && !l.noticed {
		r.Messages = append(r.Messages, events.Text("notice-recovery", events.RoleUser, l.in.Redactor.Redact(l.in.RecoveryNotice)))
	}
	return r
}

// advance goes on from call k: refused calls get their result, the first other
// one its predispatch, and when none is left the run is at a model boundary.
// All of it is part of one commit.
func (l *loop) advance(c *projector.Checkpoint, k int) {
	for ; k < len(c.Calls); k++ {
		call := &c.Calls[k]
		if call.State != events.CallPending {
			continue
		}
		if call.Refusal == "" {
			if !l.stopping() {
				l.dispatch(c, k)
			}
			return
		}
		l.close(c, k, outcome{kind: events.OutcomeError, text: call.Refusal})
	}
	c.Phase = projector.PhaseModel
}

// outcome is how a call ended and what the model is told.
type outcome struct {
	kind events.Outcome
	text string

	// brief, if set, tells the same in about so many bytes: what cannot be cut as
	// a text without telling something else.
	brief func(most int) string
}

// close gives call k its one result.
func (l *loop) close(c *projector.Checkpoint, k int, o outcome) {
	call := &c.Calls[k]
	call.State, call.Outcome = events.CallSettled, o.kind
	switch {
	case o.kind == events.OutcomeOK:
		c.Guard.Rejected = 0
	case l.rejected(call, o.kind):
		c.Guard.Rejected++
	}
	if c.Guard.Repeats == l.limits.repeated && k == len(c.Calls)-1 {
		notice := fmt.Sprintf("\n\nNotice: this identical call was made %d times in a row. Do something else, or complete; the run fails if it is made again.", c.Guard.Repeats)
		if o.text += notice; o.brief != nil {
			brief := o.brief
			o.brief = func(most int) string { return brief(most) + notice }
		}
	}
	o.text = strings.ToValidUTF8(o.text, "\uFFFD")
	message := func() events.Message {
		m := projector.ResultMessage(&call.ToolCall, o.kind, o.text)
		m.Parts[0].Result.Parts = append(m.Parts[0].Result.Parts, l.attached[call.ID]...)
		return m
	}
	l.fit(c, k, &o, message)
	c.Append = append(c.Append, message())
}

// rejected reports whether a completion was not accepted for what it says: its
// arguments do not fit the schema, or the controller refused it.
func (l *loop) rejected(call *events.Call, kind events.Outcome) bool {
	return call.Name == toolComplete && (kind == events.OutcomeError || kind == events.OutcomeDenied) &&
		(call.Refusal == "" || l.box.refusal(&call.ToolCall) != "")
}

// settle commits the result of call k together with what follows it.
func (l *loop) settle(ctx context.Context, k int, o outcome) error {
	return l.commit(ctx, func(c *projector.Checkpoint) {
		l.dispatched = -1
		l.close(c, k, o)
		c.Append[len(c.Append)-1].Parts[0].Result.Untrusted = l.untrusted
		l.advance(c, k+1)
	})
}

// finish commits the reply: call k completed the run, and the calls after it
// are skipped.
func (l *loop) finish(ctx context.Context, k int, reply *events.Reply) error {
	return l.commit(ctx, func(c *projector.Checkpoint) {
		l.dispatched = -1
		l.close(c, k, outcome{kind: events.OutcomeOK, text: "The run is complete."})
		for i := k + 1; i < len(c.Calls); i++ {
			l.close(c, i, outcome{kind: events.OutcomeSkipped, text: "The run was complete before this call."})
		}
		c.Phase = projector.PhaseCompleted
		c.Reply = reply
	})
}

// mint returns an id that no other attempt gives to anything else.
func (l *loop) mint(what string, revision uint64, n int) string {
	return what[:1] + events.Derive(16, what, l.in.RunID, fmt.Sprint(revision), fmt.Sprint(n))
}

// execute runs call k, whose predispatch is committed, and commits its result.
func (l *loop) execute(ctx context.Context, k int) error {
	call := l.checkpoint.Calls[k].ToolCall
	l.untrusted = false
	if call.Name == toolComplete {
		return l.complete(ctx, k, &call)
	}
	l.untold = nil
	o, err := l.invoke(ctx, &call, k != l.dispatched)
	if err == nil {
		o.text = redactText(l.in.Redactor, o.text)
		err = l.settle(ctx, k, o)
	}
	if err != nil && l.untold != nil {
		// The result was to tell of it, and whoever goes on has to know.
		err = errors.Join(err, l.untold(context.WithoutCancel(ctx)))
	}
	return err
}

// complete asks the controller whether the run may end. A refusal is a tool
// error, and the run goes on.
func (l *loop) complete(ctx context.Context, k int, call *events.ToolCall) error {
	reply, err := readReply(call.Arguments)
	if err == nil {
		err = l.in.Controller.Complete(ctx, reply)
	}
	if err != nil {
		o, err := toolError(ctx, err)
		if err != nil {
			return err
		}
		o.text = l.in.Redactor.Redact(o.text)
		return l.settle(ctx, k, o)
	}
	return l.finish(ctx, k, reply)
}

// toolError turns an error into a call's outcome, or returns it when it must
// stop the attempt. That a context ended counts only when it is the attempt's: a
// carrier may have ended one of its own.
func toolError(ctx context.Context, err error) (outcome, error) {
	var fatal FatalToolError
	var denied *DeniedError
	switch {
	case ctx.Err() != nil:
		return outcome{}, errors.Join(context.Cause(ctx), err)
	case errors.As(err, &fatal), errors.Is(err, ErrWaiting):
		return outcome{}, err
	case errors.As(err, &denied):
		return outcome{kind: events.OutcomeDenied, text: denied.Error()}, nil
	}
	return outcome{kind: events.OutcomeError, text: err.Error()}, nil
}

// unknown is what the model is told of a call that may or may not have
// happened.
func unknown(tool string) outcome {
	what := "whether it ran at all, how far it got, and what it returned"
	known := "The worker that was to make this call stopped before its result was stored."
	advice := "Do not simply repeat it: what it did may have taken effect. First find out, by reading, what is there."
	switch tool {
	case toolGetCalls:
		advice = "It changes nothing: make the call again if you still need its answer."
	case toolCancelCalls:
		advice = "Look at the calls with get_calls before you cancel them again."
	}
	return outcome{kind: events.OutcomeUnknown, text: "Unknown outcome. Known: " + known + " Not known: " + what + ". " + advice}
}

// mayHaveRead reports whether what is told of a call whose outcome is unknown may
// hold what is not trusted: a script that was interrupted may have read it.
func (l *loop) mayHaveRead(k int) bool {
	return l.checkpoint.Calls[k].Name == toolRunJS && slices.ContainsFunc(l.in.Capabilities, func(c events.Capability) bool { return c.Untrusted })
}

func silentNotice(finish FinishReason) string {
	cut := ""
	switch finish {
	case FinishLength:
		cut = "Your answer was cut at the output limit. "
	case FinishFilter:
		cut = "Your answer was cut by the provider's content filter. "
	}
	return cut + "You answered without calling a tool. Call a tool to go on, or complete to end the run with your result."
}
