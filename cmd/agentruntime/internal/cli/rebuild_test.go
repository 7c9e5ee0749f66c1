package cli

import (
	"slices"
	"testing"

	"github.com/agentruntime/agentruntime/handlers"
)

func TestARebuildReadsTheWholeLogAndTheListIsTheSame(t *testing.T) {
	d := family(t)
	run, _, _ := d.open(t, "rebuild")
	list := func() (runs []string) {
		for _, r := range read[[]handlers.Row](t, d.call(t, "run", "list", "--root", run, "-o", "json").ok(t)) {
			runs = append(runs, r.Run+" "+string(r.State)+" "+r.Wake)
		}
		return runs
	}
	before := list()
	demand(t, d.call(t, "rebuild").exits(t, exitOK).out, "the list of runs is complete: ", " facts read in ")
	if after := list(); len(after) != 3 || !slices.Equal(after, before) {
		t.Errorf("the list was\n%s\nand is\n%s", before, after)
	}
}

func TestARebuildWithoutAWorkerSaysSo(t *testing.T) {
	demand(t, call(t, "rebuild", "-s", natsServer(t).ClientURL()).exits(t, exitUnreachable).err, "no worker keeps it")
}
