package gemini_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

func TestFiles(t *testing.T) {
	wiretest.Files(t, wiretest.Adapter{
		New: func(c wiretest.Config) (runtime.Model, error) {
			return gemini.New(gemini.Config{Name: c.Name, APIKey: c.APIKey, HTTPClient: c.HTTPClient})
		},
		Rest: `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n",
	})
}
