// Package config reads the configuration of a process. What a flag says comes
// before the environment, the environment before the file, and the file before
// the defaults.
package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/executor"
)

// Config is the configuration file. Zero stands for the default that a field
// names; only List, whose default is true, and Providers are completed by Read.
type Config struct {
	Namespace string        `yaml:"namespace"` // default
	NATS      NATS          `yaml:"nats"`
	Layout    Layout        `yaml:"layout"`
	Worker    Worker        `yaml:"worker"`
	Scripts   Scripts       `yaml:"scripts"`
	Tree      Tree          `yaml:"tree"`
	Sweep     time.Duration `yaml:"sweep"`   // between two looks at every run that has not ended; 1m
	List      bool          `yaml:"list"`    // whether this process may keep the list of runs; true
	Metrics   string        `yaml:"metrics"` // listen address, or off
	Log       Log           `yaml:"log"`

	Encryption Encryption `yaml:"encryption"` // off by default

	Providers map[string]Provider `yaml:"providers"` // by the name that definitions use
	Currency  string              `yaml:"currency"`  // of all prices; USD
	Requests  Requests            `yaml:"requests"`
	Redact    Redact              `yaml:"redact"` // what is removed beside the secrets here
	Policy    string              `yaml:"policy"` // file that says what namespaces may do; AGENTRUNTIME_POLICY; without one, whatever was granted

	Named map[string]Secret    `yaml:"secrets"` // by the name that ${name} has
	MCP   map[string]MCPServer `yaml:"mcp"`     // by the name that routes use
	HTTP  HTTP                 `yaml:"http"`
}

// NATS says how to reach the NATS system.
type NATS struct {
	Server      string `yaml:"server"`       // URLs, separated by commas; NATS_URL
	Creds       string `yaml:"creds"`        // file; NATS_CREDS
	NKey        string `yaml:"nkey"`         // file; NATS_NKEY
	User        string `yaml:"user"`         // NATS_USER
	Password    string `yaml:"-"`            // NATS_PASSWORD only: a secret does not stand in a file
	Token       string `yaml:"-"`            // NATS_TOKEN only
	TLSCert     string `yaml:"tls_cert"`     // file; NATS_CERT
	TLSKey      string `yaml:"tls_key"`      // file; NATS_KEY
	TLSCA       string `yaml:"tls_ca"`       // file; NATS_CA
	InboxPrefix string `yaml:"inbox_prefix"` // NATS_INBOX_PREFIX
}

// Layout is what the streams look like; see jetstream.Layout.
type Layout struct {
	Shards   int           `yaml:"shards"`
	Replicas int           `yaml:"replicas"`
	EventAge time.Duration `yaml:"event_age"`
	DeadAge  time.Duration `yaml:"dead_age"`
}

// Worker is how a worker works.
type Worker struct {
	Name  string        `yaml:"name"`  // the host's name by default
	Data  string        `yaml:"data"`  // folder that this worker alone uses; optional
	Slots int           `yaml:"slots"` // runs at a time; 256
	Lease time.Duration `yaml:"lease"` // time to live of a lease, whole seconds; 10s
	Grace time.Duration `yaml:"grace"` // for calls in flight when stopping; 30s
}

// Scripts is how scripts run; see executor.Factory. A definition's own limits
// come before these.
type Scripts struct {
	Warm       *int          `yaml:"warm"`       // processes kept ready, 0 to 64; 2
	Memory     int64         `yaml:"memory"`     // bytes, of a process, at least 96 MiB; 256 MiB
	CPU        time.Duration `yaml:"cpu"`        // of a script; 1m
	Timeout    time.Duration `yaml:"timeout"`    // of a script; 30s
	Callbacks  int           `yaml:"callbacks"`  // of a script; 1000
	Concurrent int           `yaml:"concurrent"` // of its callbacks at once; 8
	Output     int           `yaml:"output"`     // bytes of what a script returns; 256 KiB
	Logs       int           `yaml:"logs"`       // bytes of its console output; 64 KiB
}

// Executors returns what runs the scripts.
func (s *Scripts) Executors() *executor.Factory {
	f := &executor.Factory{Memory: s.Memory, CPU: s.CPU, Timeout: s.Timeout, MaxCallbacks: s.Callbacks, MaxConcurrent: s.Concurrent, MaxValue: s.Output, MaxLogs: s.Logs}
	if s.Warm != nil {
		if f.Warm = *s.Warm; f.Warm == 0 {
			f.Warm = -1
		}
	}
	return f
}

// Tree bounds what one root run may grow into; see handlers.TreeLimits.
type Tree struct {
	Depth int `yaml:"depth"` // generations below the root; 8
	Width int `yaml:"width"` // calls of one run that start children; 10000
}

// Requests bound what is asked of models.
type Requests struct {
	PerCall  int           `yaml:"per_call"` // for one response; 5
	PerRun   int           `yaml:"per_run"`  // that a provider answered; 10000
	Patience time.Duration `yaml:"patience"` // longest pause between two of a call; a provider that asks for more parks the run; 30s
	Fallback time.Duration `yaml:"fallback"` // how long a model may be unavailable before a run with several asks the next; 1m
}

// Log is how a process logs.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error; info
	Format string `yaml:"format"` // json or text; json for serve, text for dev
}

// Error reports a configuration that cannot be used.
type Error struct {
	Source string // the file, with the line and the member's path; the variable or the flag
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("configuration %s: %s", e.Source, e.Reason) }

// source names a place in a file. Line is 0 and path empty where there is none.
func source(file string, line int, path string) string {
	if line > 0 {
		file += ":" + strconv.Itoa(line)
	}
	if path != "" {
		file += ": " + path
	}
	return file
}

// inFile turns what is wrong with a file into an *Error each, joined.
func inFile(err error) error {
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			all = append(all, inFile(err))
		}
		return errors.Join(all...)
	}
	var wrong *files.Error
	if !errors.As(err, &wrong) {
		return err
	}
	return &Error{source(wrong.File, wrong.Line, wrong.Field), wrong.Reason}
}

// Read reads the file, if one is named, and lays the environment over it. The
// error is an *Error, or several of them, joined.
func Read(file string, getenv func(string) string) (*Config, error) {
	c := &Config{List: true}
	if file == "" {
		file = getenv("AGENTRUNTIME_CONFIG")
	}
	var settings *files.Settings
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, &Error{file, fmt.Sprintf("cannot be read: %v", err)}
		}
		if settings, err = files.ReadSettings(file, data, c); err != nil {
			return nil, inFile(err)
		}
	}
	if line := settings.Line("encryption"); line > 0 && len(c.Encryption.Keys) == 0 {
		return nil, &Error{source(file, line, "encryption.keys"), "must have a key: without one nothing is encrypted; to have everything stored plain, leave encryption out"}
	}
	alone := *c
	alone.Providers = maps.Clone(c.Providers)
	if err := c.environment(getenv); err != nil {
		return nil, err
	}
	c.complete(getenv)
	c.resolve(getenv)
	c.readKeys(getenv)
	err := c.Check()
	if err == nil {
		return c, nil
	}
	// What the file alone gets wrong in the same way stands in it.
	alone.complete(func(string) string { return "" })
	var wrong *Error
	if own := alone.Check(); errors.As(own, &wrong) && own.Error() == err.Error() {
		if line := settings.Line(wrong.Source); line > 0 {
			return nil, &Error{source(file, line, wrong.Source), wrong.Reason}
		}
	}
	return nil, err
}

// complete puts defaults in the place of what neither the file nor the environment
// says.
func (c *Config) complete(getenv func(string) string) {
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	c.provide(getenv)
}

// environment lays the variables over the file.
func (c *Config) environment(getenv func(string) string) error {
	for name, field := range map[string]*string{
		"AGENTRUNTIME_NAMESPACE": &c.Namespace, "AGENTRUNTIME_METRICS": &c.Metrics, "AGENTRUNTIME_DATA": &c.Worker.Data, "AGENTRUNTIME_WORKER": &c.Worker.Name, "AGENTRUNTIME_POLICY": &c.Policy,
		"NATS_URL": &c.NATS.Server, "NATS_CREDS": &c.NATS.Creds, "NATS_NKEY": &c.NATS.NKey, "NATS_USER": &c.NATS.User, "NATS_PASSWORD": &c.NATS.Password,
		"NATS_TOKEN": &c.NATS.Token, "NATS_CERT": &c.NATS.TLSCert, "NATS_KEY": &c.NATS.TLSKey, "NATS_CA": &c.NATS.TLSCA, "NATS_INBOX_PREFIX": &c.NATS.InboxPrefix,
	} {
		if v := getenv(name); v != "" {
			*field = v
		}
	}
	for _, v := range []struct {
		name string
		read func(string) error
		must string
	}{
		{"AGENTRUNTIME_TREE_DEPTH", number(&c.Tree.Depth), "a whole number"},
		{"AGENTRUNTIME_TREE_WIDTH", number(&c.Tree.Width), "a whole number"},
		{"AGENTRUNTIME_SWEEP", func(s string) (err error) { c.Sweep, err = time.ParseDuration(s); return err }, "a duration such as 1m"},
		{"AGENTRUNTIME_LIST", func(s string) (err error) { c.List, err = strconv.ParseBool(s); return err }, "true or false"},
	} {
		if s := getenv(v.name); s != "" && v.read(s) != nil {
			return &Error{v.name, "must be " + v.must}
		}
	}
	return nil
}

func number(into *int) func(string) error {
	return func(s string) (err error) { *into, err = strconv.Atoi(s); return err }
}

// Check refuses values that no part of the service can work with.
func (c *Config) Check() error {
	if err := events.CheckNamespace(c.Namespace); err != nil {
		return &Error{"namespace", err.Error()}
	}
	for _, n := range []struct {
		name  string
		wrong bool
		must  string
	}{
		{"layout.shards", c.Layout.Shards < 0 || c.Layout.Shards > 64, "from 1 to 64"},
		{"layout.replicas", c.Layout.Replicas < 0 || c.Layout.Replicas == 2 || c.Layout.Replicas == 4 || c.Layout.Replicas > 5, "1, 3 or 5"},
		{"layout.event_age", c.Layout.EventAge < 0, "positive"},
		{"layout.dead_age", c.Layout.DeadAge < 0, "positive"},
		{"worker.slots", c.Worker.Slots < 0, "positive"},
		{"worker.lease", c.Worker.Lease != 0 && (c.Worker.Lease < 2*time.Second || c.Worker.Lease%time.Second != 0), "whole seconds, at least 2s"},
		{"worker.grace", c.Worker.Grace < 0, "positive"},
		{"scripts.warm", c.Scripts.Warm != nil && (*c.Scripts.Warm < 0 || *c.Scripts.Warm > 64), "from 0 to 64"},
		{"scripts.memory", c.Scripts.Memory != 0 && c.Scripts.Memory < 96<<20, "at least 100663296"},
		{"scripts.cpu", c.Scripts.CPU < 0 || c.Scripts.CPU%time.Second != 0, "whole seconds"},
		{"scripts.timeout", c.Scripts.Timeout < 0, "positive"},
		{"scripts.callbacks", c.Scripts.Callbacks < 0 || c.Scripts.Callbacks > runtime.MaxScriptCallbacks, "from 1 to 100000"},
		{"scripts.concurrent", c.Scripts.Concurrent < 0 || c.Scripts.Concurrent > runtime.MaxScriptConcurrent, "from 1 to 256"},
		{"scripts.output", c.Scripts.Output < 0 || c.Scripts.Output > runtime.MaxScriptBytes, "from 1 to 4194304"},
		{"scripts.logs", c.Scripts.Logs < 0 || c.Scripts.Logs > runtime.MaxScriptBytes, "from 1 to 4194304"},
		{"tree.depth", c.Tree.Depth < 0, "positive"},
		{"tree.width", c.Tree.Width < 0, "positive"},
		{"requests.per_call", c.Requests.PerCall < 0 || c.Requests.PerCall > 100, "from 1 to 100"},
		{"requests.per_run", c.Requests.PerRun < 0, "positive"},
		{"requests.patience", c.Requests.Patience < 0 || c.Requests.Patience > 0 && c.Requests.Patience < time.Second, "at least 1s"},
		{"requests.fallback", c.Requests.Fallback < 0, "positive"},
		{"sweep", c.Sweep != 0 && c.Sweep < time.Second, "at least 1s"},
	} {
		if n.wrong {
			return &Error{n.name, "must be " + n.must}
		}
	}
	if err := c.NATS.check(); err != nil {
		return err
	}
	if err := c.checkProviders(); err != nil {
		return err
	}
	if err := c.checkRoutes(); err != nil {
		return err
	}
	if err := c.checkKeys(); err != nil {
		return err
	}
	if err := c.Redact.check(); err != nil {
		return err
	}
	switch c.Log.Level {
	case "", "debug", "info", "warn", "error":
	default:
		return &Error{"log.level", "must be debug, info, warn or error"}
	}
	switch c.Log.Format {
	case "", "json", "text":
	default:
		return &Error{"log.format", "must be json or text"}
	}
	return nil
}

// check repeats no address: a password may stand in it.
func (n *NATS) check() error {
	for address := range strings.SplitSeq(n.Server, ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue // the client skips it, too
		}
		if !strings.Contains(address, "://") {
			address = "nats://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return &Error{"nats.server", "must be URLs separated by commas, such as nats://127.0.0.1:4222"}
		}
	}
	if n.InboxPrefix != "" && (strings.ContainsAny(n.InboxPrefix, " \t\r\n*>") || slices.Contains(strings.Split(n.InboxPrefix, "."), "")) {
		return &Error{"nats.inbox_prefix", "must be words joined by dots, such as _INBOX.team, without wildcards"}
	}
	return nil
}

// Connection returns how package jetstream connects.
func (c *Config) Connection(name string) jetstream.Config {
	return jetstream.Config{Servers: c.NATS.Server, Name: name, Creds: c.NATS.Creds, NKey: c.NATS.NKey, User: c.NATS.User, Password: c.NATS.Password, Token: c.NATS.Token,
		TLSCert: c.NATS.TLSCert, TLSKey: c.NATS.TLSKey, TLSCA: c.NATS.TLSCA, InboxPrefix: c.NATS.InboxPrefix,
		Layout: jetstream.Layout{Shards: c.Layout.Shards, Replicas: c.Layout.Replicas, EventAge: c.Layout.EventAge, DeadAge: c.Layout.DeadAge}}
}

// Secrets returns the values that must not be shown anywhere, those that stand
// in URLs and in the credential files of NATS among them.
func (c *Config) Secrets() []string {
	var list []string
	add := func(s string) {
		if s != "" {
			list = append(list, s)
		}
	}
	add(c.NATS.Password)
	add(c.NATS.Token)
	for _, s := range c.NATS.credentials() {
		add(s)
	}
	for _, k := range c.Encryption.Keys {
		add(k.Key)
	}
	addresses := strings.Split(c.NATS.Server, ",")
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		add(c.Providers[name].Key)
		addresses = append(addresses, c.Providers[name].BaseURL)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Named)) {
		add(c.Named[name].Value)
	}
	for _, address := range addresses {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || u.User == nil {
			continue
		}
		// A user name alone is a token.
		if password, set := u.User.Password(); set {
			add(password)
		} else {
			add(u.User.Username())
		}
	}
	return list
}
