package cli

import (
	"strings"
	"testing"
)

func TestAgentsAreCheckedAgainstAPolicy(t *testing.T) {
	folder := t.TempDir()
	write(t, "effect: write\nroute: { nats: { subject: svc.mail } }\negress: true\nuntrusted: true\nlimits: { concurrent: 2, per_minute: 60 }\n", folder, "capabilities", "mail.send.yaml")
	write(t, "instructions: x\nmodel: a/b\ncapabilities: [mail.send]\nsubagents: [two]\nlimits: { no_egress_after_untrusted: true }\n", folder, "agents", "one.yaml")
	write(t, "instructions: x\nmodels: [a/b, c/d]\n", folder, "agents", "two.yaml")
	write(t, "namespaces:\n  support: { agents: ['*'], subagents: [two], models: ['*/*'], capabilities: [mail.*], egress: until_untrusted }\n  default: { agents: ['*'], models: [a/*], capabilities: ['*'] }\n", folder, "policy.yaml")
	check := []string{"agents", "check", "--agents", folder + "/agents", "--capabilities", folder + "/capabilities", "--policy"}
	demand(t, call(t, append(check, folder+"/policy.yaml", "-n", "support")...).ok(t), "nothing is wrong", "2")
	r := call(t, append(check, folder+"/policy.yaml")...)
	r.exits(t, exitFailed)
	demand(t, r.err, "agent one: the policy of namespace default does not allow the subagent two", "agent one: the policy of namespace default lets no data out, and mail.send does",
		"agent two: the policy of namespace default does not allow the model c/d")
	if n := strings.Count(r.err, "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, r.err)
	}
	r = call(t, append(check, folder+"/policy.yaml", "-n", "another")...)
	r.exits(t, exitFailed)
	demand(t, r.err, "agent one: the policy of namespace another does not allow the agent one")
	// Without the flag it is the policy that a worker would have.
	plain := check[:len(check)-1]
	config := write(t, "policy: "+folder+"/policy.yaml\n", folder, "config.yaml")
	for _, r := range []result{call(t, append(plain, "--config", config)...), callIn(t, variables{"AGENTRUNTIME_POLICY": folder + "/policy.yaml"}, "", plain...)} {
		r.exits(t, exitFailed)
		demand(t, r.err, "agent two: the policy of namespace default does not allow the model c/d")
	}
	call(t, append(plain, "--config", config, "-n", "support")...).ok(t)
	callIn(t, variables{"AGENTRUNTIME_POLICY": folder + "/none.yaml"}, "", plain...).fails(t, exitUsage, "none.yaml")
	call(t, append(check, "")...).fails(t, exitUsage, "--policy is empty")
	call(t, append(check, folder+"/agents/one.yaml")...).exits(t, exitUsage)
	call(t, append(check, write(t, "namespaces:\n  a: {}\n  b:\n    routs: {}\n", folder, "wrong.yaml"))...).fails(t, exitUsage, "wrong.yaml:4: namespaces.b.routs: is not a field; did you mean routes?")
	call(t, append(check, folder+"/none.yaml")...).fails(t, exitUsage, "none.yaml")
}
