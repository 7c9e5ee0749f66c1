// Package sample is what agentruntime dev runs when it is given no agents: an
// agent that sorts a support ticket, the script its model answers from, and the
// capability it calls. It needs no key and no other service.
package sample

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
)

const (
	// Agent is the sample's agent, and the name of its scripted model.
	Agent = "hello-triage"

	// Subject is where the sample's capability is served.
	Subject = "sample.tickets.classify"

	// Ticket is a message to start the agent with.
	Ticket = "The checkout page has been down since 9:40. Customers see \"Error 502\" and nobody can pay.\n\nPlease look at it urgently!\n— Mia, shop team"
)

//go:embed files
var embedded embed.FS

// Files returns the sample's files: the folders agents and capabilities.
func Files() fs.FS {
	tree, err := fs.Sub(embedded, "files")
	if err != nil {
		panic(err) // the name is valid
	}
	return tree
}

var set = sync.OnceValue(func() *files.Set {
	s, err := files.LoadFS(Files(), "agents", "capabilities")
	if err != nil {
		panic(err) // the files are part of the program, and tested
	}
	return s
})

// Set returns the sample's definitions. They must not be modified.
func Set() *files.Set { return set() }

// Script returns the script of the sample's model.
func Script() []byte {
	data, err := fs.ReadFile(Files(), "agents/"+Agent+".script.yaml")
	if err != nil {
		panic(err) // the file is part of the program, and tested
	}
	return data
}
