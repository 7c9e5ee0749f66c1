package projector_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/projector"
)

// decoded are the types that are read from storage.
var decoded = []reflect.Type{
	reflect.TypeFor[projector.Checkpoint](), reflect.TypeFor[projector.Session](), reflect.TypeFor[events.CheckpointDelta](),
}

// TestDecodingACheckpointRunsNothing holds that no type that a stored text names
// is ever chosen by the text, and that no code of such a type runs: there is no
// interface to fill, no function, and no decoder but those of the standard
// library.
func TestDecodingACheckpointRunsNothing(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	var look func(path string, in reflect.Type)
	look = func(path string, in reflect.Type) {
		if seen[in] {
			return
		}
		seen[in] = true
		switch in {
		case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[time.Time]():
			return
		}
		for _, decoder := range []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[encoding.BinaryUnmarshaler]()} {
			if reflect.PointerTo(in).Implements(decoder) {
				t.Errorf("%s: %s decodes itself", path, in)
			}
		}
		switch in.Kind() {
		case reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
			t.Errorf("%s: %s is no plain data", path, in)
		case reflect.Pointer, reflect.Slice, reflect.Array:
			look(path, in.Elem())
		case reflect.Map:
			look(path, in.Key())
			look(path, in.Elem())
		case reflect.Struct:
			for i := range in.NumField() {
				if f := in.Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
					look(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	for _, in := range decoded {
		look(in.Name(), in)
	}
	if len(seen) < 20 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

// FuzzDecodingACheckpoint holds that any text decodes to data, or not at all,
// and that what it has decoded to is JSON of the same meaning.
func FuzzDecodingACheckpoint(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"version":1,"contract":"x","phase":"model","calls":[{"id":"a","state":"pending"}]}`,
		`{"__proto__":{"constructor":"exec"},"lc":1,"type":"constructor","id":["os","system"],"kwargs":{"command":"id"}}`,
		`{"py/object":"os.system","$type":"System.Diagnostics.Process","@class":"java.lang.Runtime","!!python/object/apply:os.system":["id"]}`,
		`{"Reply":null,"calls":[null],"usedCallIds":["\ud800"]}`, `[]`, `null`, "\x80\x04\x95", "\xac\xed\x00\x05", `{"revision":1e400}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, in := range decoded {
			v := reflect.New(in)
			if json.Unmarshal(text, v.Interface()) != nil {
				continue
			}
			first, err := events.Marshal(v.Interface())
			if err != nil {
				continue // a text inside that is no JSON for a strict reader
			}
			again := reflect.New(in)
			if err := json.Unmarshal(first, again.Interface()); err != nil {
				t.Fatalf("%s: %v\n%s", in, err, first)
			}
			second, err := events.Marshal(again.Interface())
			if err != nil || !bytes.Equal(first, second) {
				t.Fatalf("%s: %v\n%s\n%s", in, err, first, second)
			}
		}
	})
}
