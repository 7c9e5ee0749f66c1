package events

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// The prefixes of event types. A later major version of a type is another
// type, with a suffix such as .v2: a binary that does not know it treats it as
// any unknown type.
const (
	TypePrefix = "dev.agentruntime."     // commands and public events
	FactPrefix = "dev.agentruntime.log." // facts
)

// Kind says who appends a fact and how, or that an event is no fact.
type Kind int

// The kinds of events.
const (
	Unknown  Kind = iota // not in the table: data to the codec, read-only to a deciding fold
	Owner                // fact of the claim's holder: fenced, carries claim id and epoch
	Opening              // fact of anyone entitled: fenced, never rebased over an owner or opening fact
	External             // fact of anyone entitled: unfenced, repeats are ignored by fact id
	Command              // asks for something
	Public               // tells the outside what happened
)

// Type is one row of the codec table.
type Type struct {
	Name   string // the CloudEvents type
	Kind   Kind
	Closes bool // the fact ends the claim it was decided under
	Ends   bool // the fact ends the run
	data   reflect.Type
}

// Short returns the type's name without its prefix, for example run.completed.
func (t Type) Short() string {
	if t.Kind == Command || t.Kind == Public {
		return t.Name[len(TypePrefix):]
	}
	return t.Name[len(FactPrefix):]
}

func fact[T any](kind Kind, name string) Type {
	return Type{Name: FactPrefix + name, Kind: kind, data: reflect.TypeFor[T]()}
}

func closing[T any](name string, ends bool) Type {
	t := fact[T](Owner, name)
	t.Closes, t.Ends = true, ends
	return t
}

func outside[T any](kind Kind, name string) Type {
	return Type{Name: TypePrefix + name, Kind: kind, data: reflect.TypeFor[T]()}
}

// Types is the codec table: every event type this binary knows, its kind and
// the Go type of its data.
var Types = []Type{
	fact[RunAdmitted](Opening, "run.admitted"),
	fact[RunClaimed](Opening, "run.claimed"),
	fact[CommandAccepted](Opening, "command.accepted"),
	fact[SessionErased](Opening, "session.erased"),

	fact[CheckpointCommitted](Owner, "checkpoint.committed"),
	fact[WindowCompacted](Owner, "window.compacted"),
	fact[ModelSwitched](Owner, "model.switched"),
	fact[CallbacksRecorded](Owner, "callbacks.recorded"),
	closing[RunParked]("run.parked", false),
	closing[RunReleased]("run.released", false),
	closing[RunCompleted]("run.completed", true),
	closing[RunFailed]("run.failed", true),
	closing[RunCancelled]("run.cancelled", true),

	fact[ChildSettled](External, "child.settled"),
	fact[CancelRequested](External, "cancel.requested"),
	fact[TimerFired](External, "timer.fired"),
	fact[BudgetRaised](External, "budget.raised"),
	fact[CallAnswered](External, "call.answered"),
	fact[MessageReceived](External, "message.received"),
	fact[CallResolved](External, "call.resolved"),

	fact[BudgetReserved](Opening, "budget.reserved"),
	fact[BudgetRefused](Opening, "budget.refused"),
	fact[BudgetSettled](Opening, "budget.settled"),
	fact[BudgetToppedUp](Opening, "budget.topped_up"),

	outside[StartRun](Command, "run.start"),
	outside[ContinueRun](Command, "run.continue"),
	outside[RetryRun](Command, "run.retry"),
	outside[CancelRun](Command, "run.cancel"),
	outside[MessageRun](Command, "run.message"),
	outside[TopUpBudget](Command, "budget.topup"),
	outside[SettleCall](Command, "call.settle"),
	outside[ResolveCall](Command, "call.resolve"),

	outside[RunStartedData](Public, "run.started"),
	outside[RunTextData](Public, "run.text"),
	outside[RunProgressData](Public, "run.progress"),
	outside[RunCompletedData](Public, "run.completed"),
	outside[RunFailedData](Public, "run.failed"),
	outside[RunCancelledData](Public, "run.cancelled"),
	outside[RunRejectedData](Public, "run.rejected"),
	outside[CallDispatchedData](Public, "call.dispatched"),
	outside[CallSettledData](Public, "call.settled"),
}

// Data types that two public events share still need a row each: the table is
// read in both directions.
type (
	// RunCancelledData is the data of run.cancelled.
	RunCancelledData RunFailedData
	// CallDispatchedData is the data of call.dispatched.
	CallDispatchedData CallData
	// CallSettledData is the data of call.settled.
	CallSettledData CallData
)

var (
	typesByName = make(map[string]Type, len(Types))
	typesByData = make(map[reflect.Type]Type, len(Types))
)

func init() {
	for _, t := range Types {
		typesByName[t.Name] = t
		typesByData[t.data] = t
	}
}

// TypeOf returns the table's row for a CloudEvents type. The row of an unknown
// type has kind Unknown.
func TypeOf(name string) Type {
	if t, ok := typesByName[name]; ok {
		return t
	}
	return Type{Name: name}
}

// TypeFor returns the row whose data is a T. It panics on a T outside the
// table.
func TypeFor[T any]() Type {
	t, ok := typesByData[reflect.TypeFor[T]()]
	if !ok {
		panic(fmt.Sprintf("events: %v is not in the codec table", reflect.TypeFor[T]()))
	}
	return t
}

// New returns an event of the type that payload's Go type stands for, with the
// payload as its data. Everything else is the caller's to set.
func New(payload any) (Event, error) {
	t, ok := typesByData[reflect.TypeOf(payload)]
	if !ok {
		return Event{}, fmt.Errorf("encode event: %T is not in the codec table", payload)
	}
	data, err := Marshal(payload)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s: %w", t.Name, err)
	}
	return Event{Type: t.Name, DataContentType: "application/json", Data: data}, nil
}

// DataError reports event data that does not fit its type.
type DataError struct {
	Type string
	ID   string
	Err  error
}

func (e *DataError) Error() string {
	return fmt.Sprintf("event %s %q: its data does not fit the type: %v", e.Type, e.ID, e.Err)
}

func (e *DataError) Unwrap() error { return e.Err }

// Payload decodes the event's data into the Go type its type stands for.
// Unknown fields are ignored here and survive in Data. An unknown event type
// gives nil and no error: it is data.
func (e *Event) Payload() (any, error) {
	t := TypeOf(e.Type)
	if t.Kind == Unknown {
		return nil, nil
	}
	if e.Encryption != "" && e.Body == nil {
		return nil, fmt.Errorf("event %s %q: %w", e.Type, e.ID, ErrSealed)
	}
	v := reflect.New(t.data)
	if err := json.Unmarshal(e.payload(), v.Interface()); err != nil {
		return nil, &DataError{Type: e.Type, ID: e.ID, Err: err}
	}
	return v.Elem().Interface(), nil
}

// payload returns the data, wherever and however it is stored.
func (e *Event) payload() []byte {
	if e.DataRef != "" || e.Encryption != "" {
		return e.Body
	}
	return e.Data
}

// PayloadOf decodes the event's data as a T, whatever the event's type.
func PayloadOf[T any](e *Event) (T, error) {
	var v T
	if err := json.Unmarshal(e.payload(), &v); err != nil {
		return v, &DataError{Type: e.Type, ID: e.ID, Err: err}
	}
	return v, nil
}

// FactTypes returns the rows of the table that are facts.
func FactTypes() []Type {
	return slices.DeleteFunc(slices.Clone(Types), func(t Type) bool { return t.Kind == Command || t.Kind == Public })
}
