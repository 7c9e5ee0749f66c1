package handlers

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/catalogue"
)

// checkName checks what a capability is called by, in a script and as a tool.
func checkName(c *events.Capability, wrong func(field, format string, args ...any)) {
	if len(c.Name) > maxCapabilityName {
		wrong("name", "has %d characters, more than %d", len(c.Name), maxCapabilityName)
		return
	}
	if !isCapabilityName(c.Name) {
		wrong("name", "must be JavaScript names joined by dots, such as desk.book")
		return
	}
	if err := catalogue.CheckCapability(c.Name); err != nil {
		wrong("name", "%v", err)
		return
	}
	if tool, free := runtime.ToolName(c.Name); c.IsTool() && !free {
		wrong("expose", "%q would be the tool %s, which is one of the runtime's own: give it another name, or leave it to scripts", c.Name, tool)
	}
}

// CheckTogether returns why one agent cannot have these capabilities beside each
// other: two would be one tool, or they are more than a script can be given.
func CheckTogether(capabilities []events.Capability) error {
	var reasons []string
	tools := make(map[string]string)
	scripts := 0
	for i := range capabilities {
		c := &capabilities[i]
		if c.InScripts() {
			scripts++
		}
		if !c.IsTool() {
			continue
		}
		tool, _ := runtime.ToolName(c.Name)
		if other, taken := tools[tool]; taken && other != c.Name {
			names := []string{other, c.Name}
			slices.Sort(names)
			reasons = append(reasons, fmt.Sprintf("%s would both be the tool %s: give one another name, or leave it to scripts", strings.Join(names, " and "), tool))
			continue
		}
		tools[tool] = c.Name
	}
	if scripts > catalogue.MaxCapabilities {
		reasons = append(reasons, fmt.Sprintf("a script can call at most %d, and these are %d: name fewer", catalogue.MaxCapabilities, scripts))
	}
	if len(reasons) == 0 {
		return nil
	}
	return errors.New(strings.Join(reasons, "; "))
}
