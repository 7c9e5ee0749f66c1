package jetstream_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/jetstream"
	"github.com/agentruntime/agentruntime/jetstream/jetstreamtest"
)

func TestAnObjectWhoseBytesAreOthersIsDamagedAndNotGone(t *testing.T) {
	conn := jetstreamtest.Open(t, jetstreamtest.Server(t), jetstream.Layout{})
	name := strings.Repeat("ab", 32)
	js := raw(t, conn)
	chunk := nats.NewMsg("$O.AGENT_OBJECTS.C." + name)
	chunk.Header.Set("Agent-Chunk", "0")
	chunk.Data = []byte("other")
	if _, err := js.PublishMsg(t.Context(), chunk); err != nil {
		t.Fatal(err)
	}
	entry := "$O.AGENT_OBJECTS.M." + base64.URLEncoding.EncodeToString([]byte(name))
	if _, err := js.Publish(t.Context(), entry, []byte(`{"name":"`+name+`","nuid":"`+name+`","size":5,"chunks":1}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&jetstream.Objects{Conn: conn}).Get(t.Context(), name); !errors.Is(err, events.ErrDamaged) || errors.Is(err, events.ErrNotFound) {
		t.Errorf("Get = %v", err)
	}
}
