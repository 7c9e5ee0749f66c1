package executor

import (
	"fmt"
	"strings"

	"github.com/agentruntime/agentruntime/runtime/catalogue"
)

// CheckBindings returns why the names cannot be bound together in a script.
// Execute refuses what it refuses.
func CheckBindings(names []string) error {
	if len(names) > catalogue.MaxBindings {
		return fmt.Errorf("%d bindings are more than %d", len(names), catalogue.MaxBindings)
	}
	for _, name := range names {
		if err := catalogue.CheckName(name); err != nil {
			return err
		}
	}
	bound := make(map[string]bool, len(names))
	for _, name := range names {
		if bound[name] {
			return fmt.Errorf("binding %q is given twice", name)
		}
		bound[name] = true
	}
	for _, name := range names {
		for i := strings.LastIndexByte(name, '.'); i > 0; i = strings.LastIndexByte(name[:i], '.') {
			if bound[name[:i]] {
				return fmt.Errorf("binding %q is both a capability and the parent of %q", name[:i], name)
			}
		}
	}
	return nil
}
