package wire

import (
	"context"
	"fmt"
	"io"
	"time"
)

// stallError is why a silent request was cut off.
type stallError struct {
	after time.Duration
}

func (e *stallError) Error() string { return fmt.Sprintf("no byte for %v", e.after) }

// watcher cuts a request off that has been silent for too long: before its
// response begins, and then between two reads of its body.
type watcher struct {
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
}

func watch(ctx context.Context, header, stall time.Duration) (context.Context, *watcher) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watcher{
		cancel: cancel,
		timer:  time.AfterFunc(header, func() { cancel(&stallError{header}) }),
		stall:  stall,
	}
}

func (w *watcher) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// body begins the watch over a response's body.
func (w *watcher) body(body io.ReadCloser) io.ReadCloser {
	w.timer.Stop()
	w.timer = time.AfterFunc(w.stall, func() { w.cancel(&stallError{w.stall}) })
	return &watchedBody{body, w}
}

type watchedBody struct {
	io.ReadCloser
	watcher *watcher
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.watcher.timer.Reset(b.watcher.stall)
	}
	return n, err
}
