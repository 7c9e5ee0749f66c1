package projector

import (
	"slices"

	"github.com/agentruntime/agentruntime/events"
)

// EarlyCancel is a cancellation that came before its run: whoever cancels a
// parent asks each of its children to stop, admitted or not.
type EarlyCancel struct {
	events.CancelRequested
	Run string `json:"run"`
}

func (s *Session) early(run string) int {
	return slices.IndexFunc(s.Early, func(e EarlyCancel) bool { return e.Run == run })
}

// EarlyCancel returns what was asked of a run that is not admitted yet, or nil.
func (s *Session) EarlyCancel(run string) *events.CancelRequested {
	i := s.early(run)
	if i < 0 {
		return nil
	}
	cancel := s.Early[i].CancelRequested
	return &cancel
}

// cancelledEarly hands over what was asked of a run before it was admitted.
func (s *Session) cancelledEarly(run string) *events.CancelRequested {
	i := s.early(run)
	if i < 0 {
		return nil
	}
	cancel := s.Early[i].CancelRequested
	s.Early = slices.Delete(s.Early, i, i+1)
	return &cancel
}
