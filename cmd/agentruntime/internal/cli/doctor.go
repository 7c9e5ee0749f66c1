package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/runtime"
)

// diagnosis is one thing that doctor looked at.
type diagnosis struct {
	What    string            `json:"what"`
	Verdict jetstream.Verdict `json:"verdict"`
	Detail  string            `json:"detail"`
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{Use: "doctor", Short: "Look at every setting that a guarantee rests on", Args: exactly(),
		Long:    "doctor looks at the server's and the streams' settings, at the workers, at how scripts are\ncontained here, at the providers of models, and at the encryption keys, secrets, MCP servers and\npolicy of the configuration; a server is asked for its tools. Keys are never shown. It exits with 1\nwhen something is wrong; what cannot be seen from here is said and is not wrong.",
		Example: "  agentruntime doctor\n  agentruntime doctor -s nats://nats-1:4222 -o json",
		RunE:    func(*cobra.Command, []string) error { return a.doctor() }}
}

func (a *app) doctor() error {
	conn, err := a.connect("agentruntime doctor")
	if err != nil {
		return err
	}
	defer conn.Close()
	findings, err := conn.Check(a.ctx)
	var setting *jetstream.SettingError
	if err != nil && !errors.As(err, &setting) {
		return unreachable(err)
	}
	var list []diagnosis
	for _, f := range findings {
		detail := f.Got
		if f.Verdict != jetstream.Right {
			detail = fmt.Sprintf("is %s, must be %s: %s", f.Got, f.Want, f.Advice)
		}
		list = append(list, diagnosis{f.Where + ": " + f.Setting, f.Verdict, detail})
	}
	list = append(list, a.workerDiagnosis(conn), a.scriptDiagnosis())
	list = slices.Concat(list, a.providerDiagnoses(), a.keyDiagnoses(), a.secretDiagnoses(), a.serverDiagnoses(), a.policyDiagnosis())
	wrong := 0
	for _, d := range list {
		if d.Verdict == jetstream.Wrong {
			wrong++
		}
	}
	if err := a.show(list, func(w io.Writer) {
		for _, d := range list {
			fmt.Fprintf(w, "%-12s  %s: %s\n", d.Verdict, d.What, d.Detail)
		}
	}); err != nil {
		return err
	}
	if wrong > 0 {
		return failed(fmt.Errorf("%d settings are wrong", wrong))
	}
	return nil
}

// workerDiagnosis asks whether a worker answers in this namespace.
func (a *app) workerDiagnosis(conn *jetstream.Conn) diagnosis {
	var answer handlers.AgentsAnswer
	if err := (&client{a, conn}).ask(a.ctx, handlers.VerbAgentsList, nil, struct{}{}, &answer); err != nil {
		return diagnosis{"workers", jetstream.Wrong, err.Error()}
	}
	return diagnosis{"workers", jetstream.Right, fmt.Sprintf("one answers; namespace %s has %d agents", a.config.Namespace, len(answer.Agents))}
}

// providerDiagnoses tells of the providers as a worker with this configuration and
// environment has them. One that only defaults name may lack its key.
func (a *app) providerDiagnoses() []diagnosis {
	var list []diagnosis
	for _, name := range slices.Sorted(maps.Keys(a.config.Providers)) {
		p := a.config.Providers[name]
		d := diagnosis{"provider " + name + " on this machine", jetstream.Right, "kind " + p.Kind}
		if p.BaseURL != "" {
			d.Detail += " at " + p.BaseURL
		}
		needed := p.BaseURL == "" || p.Kind == config.KindGemini
		switch {
		case p.Key != "":
			d.Detail += "; its key is there, from " + orDefault(p.KeyEnv, p.KeyFile)
		case p.Default && needed:
			d.Detail += "; not in use: " + p.KeyGone
		case p.KeyFile != "":
			d.Verdict, d.Detail = jetstream.Wrong, d.Detail+"; it has no key: "+p.KeyGone
		case needed: // the environment of a worker elsewhere cannot be seen
			d.Verdict, d.Detail = jetstream.Unverifiable, d.Detail+"; it has no key here: "+p.KeyGone
		default:
			d.Detail += "; asked without a key: " + p.KeyGone
		}
		list = append(list, d)
	}
	return list
}

// scriptDiagnosis runs a script here, as a worker on this machine with this
// configuration would.
func (a *app) scriptDiagnosis() diagnosis {
	f := a.config.Scripts.Executors()
	f.Warm = -1
	defer f.Close()
	d := diagnosis{What: "scripts on this machine", Verdict: jetstream.Wrong}
	e, err := f.NewExecutor(a.ctx)
	if err != nil {
		d.Detail = err.Error()
		return d
	}
	defer e.Close()
	if _, err := e.Execute(a.ctx, &runtime.Script{Code: "return 1"}); err != nil {
		d.Detail = err.Error()
		return d
	}
	d.Verdict, d.Detail = jetstream.Right, "run in a process of their own; "+f.Containment().String()
	return d
}
