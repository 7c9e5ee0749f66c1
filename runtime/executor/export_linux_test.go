package executor

import (
	"os"
	"os/exec"
	"sync/atomic"
)

// RefuseIsolation makes the host answer every child that shall have namespaces
// of its own with the error. It returns how often one was asked for.
func (f *Factory) RefuseIsolation(refusal error) func() int {
	var asked atomic.Int32
	f.begin = func(c *exec.Cmd) error {
		if c.SysProcAttr.Cloneflags == 0 {
			return c.Start()
		}
		asked.Add(1)
		return os.NewSyscallError("fork/exec", refusal)
	}
	return func() int { return int(asked.Load()) }
}

// Lock takes the file system from this process, as a child does. The errors are
// those of giving up privileges and of the paths.
func Lock() (privileges, paths error) { return renouncePrivileges(), lockPaths() }
