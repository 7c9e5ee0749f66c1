// Package sample is what agentruntime dev runs when it is given no agents: an
// agent that sorts a support ticket and the capability it calls, an agent that
// plans a trip and its children, and the scripts their models answer from. It
// needs no key and no other service.
package sample

import (
	"embed"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/agentruntime/agentruntime/cmd/agentruntime/internal/files"
)

const (
	// Agent sorts tickets.
	Agent = "hello-triage"

	// Subject is where the sample's capability is served.
	Subject = "sample.tickets.classify"

	// Ticket is a message to start the agent with.
	Ticket = "The checkout page has been down since 9:40. Customers see \"Error 502\" and nobody can pay.\n\nPlease look at it urgently!\n— Mia, shop team"

	// Planner plans trips: it has children, one of which asks it something,
	// and then asks the user.
	Planner = "trip-planner"

	// Trip is a message to start the planner with, and Name what answers its
	// question.
	Trip = "To Porto from Friday to Sunday, for one, from Lisbon."
	Name = "Mia Lopes"
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

const scriptSuffix = ".script.yaml"

// Scripts returns the scripts of the sample's models, by the model's name.
func Scripts() map[string][]byte {
	paths, err := fs.Glob(Files(), "agents/*"+scriptSuffix)
	if err != nil {
		panic(err) // the pattern is valid
	}
	scripts := make(map[string][]byte, len(paths))
	for _, at := range paths {
		data, err := fs.ReadFile(Files(), at)
		if err != nil {
			panic(err) // the file is part of the program, and tested
		}
		scripts[strings.TrimSuffix(path.Base(at), scriptSuffix)] = data
	}
	return scripts
}
