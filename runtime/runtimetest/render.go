package runtimetest

import (
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// Render returns a request as text that is the same for the same request, for
// golden files.
func Render(r *runtime.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "system: %s\n", indent(r.System))
	names := make([]string, len(r.Tools))
	for i, t := range r.Tools {
		names[i] = t.Name
	}
	fmt.Fprintf(&b, "tools: %s\n", strings.Join(names, " "))
	b.WriteString(RenderMessages(r.Messages))
	return b.String()
}

// RenderMessages returns messages as text, one line a part.
func RenderMessages(messages []events.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s %s\n", m.Role, m.ID)
		for _, p := range m.Parts {
			fmt.Fprintf(&b, "\t%s\n", renderPart(&p))
		}
	}
	return b.String()
}

func renderPart(p *events.Part) string {
	line := string(p.Type)
	switch {
	case p.Call != nil:
		line = fmt.Sprintf("call %s %s %s", p.Call.ID, p.Call.Name, p.Call.Arguments)
	case p.Result != nil:
		line = fmt.Sprintf("result %s %s %s", p.Result.CallID, p.Result.Name, p.Result.Outcome)
		for _, inner := range p.Result.Parts {
			line += "\n" + renderPart(&inner)
		}
	case p.File != nil:
		line = fmt.Sprintf("file %s %s %s %d bytes", p.File.Ref, p.File.MediaType, p.File.Name, p.File.Size)
	case p.Text != "":
		line = fmt.Sprintf("%s: %s", p.Type, p.Text)
	}
	if len(p.Provider) > 0 {
		provider, _ := events.Marshal(p.Provider) // JSON that was read before
		line += "\nprovider " + string(provider)
	}
	return indent(line)
}

func indent(s string) string { return strings.ReplaceAll(s, "\n", "\n\t\t") }
