package runtime

import (
	"context"

	"github.com/agentruntime/agentruntime/events"
)

// Recorder is told of every request that one Generate makes, right after it: a
// request that failed may have been paid for all the same. The usage is zero
// where the provider reported none.
type Recorder func(usage events.Usage, err error)

type recorderKey struct{}

// WithRecorder returns a context whose requests are told to a recorder.
func WithRecorder(ctx context.Context, r Recorder) context.Context {
	return context.WithValue(ctx, recorderKey{}, r)
}

// Record tells the context's recorder, if it has one, of one request. Whoever
// repeats requests calls it; what Generate returns without it is all there was.
func Record(ctx context.Context, response *Response, err error) {
	if r, ok := ctx.Value(recorderKey{}).(Recorder); ok {
		r(Spent(response, err), err)
	}
}
