package jetstream

import (
	"fmt"
	"slices"
	"strconv"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// SettingError reports a setting of the server or of a stream that would break
// a guarantee.
type SettingError struct {
	Where   string // "server", or "stream " and its name
	Setting string // as the nats command line and the server's configuration name it
	Got     string
	Want    string
	Advice  string // what to do
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s: %s is %s, must be %s: %s", e.Where, e.Setting, e.Got, e.Want, e.Advice)
}

// setting is one setting of a stream that is compared when the stream exists.
// What is not in the list may differ: it is the operator's.
type setting struct {
	name    string
	of      func(*spec) string         // as it is, or as it must be
	applies func(want *spec) bool      // nil: to every stream
	fits    func(got, want *spec) bool // nil: equal
	advice  string                     // default: adviceEdit
}

const (
	adviceEdit     = "edit the stream, or configure this process as the stream is"
	adviceRecreate = "it cannot be changed on a stream; back the stream up and create it anew"
	adviceShards   = "the shard count is fixed when the log is created; configure this process with the stored one (layout.shards), or leave it out"
)

func isLog(want *spec) bool   { return want.Metadata[metadataShards] != "" }
func isTruth(want *spec) bool { return want.role == truth }
func keeps(want *spec) bool   { return want.keeps }

func flag(get func(*spec) bool) func(*spec) string {
	return func(s *spec) string { return strconv.FormatBool(get(s)) }
}

// limit writes a limit; the server stores -1 for none.
func limit(get func(*spec) int64) func(*spec) string {
	return func(s *spec) string { return strconv.FormatInt(max(get(s), 0), 10) }
}

var settings = []setting{
	{name: "shards", of: func(s *spec) string { return quoteEmpty(s.Metadata[metadataShards]) }, applies: isLog, advice: adviceShards},
	{name: "shard hash", of: func(s *spec) string { return quoteEmpty(s.Metadata[metadataHash]) }, applies: isLog, advice: adviceShards},
	{name: "subjects", of: func(s *spec) string { return fmt.Sprint(slices.Sorted(slices.Values(s.Subjects))) }},
	{name: "retention", of: func(s *spec) string { return s.Retention.String() }, advice: adviceRecreate},
	{name: "sealed", of: flag(func(s *spec) bool { return s.Sealed }), advice: adviceRecreate},
	{name: "no-ack", of: flag(func(s *spec) bool { return s.NoAck })},
	{name: "mirror or sources", of: flag(func(s *spec) bool { return s.Mirror != nil || len(s.Sources) > 0 }), advice: adviceRecreate},
	{name: "subject transform", of: flag(func(s *spec) bool { return s.SubjectTransform != nil })},
	{name: "counters", of: flag(func(s *spec) bool { return s.AllowMsgCounter }), advice: adviceRecreate},
	{name: "schedules", of: flag(func(s *spec) bool { return s.AllowMsgSchedules }), advice: adviceRecreate},
	{name: "message TTL", of: flag(func(s *spec) bool { return s.AllowMsgTTL }), advice: adviceRecreate},

	{name: "storage", of: func(s *spec) string { return s.Storage.String() }, applies: isTruth, advice: adviceRecreate},
	{name: "persist mode", of: func(s *spec) string { return s.PersistMode.String() }, applies: isTruth, advice: adviceRecreate},
	{name: "replicas", of: func(s *spec) string { return strconv.Itoa(s.Replicas) }, applies: isTruth,
		fits: func(got, want *spec) bool { return got.Replicas >= want.Replicas }},

	{name: "max age", of: func(s *spec) string { return s.MaxAge.String() }, applies: keeps},
	{name: "max messages", of: limit(func(s *spec) int64 { return s.MaxMsgs }), applies: keeps},
	{name: "max messages per subject", of: limit(func(s *spec) int64 { return s.MaxMsgsPerSubject }), applies: keeps},
	// A full stream that refuses what is new loses nothing.
	{name: "max bytes", of: limit(func(s *spec) int64 { return s.MaxBytes }), applies: keeps,
		fits: func(got, _ *spec) bool { return got.MaxBytes <= 0 || got.Discard == natsjs.DiscardNew }},

	{name: "discard", of: func(s *spec) string { return s.Discard.String() }, applies: isLog},
	{name: "deny delete", of: flag(func(s *spec) bool { return s.DenyDelete }), applies: isLog},
	{name: "deny purge", of: flag(func(s *spec) bool { return s.DenyPurge }), applies: isLog, advice: adviceRecreate},
	{name: "roll-up", of: flag(func(s *spec) bool { return s.AllowRollup }), applies: isLog},
	{name: "direct get", of: flag(func(s *spec) bool { return s.AllowDirect }), applies: isLog},
}

func quoteEmpty(s string) string {
	if s == "" {
		return "absent"
	}
	return s
}

// compare returns the settings in which a stored stream differs from what it
// must be.
func (want *spec) compare(stored natsjs.StreamConfig) []*SettingError {
	got := &spec{StreamConfig: stored}
	var all []*SettingError
	for _, s := range settings {
		if s.applies != nil && !s.applies(want) {
			continue
		}
		have, need := s.of(got), s.of(want)
		fits := have == need
		if s.fits != nil {
			fits = s.fits(got, want)
		}
		if fits {
			continue
		}
		advice := s.advice
		if advice == "" {
			advice = adviceEdit
		}
		all = append(all, &SettingError{"stream " + want.Name, s.name, have, need, advice})
	}
	return all
}
