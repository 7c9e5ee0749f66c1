package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/policy"
)

// policies opens the policy of the configuration; without one there is none.
func (a *app) policies(logger *slog.Logger) (handlers.Policies, error) {
	if a.config.Policy == "" {
		return nil, nil
	}
	f, err := config.OpenPolicy(a.config.Policy, func(p *policy.Policy, err error) {
		if err != nil {
			logger.Error("the policy cannot be used; the last one stays in force", "namespaces", p.String(), "error", err)
			return
		}
		logger.Info("another policy is in force", "namespaces", p.String())
	})
	if err != nil {
		return nil, usage(err)
	}
	return f, nil
}

// checkPolicy reports everything in versions that the policy of a file does not
// allow in the namespace.
func (a *app) checkPolicy(file string, versions []handlers.Version) error {
	p, err := config.ReadPolicy(file)
	if err != nil {
		return usage(err)
	}
	var errs []error
	for i := range versions {
		v := &versions[i]
		denied := p.Version(a.config.Namespace, &v.Agent, v.Capabilities, false)
		if denied != nil {
			for line := range strings.SplitSeq(denied.Error(), "\n") {
				errs = append(errs, fmt.Errorf("agent %s: %s", v.Agent.Slug, line))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return failed(err)
	}
	return nil
}
