package jetstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/agentruntime/agentruntime/events"
)

// Error codes of the server that the client library has no name for, or that
// decide something here.
const (
	codeWrongLastSequence         natsjs.ErrorCode = 10071 // another message is the subject's last one
	codeWrongLastSequenceConstant natsjs.ErrorCode = 10164 // the same, or another proposal on the subject is in flight
	codeNoMessage                 natsjs.ErrorCode = 10037
	codeDeleteFailed              natsjs.ErrorCode = 10057 // a message could not be deleted: for one thing, it is not there
	codeStreamNotFound            natsjs.ErrorCode = 10059
	codeStreamNameInUse           natsjs.ErrorCode = 10058
	codeConsumerNotFound          natsjs.ErrorCode = 10014
	codeAccountResources          natsjs.ErrorCode = 10002 // class 400, but it passes when space is freed
	codeClusterIncomplete         natsjs.ErrorCode = 10004
	codeClusterNoPeers            natsjs.ErrorCode = 10005 // fewer servers are up than replicas are asked for
	codeClusterNotAssigned        natsjs.ErrorCode = 10007
	codeClusterNotAvailable       natsjs.ErrorCode = 10008
	codeClusterNotLeader          natsjs.ErrorCode = 10009
	codeStreamOffline             natsjs.ErrorCode = 10118
	codeDuplicateInProcess        natsjs.ErrorCode = 10158 // class 409: the first copy's outcome is open
)

// unanswered are the errors of the client library after which nobody knows
// whether the server acted.
var unanswered = []error{
	nats.ErrTimeout,
	nats.ErrNoResponders,
	nats.ErrConnectionClosed,
	nats.ErrConnectionDraining,
	nats.ErrConnectionReconnecting,
	nats.ErrDisconnected,
	nats.ErrReconnectBufExceeded,
	nats.ErrStaleConnection,
	nats.ErrNoServers,
	natsjs.ErrNoStreamResponse,
	natsjs.ErrNoHeartbeat,
	natsjs.ErrServerShutdown,
	context.DeadlineExceeded,
	context.Canceled,
}

// translate turns an error of the server or of its client library into one
// that wraps events.ErrConflict or events.ErrUnanswered, by code. Any other
// error means that the server did not act and will not; it passes unchanged.
func translate(err error) error {
	if err == nil || errors.Is(err, events.ErrUnanswered) || errors.Is(err, events.ErrConflict) {
		return err
	}
	for _, u := range unanswered {
		if errors.Is(err, u) {
			return fmt.Errorf("%w: %w", events.ErrUnanswered, err)
		}
	}
	if api := apiError(err); api != nil {
		return translateAPI(api)
	}
	return err
}

// translateAPI does the same for an answer of the server. Class 5xx is a
// server that is short of a leader, of a disk or of memory; class 429 one that
// is busy.
func translateAPI(api *natsjs.APIError) error {
	switch {
	case api.ErrorCode == codeWrongLastSequence, api.ErrorCode == codeWrongLastSequenceConstant:
		return fmt.Errorf("%w: %w", events.ErrConflict, api)
	case api.Code >= 500, api.Code == 429, api.ErrorCode == codeAccountResources, api.ErrorCode == codeDuplicateInProcess:
		return fmt.Errorf("%w: %w", events.ErrUnanswered, api)
	}
	return api
}

// isRefusal reports whether the server has answered that it will not do what
// was asked, now or later. A consumer that is gone is none: it is made again.
func isRefusal(err error) bool {
	api := apiError(err)
	return api != nil && api.Code < 500 && api.Code != 429 && api.ErrorCode != codeConsumerNotFound
}

// isLeaderless reports whether a request that changes nothing when repeated
// may succeed in a moment: no answer came, or one from servers that have not
// all found each other yet. Other refusals of class 5xx are about configuration
// and stay.
func isLeaderless(err error) bool {
	if api := apiError(err); api != nil {
		switch api.ErrorCode {
		case codeClusterNoPeers, codeClusterIncomplete, codeClusterNotAssigned, codeClusterNotAvailable, codeClusterNotLeader, codeStreamOffline:
			return true
		}
		return false
	}
	return errors.Is(translate(err), events.ErrUnanswered)
}

// apiError returns the server's answer in err, or nil.
func apiError(err error) *natsjs.APIError {
	var api *natsjs.APIError
	if errors.As(err, &api) {
		return api
	}
	return nil
}

// hasCode reports whether err is the server's answer with that code.
func hasCode(err error, code natsjs.ErrorCode) bool {
	api := apiError(err)
	return api != nil && api.ErrorCode == code
}

// isUnserved reports whether nobody was there to take a request.
func isUnserved(err error) bool { return errors.Is(err, nats.ErrNoResponders) }
