package executor

import "slices"

const (
	RaceBuild  = raceBuild
	DefaultLog = 64 << 10
	LogNote    = logNote

	NamespacesNote = namespacesNote
)

// Pid is the process number of the child.
func (p *Process) Pid() int { return p.command.Process.Pid }

// KillIdle kills the children that run no script, from outside so to say, and
// waits until that was noticed. It returns their process numbers.
func (f *Factory) KillIdle() []int {
	f.mu.Lock()
	live := make([]*Process, 0, len(f.live))
	for p := range f.live {
		live = append(live, p)
	}
	f.mu.Unlock()
	pids := make([]int, 0, len(live))
	for _, p := range live {
		p.kill()
		<-p.exited
		pids = append(pids, p.Pid())
	}
	slices.Sort(pids)
	return pids
}

// ProbeName is the name under which the tests' program contains itself and
// tries what it must not be able to do.
const ProbeName = "agentruntime-probe"

// Contain limits this process as a child limits itself.
var Contain = contain
