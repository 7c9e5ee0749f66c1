// Command agentruntime runs AI agents durably on NATS JetStream: a development
// server, a worker, and the command line to both.
package main

import (
	"os"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
