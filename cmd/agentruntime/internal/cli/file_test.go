package cli

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/jetstream"
)

var referred = regexp.MustCompile(`"ref":\s*"file-(\w+)",\s*"media_type":\s*"([^"]+)",\s*"name":\s*"([^"]+)",\s*"size":\s*(\d+)`)

func TestFilesOfATaskAreStoredAndReferredTo(t *testing.T) {
	d := develop(t, t.TempDir())
	dir := t.TempDir()
	large := strings.Repeat("0123456789abcdef", filePiece/16) + "and more"
	note, table := write(t, "a note", dir, "note.txt"), write(t, large, dir, "table.csv")
	admitted := d.start(t, "echo", "-m", "Look.", "--file", note, "--file", table)
	d.call(t, "run", "watch", admitted.Run).ok(t)
	conn, err := jetstream.Connect(jetstream.Config{Servers: d.url})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got []string
	for _, m := range referred.FindAllStringSubmatch(d.call(t, "run", "events", admitted.Run, "-o", "json").ok(t), -1) {
		data, err := (&jetstream.Objects{Conn: conn}).Get(t.Context(), m[1])
		if data = bytes.TrimPrefix(data, []byte("agentruntime file of default\n")); err != nil || fmt.Sprint(len(data)) != m[4] {
			t.Fatalf("%s: %d bytes, %v", m[0], len(data), err)
		}
		if m[3] == "table.csv" && !bytes.Equal(data, []byte(large)) {
			t.Error("the pieces are not the file")
		}
		got = append(got, m[3]+" "+m[2])
	}
	if len(got) < 2 || got[0] != "note.txt text/plain" || got[1] != "table.csv text/csv" {
		t.Errorf("the run refers to %v", got)
	}
	d.call(t, "run", "start", "echo", "-m", "Look.", "--file", dir+"/none").fails(t, 2, "none")
	d.call(t, "run", "start", "echo", "-m", "Look.", "--file", write(t, "", dir, "empty")).fails(t, 2, "is empty")
}
