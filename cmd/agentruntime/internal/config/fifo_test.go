//go:build unix

package config

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// A pipe lets the test hold up the reading: it ends when the other file is there.
func TestAPolicyThatChangesWhileItIsReadIsNotInForce(t *testing.T) {
	var told []error
	f, file := opened(t, &told)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	read := make(chan int)
	go func() { read <- len(f.Policy().Namespaces) }()
	pipe, err := os.OpenFile(file, os.O_WRONLY, 0) // until it is opened for reading
	if err != nil {
		t.Fatal(err)
	}
	put(t, file, "namespaces: {b: {}, c: {}}")
	if _, err := pipe.WriteString("namespaces: {a: {}}"); err != nil {
		t.Fatal(err)
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	if n := <-read; n != 0 || len(told) != 0 {
		t.Errorf("what was there before has %d namespaces; told %v", n, told)
	}
	if n := len(f.Policy().Namespaces); n != 2 || len(told) != 1 {
		t.Errorf("what came meanwhile has %d namespaces; told %v", n, told)
	}
}
