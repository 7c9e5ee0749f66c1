package executor

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// everyThread makes one system call on every thread of this process. A program
// with cgo in it cannot.
func everyThread(number, a, b, c uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}

// lockPaths takes the file system, and TCP where the kernel can, from this
// process for ever: a set of rules that handles every right and grants none.
func lockPaths() error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return errno
	}
	rights := unix.LandlockRulesetAttr{Handled_access_fs: 1<<13 - 1} // those of the first version
	for _, added := range []struct {
		in      uintptr
		fs, net uint64
	}{
		{in: 2, fs: unix.LANDLOCK_ACCESS_FS_REFER}, {in: 3, fs: unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{in: 4, net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}, {in: 5, fs: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	} {
		if version >= added.in {
			rights.Handled_access_fs |= added.fs
			rights.Handled_access_net |= added.net
		}
	}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rights)), unsafe.Sizeof(rights), 0)
	if errno != 0 {
		return fmt.Errorf("version %d: %w", version, errno)
	}
	defer unix.Close(int(rules))
	return everyThread(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0)
}

// renouncePrivileges makes this process and what it starts unable to gain any.
// Where not every thread can be reached the calling one is, and the filter of
// system calls takes the others along.
func renouncePrivileges() error {
	if everyThread(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0) == nil {
		return nil
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
