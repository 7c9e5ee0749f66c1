package host

import (
	"context"
	"testing"
	"time"
)

func TestTheRoutesEndWithTheGraceOrAtOnceWhenKilledAndNotBefore(t *testing.T) {
	ended := make(chan struct{}, 1)
	h := &Host{options: Options{Grace: 50 * time.Millisecond, EndRoutes: func() { ended <- struct{}{} }}}
	ctx, drain := context.WithCancel(t.Context())
	drained := make(chan struct{})
	close(drained)
	h.endRoutes(ctx, t.Context(), drained)
	if len(ended) != 0 {
		t.Error("a host that had drained ended the routes of another turn")
	}
	drain()
	began := time.Now()
	h.endRoutes(ctx, t.Context(), nil)
	if len(ended) != 1 || time.Since(began) < 50*time.Millisecond {
		t.Errorf("a drain ended the routes %d times after %s", len(ended), time.Since(began))
	}
	<-ended
	h.options.Grace = time.Hour
	kill, end := context.WithCancel(t.Context())
	end()
	h.endRoutes(ctx, kill, nil)
	if len(ended) != 1 {
		t.Error("a host that is killed did not end the routes")
	}
}
