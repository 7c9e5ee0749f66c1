//go:build !linux

package mcp

import (
	"os"
	"syscall"
)

// Where scripts do not run, no worker does, and tools are only listed.

func attributes() *syscall.SysProcAttr { return nil }

func awaitExit(int) {}

func killGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
