package events

// The facts of a ledger: what the runs of one tree have spent of their budgets.
// They stand on a subject of their own, named after the tree's root, and are
// fenced like opening facts: who loses a race reads again and decides again.

// RequestKey names one model request of a run. The same attempt asks for the
// same request again; a new claim asks for another one.
type RequestKey struct {
	Run      string `json:"run"`
	Revision uint64 `json:"revision"` // of the checkpoint that the request follows
	Request  int    `json:"request"`  // counts the requests after that checkpoint, from 0
	Epoch    uint64 `json:"epoch"`    // of the claim
}

// BudgetReserved charges one step to a run and to every run above it.
type BudgetReserved struct {
	RequestKey
	Account *BudgetAccount `json:"account,omitempty"` // with the run's first record
	Spent   BudgetSpent    `json:"spent"`
}

// BudgetAccount opens the account of a run.
type BudgetAccount struct {
	Parent string  `json:"parent,omitempty"` // the run above it, if that one is metered
	Limit  *Budget `json:"limit,omitempty"`  // its own; none: only those above it count
}

// BudgetSpent is what is known of a run's tokens. Both are totals, so that the
// same record twice counts once.
type BudgetSpent struct {
	Committed Usage  `json:"committed"`      // of committed responses
	Other     Usage  `json:"other,omitzero"` // of this claim's requests that led to no committed response
	Epoch     uint64 `json:"epoch"`          // of the claim that Other is of
	Since     uint64 `json:"since"`          // revision at which that claim began: earlier requests of earlier claims were answered
}

// BudgetRefused records that a request was not allowed.
type BudgetRefused struct {
	RequestKey
	Account *BudgetAccount `json:"account,omitempty"`
	Spent   BudgetSpent    `json:"spent"`
	By      string         `json:"by"`   // the run whose budget is spent
	What    string         `json:"what"` // steps, input_tokens or output_tokens
}

// BudgetSettled brings the account of a run up to date when its claim ends.
type BudgetSettled struct {
	Run     string      `json:"run"`
	Spent   BudgetSpent `json:"spent"`
	Aborted bool        `json:"aborted,omitempty"` // its last request was given up before an answer
	Unmade  *RequestKey `json:"unmade,omitempty"`  // its last request was never made: its step is given back
}

// BudgetToppedUp raises the limit of a run. Limits that it does not name, and
// those that the run does not have, stay as they are.
type BudgetToppedUp struct {
	Cause   Cause          `json:"cause"`
	Run     string         `json:"run"`
	Account *BudgetAccount `json:"account,omitempty"` // of a run that has made no request yet
	Add     Budget         `json:"add"`
}
