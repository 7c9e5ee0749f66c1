package runtime_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/runtime"
	rt "github.com/agentruntime/agentruntime/runtime/runtimetest"
)

func TestTheStoreOfTheExampleKeepsThePromises(t *testing.T) {
	rt.TestStore(t, func(*testing.T) (runtime.Store, func() runtime.Store) {
		memory := new(Memory)
		return memory.Take(), memory.Take
	})
}
