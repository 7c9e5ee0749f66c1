package jetstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
)

// Dead keeps what could not be carried out, with the reason, for people and for
// another attempt.
type Dead struct {
	Conn *Conn
}

// Letter is one message that was set aside.
type Letter struct {
	Namespace string
	Reason    string // one token: letters, digits, _ and -
	Detail    string // for people; cut at 1 KiB
	Subject   string // on which the message came
	Header    map[string][]string
	Data      []byte

	Sequence uint64    // set by List
	Time     time.Time // set by List
}

// Headers of a letter, beside those of the message itself.
const (
	headerDetail  = "Agent-Dead-Detail"
	headerSubject = "Agent-Dead-Subject"
)

const (
	maxDetail      = 1 << 10
	maxLetterBytes = 48 << 10 // of headers; the server takes 64 KiB
)

// Put stores a letter. The same one again within the server's window is stored
// once. Of the message's headers only those that a CloudEvent has are kept, and
// none when they are too large: no sender's header may speak to the server.
func (d *Dead) Put(ctx context.Context, letter Letter) error {
	at, err := letterPlace(letter.Namespace, letter.Reason)
	if err != nil {
		return err
	}
	header := kept(letter.Header)
	header[headerDetail] = []string{quote(letter.Detail)}
	header[headerSubject] = []string{quote(letter.Subject)}
	header[headerMessageID] = []string{events.Derive(40, append([]string{letter.Namespace, letter.Reason, letter.Subject, string(letter.Data)}, header["ce-id"]...)...)}
	if _, err := d.Conn.publish(ctx, at, d.Conn.timeout, header, letter.Data); err != nil {
		return fmt.Errorf("set a message aside as %s: %w", letter.Reason, err)
	}
	return nil
}

// kept returns the headers of a CloudEvent.
func kept(header map[string][]string) nats.Header {
	result, size := nats.Header{}, 0
	for name, values := range header {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "ce-") && lower != "content-type" && lower != "traceparent" {
			continue
		}
		for _, v := range values {
			size += len(name) + len(v)
		}
		result[name] = values
	}
	if size > maxLetterBytes {
		return nats.Header{}
	}
	return result
}

// List returns up to limit letters of a namespace, or of all when it is empty,
// above a sequence.
func (d *Dead) List(ctx context.Context, namespace string, after uint64, limit int) ([]Letter, error) {
	filter := "agent.dead.*.*"
	if namespace != "" {
		if err := events.CheckNamespace(namespace); err != nil {
			return nil, err
		}
		filter = "agent.dead." + namespace + ".*"
	}
	if limit <= 0 || limit > events.MaxRead {
		limit = events.MaxRead
	}
	var letters []Letter
	err := d.Conn.readBatch(ctx, streamDead, batchRequest{after + 1, filter, limit}, d.Conn.timeout, func(sequence uint64, m *nats.Msg) error {
		letters = append(letters, letterOf(sequence, m))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

func letterOf(sequence uint64, m *nats.Msg) Letter {
	letter := Letter{Header: kept(m.Header), Data: m.Data, Sequence: sequence}
	if tokens := strings.Split(lastText(m, "Nats-Subject"), "."); len(tokens) == 4 {
		letter.Namespace, letter.Reason = tokens[2], tokens[3]
	}
	letter.Detail, letter.Subject = unquote(m.Header.Get(headerDetail)), unquote(m.Header.Get(headerSubject))
	if at, err := time.Parse(time.RFC3339Nano, lastText(m, "Nats-Time-Stamp")); err == nil {
		letter.Time = at
	}
	return letter
}

// quote makes a text fit for a header: one line of ASCII, bounded.
func quote(s string) string {
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return strconv.QuoteToASCII(s)
}

// unquote returns a text of Put as it was; one that is not quoted stays.
func unquote(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

func letterPlace(namespace, reason string) (place, error) {
	if err := events.CheckNamespace(namespace); err != nil {
		return place{}, err
	}
	if events.CheckSession(reason) != nil {
		return place{}, &events.ErrName{What: "reason", Value: reason}
	}
	return place{streamDead, "agent.dead." + namespace + "." + reason}, nil
}
