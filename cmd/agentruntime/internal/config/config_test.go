package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/config"
	"github.com/agentruntime/agentruntime/jetstream"
)

// environment is what a process finds in its variables.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func write(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// refused demands that a configuration is refused in one line that names where
// and says each of the words.
func refused(t *testing.T, err error, source string, words ...string) {
	t.Helper()
	var wrong *config.Error
	if !errors.As(err, &wrong) {
		t.Fatalf("error %v, want one about %s", err, source)
	}
	if wrong.Source != source && !strings.HasSuffix(wrong.Source, ": "+source) {
		t.Errorf("the error is about %s, want %s", wrong.Source, source)
	}
	for _, word := range append(words, source) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("the error has several lines: %q", err)
	}
}

// vendor is a provider that no file names and whose key is not there.
func vendor(name, variable string) config.Provider {
	return config.Provider{Kind: name, KeyEnv: variable, KeyGone: variable + " is not set", Default: true}
}

// full is what the example file says.
func full() *config.Config {
	return &config.Config{
		Namespace: "support",
		NATS: config.NATS{Server: "nats://nats-1:4222,nats://nats-2:4222", Creds: "worker.creds", NKey: "worker.nk", User: "worker",
			TLSCert: "worker.crt", TLSKey: "worker.key", TLSCA: "ca.crt", InboxPrefix: "_INBOX_worker"},
		Layout: config.Layout{Shards: 8, Replicas: 3, EventAge: 72 * time.Hour, DeadAge: 720 * time.Hour},
		Worker: config.Worker{Name: "worker-1", Data: "/var/lib/agentruntime", Slots: 64, Lease: 5 * time.Second, Grace: time.Minute},
		Scripts: config.Scripts{Warm: new(1), Memory: 128 << 20, CPU: 30 * time.Second, Timeout: 20 * time.Second,
			Callbacks: 500, Concurrent: 4, Output: 64 << 10, Logs: 32 << 10},
		Tree:  config.Tree{Depth: 4, Width: 500},
		Sweep: 30 * time.Second,
		List:  true,
		Providers: map[string]config.Provider{
			"local": {Kind: "openai_compatible", BaseURL: "http://127.0.0.1:11434/v1", KeyFile: "local.key", ContextTokens: 32000,
				Limits:  config.Limits{Concurrent: 4, RequestsPerMinute: 60, TokensPerMinute: 100000},
				KeyGone: "the key file cannot be read: open local.key: no such file or directory",
				Files:   &config.Files{Types: []string{"image/*", "application/pdf"}, MaxImage: 1000000, MaxFile: 2000000, MaxTotal: 4000000},
				Models:  map[string]config.Model{"qwen3": {ContextTokens: 64000, OutputTokens: 8000, Files: &config.Files{Types: []string{"image/png"}}, Price: &config.Price{Input: "0.5", Cached: "0.05", Output: "1.25"}}}},
			"anthropic": {Kind: "anthropic", KeyEnv: "TEAM_ANTHROPIC_KEY", KeyGone: "TEAM_ANTHROPIC_KEY is not set"},
			"openai":    vendor("openai", "OPENAI_API_KEY"),
			"gemini":    vendor("gemini", "GEMINI_API_KEY"),
		},
		Currency: "EUR",
		Requests: config.Requests{PerCall: 3, PerRun: 200, Patience: 10 * time.Second, Fallback: 2 * time.Minute},
		Policy:   "/etc/agentruntime/policy.yaml",
		Redact:   config.Redact{Builtin: true, Patterns: []string{`\bACME-[0-9]{8}\b`}},
		Named:    map[string]config.Secret{"desk": {KeyEnv: "DESK_TOKEN", Hosts: []string{"desk.internal"}, Gone: "DESK_TOKEN is not set"}},
		MCP: map[string]config.MCPServer{
			"files":   {Command: []string{"mcp-server-filesystem", "/srv/files"}, Env: map[string]string{"TOKEN": "${desk}"}, Dir: "/srv"},
			"tickets": {URL: "https://tickets.example/mcp", Headers: map[string]string{"Authorization": "Bearer ${desk}"}, Egress: true, Untrusted: true},
		},
		HTTP: config.HTTP{Allow: []string{"desk.internal", "10.0.0.0/8"},
			Hosts: map[string]config.HTTPHost{"desk.internal": {TLSCA: "desk-ca.crt", TLSCert: "desk.crt", TLSKey: "desk.key"}}},
		Metrics: "127.0.0.1:9465",
		Log:     config.Log{Level: "debug", Format: "json"},
		Encryption: config.Encryption{Keys: []config.EncryptionKey{{ID: "2026-11", KeyEnv: "AGENT_KEY", KeyGone: "AGENT_KEY is not set"},
			{ID: "2026-05", KeyFile: "old.key", KeyGone: "the key file cannot be read: open old.key: no such file or directory"}}},
	}
}

func TestTheExampleFileGivesEveryFieldAValue(t *testing.T) {
	c, err := config.Read("testdata/config.yaml", environment{}.get)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, field := range unset(reflect.ValueOf(*c), "") {
		if !slices.Contains([]string{"NATS.Password", "NATS.Token"}, field) {
			t.Errorf("the example file does not show %s", field)
		}
	}
}

// unset lists the fields of a structure that have their zero value.
func unset(v reflect.Value, path string) []string {
	var list []string
	for i := range v.NumField() {
		name := strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
		switch field := v.Field(i); {
		case field.Kind() == reflect.Struct:
			list = append(list, unset(field, name)...)
		case field.IsZero():
			list = append(list, name)
		}
	}
	return list
}

func TestWithoutFileAndEnvironmentTheDefaultsCount(t *testing.T) {
	for name, file := range map[string]string{"no file": "", "an empty file": write(t, ""), "comments alone": write(t, "# nothing\n")} {
		c, err := config.Read(file, environment{}.get)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(&config.Config{Namespace: "default", List: true, Providers: map[string]config.Provider{
			"openai": vendor("openai", "OPENAI_API_KEY"), "anthropic": vendor("anthropic", "ANTHROPIC_API_KEY"), "gemini": vendor("gemini", "GEMINI_API_KEY")}}, c); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTheEnvironmentComesBeforeTheFile(t *testing.T) {
	env := environment{
		"AGENTRUNTIME_NAMESPACE": "env", "AGENTRUNTIME_METRICS": "off", "AGENTRUNTIME_DATA": "/env", "AGENTRUNTIME_WORKER": "w-env",
		"NATS_URL": "nats://env", "NATS_CREDS": "env.creds", "NATS_NKEY": "env.nk", "NATS_USER": "u", "NATS_PASSWORD": "p", "NATS_TOKEN": "t",
		"NATS_CERT": "env.crt", "NATS_KEY": "env.key", "NATS_CA": "env-ca.crt", "NATS_INBOX_PREFIX": "_INBOX_env",
		"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://env", "TEAM_ANTHROPIC_KEY": "team",
		"AGENTRUNTIME_TREE_DEPTH": "2", "AGENTRUNTIME_TREE_WIDTH": "20", "AGENTRUNTIME_SWEEP": "5m", "AGENTRUNTIME_LIST": "false",
	}
	c, err := config.Read("testdata/config.yaml", env.get)
	if err != nil {
		t.Fatal(err)
	}
	want := full()
	want.Namespace, want.Metrics, want.Worker.Data, want.Worker.Name = "env", "off", "/env", "w-env"
	want.NATS = config.NATS{Server: "nats://env", Creds: "env.creds", NKey: "env.nk", User: "u", Password: "p", Token: "t",
		TLSCert: "env.crt", TLSKey: "env.key", TLSCA: "env-ca.crt", InboxPrefix: "_INBOX_env"}
	want.Providers["openai"] = config.Provider{Kind: "openai", KeyEnv: "OPENAI_API_KEY", BaseURL: "http://env", Key: "k", Default: true}
	want.Providers["anthropic"] = config.Provider{Kind: "anthropic", KeyEnv: "TEAM_ANTHROPIC_KEY", Key: "team"}
	want.Tree, want.Sweep, want.List = config.Tree{Depth: 2, Width: 20}, 5*time.Minute, false
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if want := []string{"p", "t", "team", "k"}; !slices.Equal(c.Secrets(), want) {
		t.Errorf("secrets %q, want %q", c.Secrets(), want)
	}
}

func TestTheFlagNamesTheFileBeforeTheEnvironmentDoes(t *testing.T) {
	flag, env := write(t, "namespace: flag\n"), environment{"AGENTRUNTIME_CONFIG": write(t, "namespace: env\n")}
	for file, want := range map[string]string{flag: "flag", "": "env"} {
		if c, err := config.Read(file, env.get); err != nil || c.Namespace != want {
			t.Errorf("with --config %q: %+v, %v; want namespace %s", file, c, err, want)
		}
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "config.yaml")
	_, err := config.Read(missing, environment{}.get)
	refused(t, err, missing, "cannot be read")
	folder := t.TempDir()
	_, err = config.Read("", environment{"AGENTRUNTIME_CONFIG": folder}.get)
	refused(t, err, folder, "cannot be read")
}

func TestWhatAFileMayNotSayIsRefusedWithItsLine(t *testing.T) {
	for text, want := range map[string][]string{
		"namespace: a\nnamespaces: b\n":                                          {":2: namespaces: is not a field; did you mean namespace?"},
		"nats:\n  server: a\n  url: b\nlogs: {}\n":                               {":3: nats.url: is not a field; the fields are creds, inbox_prefix, nkey, server, tls_ca, tls_cert, tls_key, user", ":4: logs: is not a field; did you mean log?"},
		"worker:\n  lease: ten\n":                                                {":2: worker.lease: must be a duration such as 30s or 5m"},
		"worker:\n  lease: 10\n":                                                 {":2: worker.lease: must be a duration such as 30s or 5m"},
		"layout: [8]\n":                                                          {":1: layout: must be an object, but is an array"},
		"layout:\n  shards: many\n":                                              {":2: layout.shards: must be an integer, but is a string"},
		"layout:\n  shards: 9223372036854775808\n":                               {":2: layout.shards: must be at most 1000000000000000"},
		"tree:\n  deep: 5\n":                                                     {":2: tree.deep: is not a field; the fields are depth, width"},
		"sweep: 1m\nlist: perhaps\n":                                             {":2: list: must be a boolean, but is a string"},
		"namespace: a\nnamespace: b\n":                                           {":2: namespace: is given twice, first in line 1"},
		"namespace: 'a\n":                                                        {":1: is not YAML: found unexpected end of stream"},
		"namespace: a\n---\nnamespace: b\n":                                      {":2: begins a second document: write it to a file of its own"},
		"worker: {}\n# a comment\n\nworkers: {slots: 1}":                         {":4: workers: is not a field; did you mean worker?"},
		"encryption:\n  keys:\n    - id: k\n      kye_env: K":                    {":4: encryption.keys[0].kye_env: is not a field; did you mean key_env?"},
		"mcp:\n  files:\n    comand: [x]\n":                                      {":3: mcp.files.comand: is not a field; did you mean command?"},
		"mcp:\n  files:\n    command: x\n":                                       {":3: mcp.files.command: must be an array, but is a string"},
		"providers:\n  local:\n    models:\n      m: { price: { input: true } }": {":4: providers.local.models.m.price.input: must be a string or a number, but is a boolean"},
		"providers:\n  local:\n    models:\n      m:\n        efort: low\n":      {":5: providers.local.models.m.efort: is not a field; did you mean effort?"},
		"policy:\n": {":1: policy: has no value"},
	} {
		file := write(t, text)
		_, err := config.Read(file, environment{}.get)
		var wrong *config.Error
		if !errors.As(err, &wrong) {
			t.Errorf("%q: error %v", text, err)
			continue
		}
		var lines []string
		for _, line := range want {
			lines = append(lines, "configuration "+file+line)
		}
		if diff := cmp.Diff(strings.Join(lines, "\n"), err.Error()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestAValueThatCannotWorkIsRefusedWithItsLineWhereAFileHasIt(t *testing.T) {
	text := "worker:\n  slots: 1\n  lease: 1s\nhttp:\n  hosts:\n    a: {}\n    desk.internal:\n      tls_cert: x\n    desk: {}\n"
	file := write(t, text)
	_, err := config.Read(file, environment{}.get)
	refused(t, err, file+":3: worker.lease", "must be whole seconds")
	file = write(t, strings.Replace(text, "1s", "2s", 1))
	_, err = config.Read(file, environment{}.get)
	refused(t, err, file+":7: http.hosts.desk.internal", "tls_key")
	// What the environment says stands in no file.
	file = write(t, "namespace: right\n")
	_, err = config.Read(file, environment{"AGENTRUNTIME_NAMESPACE": "a b"}.get)
	refused(t, err, "namespace", "must be")
	if strings.Contains(err.Error(), file) {
		t.Error(err)
	}
	_, err = config.Read(write(t, "sweep: 1ms\n"), environment{"AGENTRUNTIME_NAMESPACE": "a b"}.get)
	refused(t, err, "namespace", "must be")
	if _, err := config.Read(write(t, "namespace: a.b\n"), environment{"AGENTRUNTIME_NAMESPACE": "right"}.get); err != nil {
		t.Errorf("what the environment replaces is no error: %v", err)
	}
}

func TestAnEncryptionWithoutKeysIsRefused(t *testing.T) {
	for _, text := range []string{"encryption: {}", "encryption: { keys: [] }"} {
		file := write(t, "namespace: a\n"+text+"\n")
		_, err := config.Read(file, environment{}.get)
		refused(t, err, file+":2: encryption.keys", "must have a key", "plain")
	}
	_, err := config.Read(write(t, "encryption:\n"), environment{}.get)
	refused(t, err, "encryption", "has no value")
}

func TestAnAddressThatIsNoneIsRefusedAndNotShown(t *testing.T) {
	for _, address := range []string{"foo bar", "nats://u:hunter2@a b:4222", "http://a", "nats://", "nats://a:4222,nats://b:port"} {
		_, err := config.Read("", environment{"NATS_URL": address}.get)
		refused(t, err, "nats.server", "must be URLs")
		if strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
	for _, address := range []string{"a", "a:4222, b:4222", "[::1]:4222", "tls://u:p@a", "wss://a:443/path", "nats://tok@a,"} {
		if _, err := config.Read("", environment{"NATS_URL": address}.get); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestASecretDoesNotStandInAFile(t *testing.T) {
	for text, source := range map[string]string{"nats: { password: hunter2 }": "nats.password", "nats: { token: hunter2 }": "nats.token",
		"providers: { openai: { key: hunter2 } }": "providers.openai.key", "providers: { openai: { api_key: hunter2 } }": "providers.openai.api_key"} {
		file := write(t, text+"\n")
		_, err := config.Read(file, environment{}.get)
		refused(t, err, file+":1: "+source, "is not a field")
		if strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func TestSecretsOfURLsAreSecretsToo(t *testing.T) {
	c := config.Config{NATS: config.NATS{Server: "nats://u:pw@a:4222, nats://tok@b:4222,c:4222"}, Providers: map[string]config.Provider{"openai": {BaseURL: "https://u:key@c/v1"}}}
	if want := []string{"pw", "tok", "key"}; !slices.Equal(c.Secrets(), want) {
		t.Errorf("secrets %q, want %q", c.Secrets(), want)
	}
	if none := (&config.Config{NATS: config.NATS{Server: "nats://a:4222"}}).Secrets(); len(none) != 0 {
		t.Errorf("secrets %q of a configuration without any", none)
	}
}

func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	for text, source := range map[string]string{
		"namespace: a.b":                                       "namespace",
		"namespace: -a":                                        "namespace",
		"namespace: " + strings.Repeat("a", 41):                "namespace",
		"layout: { shards: -1 }":                               "layout.shards",
		"layout: { shards: 65 }":                               "layout.shards",
		"layout: { replicas: -1 }":                             "layout.replicas",
		"layout: { replicas: 2 }":                              "layout.replicas",
		"layout: { replicas: 4 }":                              "layout.replicas",
		"layout: { replicas: 6 }":                              "layout.replicas",
		"layout: { event_age: -1h }":                           "layout.event_age",
		"layout: { dead_age: -1h }":                            "layout.dead_age",
		"worker: { slots: -1 }":                                "worker.slots",
		"worker: { lease: 1s }":                                "worker.lease",
		"worker: { lease: 2500ms }":                            "worker.lease",
		"worker: { lease: -10s }":                              "worker.lease",
		"worker: { grace: -1s }":                               "worker.grace",
		"tree: { depth: -1 }":                                  "tree.depth",
		"tree: { width: -1 }":                                  "tree.width",
		"sweep: 999ms":                                         "sweep",
		"sweep: -1m":                                           "sweep",
		"requests: { per_call: -1 }":                           "requests.per_call",
		"requests: { per_call: 101 }":                          "requests.per_call",
		"requests: { per_run: -1 }":                            "requests.per_run",
		"requests: { patience: 999ms }":                        "requests.patience",
		"requests: { patience: -1s }":                          "requests.patience",
		"requests: { fallback: -1s }":                          "requests.fallback",
		"secrets: { 'a b': { key_env: A } }":                   "secrets.a b",
		"secrets: { a: {} }":                                   "secrets.a",
		"secrets: { a: { key_env: a-b } }":                     "secrets.a.key_env",
		"secrets: { a: { key_env: A, hosts: ['https://a'] } }": "secrets.a.hosts",
		"mcp: { Files: { command: [x] } }":                     "mcp.Files",
		"mcp: { files: { command: [x], url: 'http://a' } }":    "mcp.files",
		"mcp: { files: { url: 'http://u:p@a' } }":              "mcp.files.url",
		"mcp: { files: { url: 'http://a', env: { A: b } } }":   "mcp.files",
		"http: { allow: ['10.0.0.0/33'] }":                     "http.allow",
		"http: { hosts: { a: { tls_cert: x } } }":              "http.hosts.a",
		"http: { hosts: { 'a:0': { tls_ca: x } } }":            "http.hosts.a:0",
		"http: { allow: ['[::1'] }":                            "http.allow",
		"secrets: { a: { key_env: A, hosts: ['a:70000'] } }":   "secrets.a.hosts",
		"currency: euro":                                       "currency",
		"log: { level: loud }":                                 "log.level",
		"log: { format: xml }":                                 "log.format",
		"scripts: { warm: 65 }":                                "scripts.warm",
		"scripts: { memory: 100663295 }":                       "scripts.memory",
		"scripts: { cpu: 1500ms }":                             "scripts.cpu",
		"scripts: { timeout: -1s }":                            "scripts.timeout",
		"scripts: { callbacks: 100001 }":                       "scripts.callbacks",
		"scripts: { concurrent: 257 }":                         "scripts.concurrent",
		"scripts: { output: 4194305 }":                         "scripts.output",
		"scripts: { logs: -1 }":                                "scripts.logs",
	} {
		_, err := config.Read(write(t, text), environment{}.get)
		refused(t, err, source, "must be")
	}
	for text, source := range map[string]string{
		"mcp: { files: { command: [x], env: { A: '${b}' } } }":        "mcp.files.env.A",
		"mcp: { files: { url: 'http://a', headers: { A: '${b}' } } }": "mcp.files.headers.A",
	} {
		_, err := config.Read(write(t, text), environment{}.get)
		refused(t, err, source, source+": must name a secret that there is: secrets has none of that name")
	}
	for _, text := range []string{
		"layout: { shards: 64, replicas: 5 }", "layout: { shards: 1, replicas: 1 }", "worker: { lease: 2s }",
		"tree: { depth: 1, width: 1 }", "scripts: { warm: 0 }", "sweep: 1s", "list: false",
		"log: { level: warn, format: text }", "log: { level: error }", "log: { level: info }", "namespace: " + strings.Repeat("a", 40),
	} {
		if _, err := config.Read(write(t, text), environment{}.get); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := config.Read("", environment{"AGENTRUNTIME_NAMESPACE": "a b"}.get)
	refused(t, err, "namespace", "must be")
	for name, value := range map[string]string{"AGENTRUNTIME_TREE_DEPTH": "deep", "AGENTRUNTIME_TREE_WIDTH": "1.5", "AGENTRUNTIME_SWEEP": "1", "AGENTRUNTIME_LIST": "yes"} {
		_, err := config.Read("", environment{name: value}.get)
		refused(t, err, name, "must be")
	}
}

func TestAConnectionIsMadeAsConfigured(t *testing.T) {
	c := full()
	c.NATS.Password, c.NATS.Token = "p", "t"
	want := jetstream.Config{Servers: c.NATS.Server, Name: "me", Creds: "worker.creds", NKey: "worker.nk", User: "worker", Password: "p", Token: "t",
		TLSCert: "worker.crt", TLSKey: "worker.key", TLSCA: "ca.crt", InboxPrefix: "_INBOX_worker",
		Layout: jetstream.Layout{Shards: 8, Replicas: 3, EventAge: 72 * time.Hour, DeadAge: 720 * time.Hour}}
	if diff := cmp.Diff(want, c.Connection("me")); diff != "" {
		t.Errorf("connection (-want +got):\n%s", diff)
	}
}
