package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What this package needs of a server.
const (
	MinServerVersion = "2.15.3" // earlier ones have authorization holes
	MinAPILevel      = 2        // message schedules and persist modes
)

// Verdict is what a look at one setting gave.
type Verdict string

// The verdicts.
const (
	Right        Verdict = "right"
	Wrong        Verdict = "wrong"
	Unverifiable Verdict = "unverifiable" // a client of this account cannot see it
)

// Finding is one setting that was looked at.
type Finding struct {
	SettingError // its texts; an error only when the verdict is Wrong
	Verdict      Verdict
}

// Check looks at every setting on which a guarantee rests: those of the server
// and those of every stream. The error joins a *SettingError for each wrong
// finding, and a request that failed; an unverifiable one is no error, since no
// ordinary client can see whether an external server syncs each message.
func (c *Conn) Check(ctx context.Context) ([]Finding, error) {
	findings := []Finding{c.checkVersion()}
	level, err := c.checkLevel(ctx)
	if err != nil {
		return findings, err
	}
	findings = append(findings, level, c.checkSync())
	if err := c.adopt(ctx); err != nil {
		return findings, err
	}
	streams, err := c.checkStreams(ctx)
	if err != nil {
		return findings, err
	}
	findings = append(findings, streams...)
	var wrong []error
	for i := range findings {
		if findings[i].Verdict == Wrong {
			wrong = append(wrong, &findings[i].SettingError)
		}
	}
	return findings, errors.Join(wrong...)
}

func finding(ok bool, e SettingError) Finding {
	if ok {
		return Finding{e, Right}
	}
	return Finding{e, Wrong}
}

func (c *Conn) checkVersion() Finding {
	got := c.nc.ConnectedServerVersion()
	return finding(!olderThan(got, MinServerVersion), SettingError{"server", "version", got, MinServerVersion + " or later", "upgrade every NATS server of the system"})
}

func (c *Conn) checkLevel(ctx context.Context) (Finding, error) {
	ctx, cancel := c.within(ctx)
	defer cancel()
	info, err := c.js.AccountInfo(ctx)
	if err != nil {
		return Finding{}, fmt.Errorf("ask for the JetStream API level: %w; is JetStream enabled for this account?", translate(err))
	}
	return finding(info.API.Level >= MinAPILevel, SettingError{"server", "JetStream API level", strconv.Itoa(info.API.Level),
		strconv.Itoa(MinAPILevel) + " or higher", "upgrade every NATS server of the system"}), nil
}

// checkSync: the setting is reported on the system account only, which has no
// JetStream of its own.
func (c *Conn) checkSync() Finding {
	e := SettingError{"server", "sync_interval", "not visible to this account", "always",
		"see that jetstream { sync_interval: always } stands in every server's configuration; without it an acknowledged fact can be lost with the machine"}
	if c.embedded == nil {
		return Finding{e, Unverifiable}
	}
	e.Got = "not always"
	if c.embedded.syncAlways() {
		e.Got = "always"
	}
	return finding(e.Got == e.Want, e)
}

func (c *Conn) checkStreams(ctx context.Context) ([]Finding, error) {
	var all []Finding
	for _, want := range c.layout.streams() {
		info, err := c.stored(ctx, want.Name)
		if err != nil {
			return nil, err
		}
		if info == nil {
			all = append(all, Finding{SettingError{"stream " + want.Name, "existence", "missing", "present", "start with the provisioning role once"}, Wrong})
			continue
		}
		wrong := want.compare(info.Config)
		for _, e := range wrong {
			all = append(all, Finding{*e, Wrong})
		}
		if len(wrong) == 0 {
			all = append(all, Finding{SettingError{Where: "stream " + want.Name, Setting: "configuration", Got: "as it must be", Want: "as it must be"}, Right})
		}
	}
	return all, nil
}

// olderThan compares dotted versions by number; a suffix such as -RC.1 counts
// as its release.
func olderThan(version, least string) bool {
	got, want := versionNumbers(version), versionNumbers(least)
	for i := range got {
		if got[i] != want[i] {
			return got[i] < want[i]
		}
	}
	return false
}

func versionNumbers(version string) (n [3]int) {
	release, _, _ := strings.Cut(version, "-")
	for i, part := range strings.SplitN(release, ".", 3) {
		n[i], _ = strconv.Atoi(part)
	}
	return n
}
