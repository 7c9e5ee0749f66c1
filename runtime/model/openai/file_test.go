package openai_test

import (
	"testing"

	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
)

func TestFiles(t *testing.T) {
	wiretest.Files(t, wiretest.Adapter{
		New: func(c wiretest.Config) (runtime.Model, error) {
			return openai.New(openai.Config{Name: c.Name, APIKey: c.APIKey, HTTPClient: c.HTTPClient})
		},
		Rest: `data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n",
	})
}
