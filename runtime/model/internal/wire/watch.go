package wire

import (
	"context"
	"fmt"
	"io"
	"time"
)

// StallError is why a silent request was cut off.
type StallError struct {
	after time.Duration
}

// Error implements error.
func (e *StallError) Error() string { return fmt.Sprintf("no byte for %v", e.after) }

// MaxResponse is the largest body of a response that is read, in bytes: far more
// than any model writes, and little enough for a worker with many runs.
const MaxResponse = 64 << 20

// Watcher cuts a request off that has been silent for too long: before its
// response begins, and then between two reads of its body.
type Watcher struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

// Watch begins to watch a request whose response must begin within header.
func Watch(ctx context.Context, header, stall time.Duration) (context.Context, *Watcher) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &Watcher{
		cancel: cancel,
		timer:  time.AfterFunc(header, func() { cancel(&StallError{header}) }),
		stall:  stall,
	}
}

// Stop ends the watch, and the request with it.
func (w *Watcher) Stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// Body begins the watch over a response's body.
func (w *Watcher) Body(body io.ReadCloser) io.ReadCloser {
	w.timer.Stop()
	w.timer = time.AfterFunc(w.stall, func() { w.cancel(&StallError{w.stall}) })
	return &watchedBody{body, w, MaxResponse}
}

type watchedBody struct {
	io.ReadCloser
	watcher *Watcher
	left    int64 // bytes that may still come
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watcher.timer.Reset(b.watcher.stall)
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, Invalid(fmt.Errorf("the response has more than %d bytes", int64(MaxResponse)))
	}
	return n, err
}
