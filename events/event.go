package events

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Event is one CloudEvent 1.0. Facts, commands and public events are all
// Events; what tells them apart is the type. The extension attributes that this
// service gives a meaning are fields; all others are kept in Extra, so that an
// event survives a round trip through a binary that does not know them.
type Event struct {
	ID              string
	Source          string
	Type            string
	Subject         string
	Time            time.Time // zero when absent
	DataContentType string
	DataSchema      string

	Namespace     string
	Session       string
	Run           string
	Revision      uint64 // of the checkpoint a fact carries; 0 when it carries none
	Epoch         uint64 // counts the claims of the session
	ClaimID       string // unique to the claim under which an owner fact was decided
	CommitID      string // unique to one decision; only fenced facts have one
	ContentHash   string // of everything but the two hashes
	ChainHash     string // of everything up to here; only fenced facts have one
	RootRun       string
	ParentRun     string
	CorrelationID string // id of the command that started the run's tree
	CausationID   string // id of the event this one follows from
	TraceParent   string
	AuthType      string
	AuthID        string
	DataRef       string // where the data is stored, when it is too large to be inline
	Encryption    string // how Data is encrypted: the scheme and the id of the key that wraps the session's
	Emits         string // which public events follow from a fact, beyond those of its type: text, calls

	Extra map[string]string // other attributes, by lower-case name

	Data []byte

	// Body is what DataRef refers to, once somebody fetched it, and the plain
	// data of an event that is encrypted, once somebody opened it. It is no
	// part of the event: the hash covers Data, which is stored.
	Body []byte
}

// attribute is one context attribute: how it is named on the wire and where it
// lives in Event. The table is the only place that knows both.
type attribute struct {
	name string
	get  func(*Event) string
	set  func(*Event, string) error
}

func text(name string, field func(*Event) *string) attribute {
	return attribute{name,
		func(e *Event) string { return *field(e) },
		func(e *Event, v string) error { *field(e) = v; return nil }}
}

func counter(name string, field func(*Event) *uint64) attribute {
	return attribute{name,
		func(e *Event) string {
			if n := *field(e); n != 0 {
				return strconv.FormatUint(n, 10)
			}
			return ""
		},
		func(e *Event, v string) (err error) { *field(e), err = strconv.ParseUint(v, 10, 64); return err }}
}

// attributes lists every attribute but specversion, sorted by name. The order
// is part of the content hash.
var attributes = []attribute{
	text("authid", func(e *Event) *string { return &e.AuthID }),
	text("authtype", func(e *Event) *string { return &e.AuthType }),
	text("causationid", func(e *Event) *string { return &e.CausationID }),
	text("chainhash", func(e *Event) *string { return &e.ChainHash }),
	text("claimid", func(e *Event) *string { return &e.ClaimID }),
	text("commitid", func(e *Event) *string { return &e.CommitID }),
	text("contenthash", func(e *Event) *string { return &e.ContentHash }),
	text("correlationid", func(e *Event) *string { return &e.CorrelationID }),
	text("datacontenttype", func(e *Event) *string { return &e.DataContentType }),
	text("dataref", func(e *Event) *string { return &e.DataRef }),
	text("dataschema", func(e *Event) *string { return &e.DataSchema }),
	text("emits", func(e *Event) *string { return &e.Emits }),
	text("encryption", func(e *Event) *string { return &e.Encryption }),
	counter("epoch", func(e *Event) *uint64 { return &e.Epoch }),
	text("id", func(e *Event) *string { return &e.ID }),
	text("namespace", func(e *Event) *string { return &e.Namespace }),
	text("parentrun", func(e *Event) *string { return &e.ParentRun }),
	counter("revision", func(e *Event) *uint64 { return &e.Revision }),
	text("rootrun", func(e *Event) *string { return &e.RootRun }),
	text("run", func(e *Event) *string { return &e.Run }),
	text("session", func(e *Event) *string { return &e.Session }),
	text("source", func(e *Event) *string { return &e.Source }),
	text("subject", func(e *Event) *string { return &e.Subject }),
	{"time",
		func(e *Event) string {
			if e.Time.IsZero() {
				return ""
			}
			return e.Time.UTC().Format(time.RFC3339Nano)
		},
		func(e *Event, v string) (err error) { e.Time, err = time.Parse(time.RFC3339Nano, v); return err }},
	text("traceparent", func(e *Event) *string { return &e.TraceParent }),
	text("type", func(e *Event) *string { return &e.Type }),
}

// findAttribute returns the table's entry for a lower-case name.
func findAttribute(name string) (attribute, bool) {
	i, ok := slices.BinarySearchFunc(attributes, name, func(a attribute, n string) int { return strings.Compare(a.name, n) })
	if !ok {
		return attribute{}, false
	}
	return attributes[i], true
}

// Attributes calls yield for every attribute that has a value, sorted by name,
// those of Extra included and specversion left out. The values are decoded.
func (e *Event) Attributes(yield func(name, value string) bool) {
	extra := make([]string, 0, len(e.Extra))
	for name := range e.Extra {
		extra = append(extra, name)
	}
	slices.Sort(extra)
	for _, a := range attributes {
		for len(extra) > 0 && extra[0] < a.name {
			if !yield(extra[0], e.Extra[extra[0]]) {
				return
			}
			extra = extra[1:]
		}
		if v := a.get(e); v != "" && !yield(a.name, v) {
			return
		}
	}
	for _, name := range extra {
		if !yield(name, e.Extra[name]) {
			return
		}
	}
}

// Set gives the attribute of that lower-case name a value; a name this service
// gives no meaning goes to Extra.
func (e *Event) Set(name, value string) error {
	if a, ok := findAttribute(name); ok {
		return a.set(e, value)
	}
	if e.Extra == nil {
		e.Extra = make(map[string]string)
	}
	e.Extra[name] = value
	return nil
}

var hashBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

// Content returns the hash of the event's canonical bytes: every attribute but
// the two hashes, sorted by name, each name and value preceded by its length,
// and then the stored data. It is SHA-256, base64 without padding.
func (e *Event) Content() string {
	buf := hashBuffers.Get().(*[]byte)
	b := (*buf)[:0]
	put := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for name, value := range e.Attributes {
		if name != "contenthash" && name != "chainhash" {
			put(name)
			put(value)
		}
	}
	b = append(b, 0)
	b = append(b, e.Data...)
	sum := sha256.Sum256(b)
	*buf = b
	hashBuffers.Put(buf)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// link returns the chain value after one more event.
func link(chain, content string) string {
	b := make([]byte, 0, 128)
	b = append(b, chain...)
	b = append(b, '\n')
	b = append(b, content...)
	sum := sha256.Sum256(b)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
