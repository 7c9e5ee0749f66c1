package events

import "strings"

// keptMark stands in a key before the name of a use. No session's id has it.
const keptMark = "="

// KeptKey returns the key of what a namespace keeps for a use of its own, beside
// its sessions. It is no session's: Check refuses it, so that no command and no
// fact can have it.
func KeptKey(namespace, use string) Key {
	return Key{Namespace: namespace, Session: keptMark + use}
}

// CheckKept is Check that takes a KeptKey too.
func (k Key) CheckKept() error {
	k.Session = strings.TrimPrefix(k.Session, keptMark)
	return k.Check()
}
