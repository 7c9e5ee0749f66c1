package projector

import (
	"slices"

	"github.com/agentruntime/agentruntime/events"
)

// Model is the model that the run asks, or empty where its admission names none.
func (r *Run) Model() string {
	if r.Asked >= len(r.Admitted.Models) {
		return ""
	}
	return r.Admitted.Models[r.Asked]
}

// NextModel is the model that the run may ask in place of Model, or empty: models
// are taken in their order, and none again.
func (r *Run) NextModel() string {
	if r.Asked+1 >= len(r.Admitted.Models) {
		return ""
	}
	return r.Admitted.Models[r.Asked+1]
}

// switched makes the run ask one of its models. Another one changes nothing.
func (r *Run) switched(to string) {
	if at := slices.Index(r.Admitted.Models, to); at >= 0 {
		r.Asked = at
	}
}

// spend counts what the run's model was used for.
func (r *Run) spend(u events.Usage) {
	if u == (events.Usage{}) {
		return
	}
	model := r.Model()
	for i := range r.Spent {
		if s := &r.Spent[i]; s.Model == model {
			s.Usage = s.Add(u)
			return
		}
	}
	r.Spent = append(r.Spent, events.ModelUsage{Model: model, Usage: u})
}
