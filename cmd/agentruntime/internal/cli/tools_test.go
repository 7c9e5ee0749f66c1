package cli

import (
	"strings"
	"testing"
)

func TestAServerThatListsNoToolsIsGivenTheTimeOfTheCommand(t *testing.T) {
	folder := t.TempDir()
	write(t, "slug: desk\nmodel: scripted/desk\ninstructions: x\ncapabilities: ['mcp.mute.*']\n", folder, "agents", "desk.yaml")
	configured := write(t, "mcp: { mute: { command: [sleep, '1000'] } }\n", folder, "config.yaml")
	r := call(t, "agents", "check", "--agents", folder+"/agents", "--config", configured, "--timeout", "300ms")
	r.exits(t, exitFailed)
	demand(t, spoken(r.err), "MCP server mute did not list its tools within 300ms", "--timeout")
}

func TestTheLastWordsOfAServerShowNoSecret(t *testing.T) {
	folder := t.TempDir()
	write(t, "slug: desk\nmodel: scripted/desk\ninstructions: x\ncapabilities: ['mcp.loud.*']\n", folder, "agents", "desk.yaml")
	configured := write(t, "secrets: { key: { key_env: KEY } }\nmcp: { loud: { command: [sh, -c, 'echo \"$KEY is refused\" >&2; exit 4'], env: { KEY: '${key}' } } }\n", folder, "config.yaml")
	r := callIn(t, variables{"KEY": "hunter2-of-the-server"}, "", "agents", "check", "--agents", folder+"/agents", "--config", configured)
	demand(t, r.err, "is refused", "exit status 4")
	if strings.Contains(r.out+r.err, "hunter2") {
		t.Errorf("it shows a secret: %s", r.err)
	}
}
