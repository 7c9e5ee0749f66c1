package executor

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	seccompNote  = "system calls but those of computing refused"
	landlockNote = "no path of the file system reached, no port opened"
)

// allowed are the system calls that a running Go program makes: memory, threads,
// time, and reading and writing what is open. None of them opens anything,
// reaches another process or starts one. What is not listed fails with EPERM,
// which the Go runtime takes as it takes an old kernel, so that a release that
// tries something new goes on.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_MEMBARRIER, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY,
	unix.SYS_GETTID, unix.SYS_GETPID, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_RESTART_SYSCALL,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL,
}

var errArchitecture = errors.New("there is no list of system calls for " + runtime.GOARCH)

// The places in what the kernel shows a filter.
const (
	atNumber       = 0
	atArchitecture = 4
	atArgument     = 16 // the lower half of the first argument
)

// filter is the program that judges each system call of this process.
func filter() []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		bits   = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	p := []unix.SockFilter{
		{Code: load, K: atArchitecture},
		{Code: equal, K: architecture, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: atNumber},
		// A C library falls back to clone, whose flags can be seen here.
		{Code: equal, K: unix.SYS_CLONE3, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		// A thread may be started, a process may not.
		{Code: equal, K: unix.SYS_CLONE, Jf: 4},
		{Code: load, K: atArgument},
		{Code: bits, K: unix.CLONE_THREAD, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: refuse},
		// Signals go to the process itself.
		{Code: equal, K: unix.SYS_TGKILL, Jf: 4},
		{Code: load, K: atArgument},
		{Code: equal, K: uint32(os.Getpid()), Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: refuse},
	}
	for _, number := range slices.Concat(allowed, allowedHere) {
		p = append(p, unix.SockFilter{Code: equal, K: number, Jf: 1}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(p, unix.SockFilter{Code: answer, K: refuse})
}

// filterCalls puts the filter before every thread of this process. The calling
// thread must have given up new privileges.
func filterCalls() error {
	if architecture == 0 {
		return errArchitecture
	}
	program := filter()
	described := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	failed, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&described)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	if failed != 0 {
		return errors.New("a thread could not be filtered")
	}
	return nil
}
