// Command agentruntime runs AI agents durably on NATS JetStream: a development
// server, a worker, and the command line to both.
package main

import (
	"os"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/cli"
	"github.com/agentruntime/agentruntime/runtime/executor"
)

func main() {
	executor.Main() // a script's process is this binary; it must come first
	os.Exit(cli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
