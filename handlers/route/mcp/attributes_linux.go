package mcp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes give a server a process group of its own, and have the kernel kill the
// process itself, without the rest of its group, when the worker is killed.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits until the server has ended and leaves it to be waited for, so
// that its number still belongs to it.
func awaitExit(pid int) {
	for {
		if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// killGroup kills every process of the group.
func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }
