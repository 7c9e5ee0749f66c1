package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"time"
)

// childName is the name under which the program is executed as a child.
const childName = "agentruntime-script"

// In a child the program ends here: before its main, and before most of its
// other packages are set up, which for a program of this size is the greater
// part of what starting it costs. It runs beside the initialization, whose
// goroutine is bound to a thread and would make every step a change of thread.
func init() {
	if len(os.Args) != 3 || os.Args[0] != childName {
		return
	}
	go func() {
		if err := child(os.Args[1], os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}()
	select {}
}

// childArguments are the command line of a child.
func childArguments(memory int64, cpu time.Duration) []string {
	seconds := (cpu + time.Second - 1) / time.Second
	return []string{childName, strconv.FormatInt(memory, 10), strconv.FormatInt(int64(seconds), 10)}
}

// child runs one script.
func child(memoryText, secondsText string) error {
	memory, err := strconv.ParseInt(memoryText, 10, 64)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseUint(secondsText, 10, 32)
	if err != nil {
		return err
	}
	time.Local = time.UTC // else the first Date opens the host's zone file
	contained, err := contain(memory, seconds)
	if err != nil {
		return fmt.Errorf("limit the child: %w", err)
	}
	debug.SetMaxStack(int(memory / 4))
	debug.SetMemoryLimit(memory / 8 * 7)

	w := &wire{in: os.Stdin, out: os.Stdout, max: maxWorkerFrame}
	r := newRealm(w)
	report, err := json.Marshal(contained)
	if err != nil {
		return err
	}
	if err := w.send(&frame{Type: frameReady, Data: report}); err != nil {
		return err
	}
	f, err := w.receive()
	if err != nil {
		return nil // the worker did not need this child
	}
	var o order
	if err := json.Unmarshal(f.Data, &o); err != nil {
		return err
	}
	return w.send(serve(r, o))
}

// serve runs the script and returns the frame that ends the run, when no call
// is open. A panic of the engine is the script's failure.
func serve(r *realm, o order) (last *frame) {
	defer func() {
		if x := recover(); x != nil {
			last = r.collapse(x)
		}
	}()
	r.limit(o.Limits)
	if err := r.bind(o.Names); err != nil {
		panic(err)
	}
	if o.Attach {
		if err := define(r.vm.GlobalObject(), attachName, r.attach()); err != nil {
			panic(err)
		}
	}
	return r.run(o.Code)
}
