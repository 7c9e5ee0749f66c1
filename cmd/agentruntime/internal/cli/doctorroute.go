package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/jetstream"
)

// secretDiagnoses tell which secrets and files of routes are there, as a worker with this
// configuration and environment has them.
func (a *app) secretDiagnoses() []diagnosis {
	var list []diagnosis
	for _, name := range slices.Sorted(maps.Keys(a.config.Named)) {
		s := a.config.Named[name]
		d := diagnosis{"secret " + name + " on this machine", jetstream.Right, "it is there, from " + orDefault(s.KeyEnv, s.KeyFile)}
		switch {
		case s.Value != "" && len(s.Hosts) > 0:
			d.Detail += ", and HTTP routes may take it to " + strings.Join(s.Hosts, ", ")
		case s.Value != "":
		case s.KeyFile != "":
			d.Verdict, d.Detail = jetstream.Wrong, s.Gone
		default: // the environment of a worker elsewhere cannot be seen
			d.Verdict, d.Detail = jetstream.Unverifiable, s.Gone
		}
		list = append(list, d)
	}
	return list
}

// keyDiagnoses tell which keys of the encryption are there. A worker needs each of
// them.
func (a *app) keyDiagnoses() []diagnosis {
	var list []diagnosis
	for i := range a.config.Encryption.Keys {
		k := &a.config.Encryption.Keys[i]
		d := diagnosis{"encryption key " + k.ID + " on this machine", jetstream.Right, "it is there, from " + orDefault(k.KeyEnv, k.KeyFile)}
		if _, err := k.Wrapping(); err != nil {
			d.Verdict, d.Detail = jetstream.Wrong, err.Error()
			if k.Key == "" && k.KeyEnv != "" { // the environment of a worker elsewhere cannot be seen
				d.Verdict = jetstream.Unverifiable
			}
		}
		list = append(list, d)
	}
	if hosts := slices.Sorted(maps.Keys(a.config.HTTP.Hosts)); len(hosts) > 0 {
		d := diagnosis{"TLS with hosts of routes on this machine", jetstream.Right, "its files are there, for " + strings.Join(hosts, ", ")}
		if _, err := a.config.HTTP.TLS(); err != nil {
			d.Verdict, d.Detail = jetstream.Wrong, oneLine(err.Error())
		}
		list = append(list, d)
	}
	return list
}

// serverDiagnoses ask every MCP server for its tools, from this machine.
func (a *app) serverDiagnoses() []diagnosis {
	var list []diagnosis
	for _, name := range slices.Sorted(maps.Keys(a.config.MCP)) {
		d := diagnosis{What: "MCP server " + name + " from this machine", Verdict: jetstream.Right}
		_, goneEnv := a.config.Expand(a.config.MCP[name].Env)
		_, goneHeaders := a.config.Expand(a.config.MCP[name].Headers)
		if gone := goneEnv + goneHeaders; gone != "" {
			d.Verdict, d.Detail = jetstream.Unverifiable, "it was not asked: "+gone
		} else if kept, left, err := a.tools(name); err != nil {
			d.Verdict, d.Detail = jetstream.Wrong, oneLine(err.Error())
		} else {
			d.Detail = fmt.Sprintf("it offers %d tools", len(kept)+len(left))
			if len(left) > 0 {
				d.Detail += fmt.Sprintf(", and %d of them cannot be imported: agents check tells why", len(left))
			}
		}
		list = append(list, d)
	}
	return list
}

// policyDiagnosis reads the policy, where one is configured.
func (a *app) policyDiagnosis() []diagnosis {
	if a.config.Policy == "" {
		return nil
	}
	d := diagnosis{What: "policy " + a.config.Policy, Verdict: jetstream.Right}
	if p, err := config.ReadPolicy(a.config.Policy); err != nil {
		d.Verdict, d.Detail = jetstream.Wrong, oneLine(err.Error())
	} else {
		d.Detail = "it rules the namespaces " + p.String()
	}
	return []diagnosis{d}
}
