package gemini_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wiretest"
)

// said draws the parts of a response: of this provider, signed and with ids of
// its own or not, and of another.
func said(rt *rapid.T) []events.Part {
	part := rapid.Custom(func(rt *rapid.T) events.Part {
		p := text(rapid.SampledFrom([]string{"", "word"}).Draw(rt, "text"))
		switch rapid.IntRange(0, 4).Draw(rt, "part") {
		case 0:
			return thought(p.Text)
		case 1:
			return provided(thought(p.Text+"."), `{"part":{"thought":true}}`)
		case 2, 3:
			p = call("", "run_js", rapid.SampledFrom([]string{`{"a":1}`, `{}`, `"not JSON"`, `null`, ""}).Draw(rt, "arguments"))
			return rapid.SampledFrom([]events.Part{p, provided(p, `{}`), provided(p, `{"call":{"id":"fc"},"part":{"thoughtSignature":"QUJD"}}`)}).Draw(rt, "call")
		}
		return p
	})
	return rapid.SliceOfN(part, 0, 6).Draw(rt, "parts")
}

func TestAnyCutOfAnyBatchIsSentAsTheAPITakesIt(t *testing.T) {
	endpoint := &echo{response: `data: {"candidates":[{"finishReason":"STOP"}]}` + "\n\n"}
	m := endpoint.model(t)
	wiretest.CheckConversations(t, said, func(_ *rapid.T, r *runtime.Request) error {
		if _, err := m.Generate(t.Context(), r); err != nil {
			return err
		}
		return strict(endpoint.request.Contents)
	})
}
