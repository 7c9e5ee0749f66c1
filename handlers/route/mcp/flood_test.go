package mcp

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

func TestWhatAServerSaysUnaskedIsBoundedInEachWay(t *testing.T) {
	now := time.Unix(0, 0)
	request := func(id any) *jsonrpc.Request {
		made, err := jsonrpc.MakeID(id)
		if err != nil {
			t.Fatal(err)
		}
		return &jsonrpc.Request{Method: "ping", ID: made}
	}
	note := func(size int) *jsonrpc.Request {
		return &jsonrpc.Request{Method: "notifications/message", Params: json.RawMessage(strings.Repeat(" ", size))}
	}
	var open flood
	for n := range maxOpen {
		if err := open.heard(request(float64(n)), now); err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
	}
	if err := open.heard(request("one more"), now); err == nil {
		t.Error("requests without an answer are not bounded")
	}
	for n := range maxOpen {
		open.answered(request(float64(n)).ID)
	}
	if err := open.heard(request("and on"), now); err != nil {
		t.Errorf("requests that were answered count: %v", err)
	}
	var named flood
	if named.heard(request(strings.Repeat("x", maxID)), now) != nil || named.heard(request(strings.Repeat("x", maxID+1)), now) == nil {
		t.Error("the length of an id is not bounded as it is said")
	}
	var size flood
	for range 4 {
		if err := size.heard(note(maxUnaskedIn/4), now); err != nil {
			t.Fatal(err)
		}
	}
	if size.heard(note(1), now) == nil {
		t.Error("the size of notifications is not bounded")
	}
	if err := size.heard(note(1), now.Add(floodWindow)); err != nil {
		t.Errorf("after the window: %v", err)
	}
	if size.took(maxUnaskedIn, now.Add(floodWindow)) == nil {
		t.Error("the size of other events is not bounded")
	}
	var count flood
	for range maxUnasked {
		if err := count.heard(note(0), now); err != nil {
			t.Fatal(err)
		}
	}
	if count.heard(note(0), now) == nil {
		t.Error("the number of notifications is not bounded")
	}
}
