//go:build !linux

package executor

import (
	"errors"
	"syscall"
)

const (
	namespacesNote = "own namespaces"
	self           = ""
)

var errPlatform = errors.New("scripts run on Linux only: elsewhere the memory of a child cannot be limited")

func attributes(bool) *syscall.SysProcAttr { return nil }

func contain(int64, uint64) (Containment, error) { return Containment{}, errPlatform }

func awaitExit(int) {}

func killGroup(int) {}
