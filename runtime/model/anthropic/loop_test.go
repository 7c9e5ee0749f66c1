package anthropic_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

func TestAnyCutOfAnyBatchIsSentAsTheAPITakesIt(t *testing.T) {
	wiretest.CheckConversations(t, said, func(rt *rapid.T, r *runtime.Request) error { return valid(sent(rt, r, nil)) })
}
