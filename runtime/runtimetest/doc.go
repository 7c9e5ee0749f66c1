// Package runtimetest is the kit with which people test their own agents, and
// with which every implementation of a port of package runtime is tested. Only
// tests import it.
//
// A Host is a world to run an agent in: a scripted Model, a Store that survives
// attempts, a Backend with a ledger of what it was asked to do, a Controller
// with children, a Factory of script executors that run a tiny language or Go
// functions, a Sink and a Redactor. Host.Run is one attempt; call it again to go
// on where the last one ended:
//
//	h := runtimetest.NewHost(definition)
//	h.Model.Respond = runtimetest.Script(
//		runtimetest.RunJS(`desk.book {"seat": 4}`),
//		runtimetest.CompleteQuoting(),
//	)
//	result, err := h.Run(t.Context())
//
// CrashEverywhere runs a scenario once undisturbed and then once for every
// operation of every port and every fault: the attempt is killed before it and
// after it, and the operation fails before it has an effect and after. Each time
// it carries the run on to its end and checks what must hold whatever happened.
// A Scenario may put the ports of a real host in place of the kit's.
//
// TestStore and TestController are the conformance suites of those two ports.
//
// Nothing here sleeps or reads a clock, and everything is deterministic.
package runtimetest
