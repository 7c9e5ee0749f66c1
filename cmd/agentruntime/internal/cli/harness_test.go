package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/agentruntime/agentruntime/handlers"
)

// patience bounds every wait. A test that reaches it fails.
const patience = 30 * time.Second

// terminal is what a command line writes to. It can be waited on.
type terminal struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed at the next write
}

// Write implements io.Writer.
func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.written != nil {
		close(w.written)
		w.written = nil
	}
	return w.text.Write(p)
}

func (w *terminal) look() (text string, more <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.written == nil {
		w.written = make(chan struct{})
	}
	return w.text.String(), w.written
}

// String returns what was written so far.
func (w *terminal) String() string {
	text, _ := w.look()
	return text
}

// await waits until the pattern matches, and returns the match and its groups.
func (w *terminal) await(t testing.TB, pattern string) []string {
	t.Helper()
	re, late := regexp.MustCompile(pattern), time.After(patience)
	for {
		text, more := w.look()
		if m := re.FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("waited %s for %q in:\n%s", patience, pattern, text)
		}
	}
}

// variables are the environment of a command line: nothing else is in it.
type variables map[string]string

func (v variables) get(name string) string { return v[name] }

// process is a command line under way.
type process struct {
	out, err   terminal
	stop, kill context.CancelFunc // the first signal, and the second
	code       chan int
}

// begin runs a command line beside the test. It is killed with the test.
func begin(t testing.TB, env variables, in io.Reader, args ...string) *process {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	kill, end := context.WithCancel(context.Background())
	p := &process{stop: stop, kill: func() { end(); stop() }, code: make(chan int, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.code <- run(ctx, kill, args, env.get, in, &p.out, &p.err)
	}()
	t.Cleanup(func() { p.kill(); <-ended })
	return p
}

// exit waits for the end and returns the exit code.
func (p *process) exit(t testing.TB) int {
	t.Helper()
	select {
	case code := <-p.code:
		return code
	case <-time.After(patience):
		t.Fatalf("waited %s for the end; printed:\n%s%s", patience, &p.out, &p.err)
		return -1
	}
}

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

// call runs a command line to its end.
func call(t testing.TB, args ...string) result {
	t.Helper()
	return callIn(t, variables{}, "", args...)
}

func callIn(t testing.TB, env variables, in string, args ...string) result {
	t.Helper()
	p := begin(t, env, strings.NewReader(in), args...)
	return result{p.exit(t), p.out.String(), p.err.String()}
}

// ok demands success and silence on standard error, and returns the output.
func (r result) ok(t testing.TB) string {
	t.Helper()
	if r.code != exitOK || spoken(r.err) != "" {
		t.Fatalf("exit %d, standard error: %s", r.code, r.err)
	}
	return r.out
}

// spoken is what stands on standard error, without what a script's process of a
// binary that measures coverage adds.
func spoken(text string) string {
	if testing.CoverMode() == "" {
		return text
	}
	return regexp.MustCompile(`(?m)^.*GOCOVERDIR.*\n`).ReplaceAllString(text, "")
}

// fails demands an exit code, nothing on standard output and one line on
// standard error that says each of the words.
func (r result) fails(t testing.TB, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d; standard error: %s", r.code, code, r.err)
	}
	if r.out != "" {
		t.Errorf("standard output has %q", r.out)
	}
	if !strings.HasPrefix(r.err, "agentruntime: ") || strings.Count(r.err, "\n") != 1 || !strings.HasSuffix(r.err, "\n") {
		t.Errorf("standard error is not one line of agentruntime: %q", r.err)
	}
	for _, word := range words {
		if !strings.Contains(r.err, word) {
			t.Errorf("standard error %q does not say %q", r.err, word)
		}
	}
}

// exits demands an exit code, whatever was printed.
func (r result) exits(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit %d, want %d: %s%s", r.code, code, r.out, r.err)
	}
	return r
}

// failsAfter demands an exit code after output. The last word is standard
// error's, the others are the output's.
func (r result) failsAfter(t *testing.T, code int, words ...string) {
	t.Helper()
	r.exits(t, code)
	demand(t, r.out, words[:len(words)-1]...)
	demand(t, r.err, words[len(words)-1])
}

// read decodes the one JSON document of an output, and refuses fields that the
// value does not have and anything after it.
func read[T any](t testing.TB, out string) T {
	t.Helper()
	list := readAll[T](t, out)
	if len(list) != 1 {
		t.Fatalf("%d JSON documents in:\n%s", len(list), out)
	}
	return list[0]
}

// readAll decodes every JSON document of an output, which holds nothing else.
func readAll[T any](t testing.TB, out string) []T {
	t.Helper()
	var list []T
	d := json.NewDecoder(strings.NewReader(out))
	d.DisallowUnknownFields()
	for {
		var v T
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			t.Fatalf("not JSON of type %T: %v in:\n%s", v, err, out)
		}
		list = append(list, v)
	}
}

// development is an agentruntime dev under way, with the agents of testdata.
type development struct {
	*process
	url string
}

// develop starts dev and returns when it serves.
func develop(t testing.TB, data string, args ...string) *development {
	t.Helper()
	if !slices.Contains(args, "--agents") {
		args = append(args, "--agents", "testdata/agents", "--capabilities", "testdata/capabilities")
	}
	d := &development{process: begin(t, variables{}, nil, append([]string{"dev", "--data", data, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, args...)...)}
	d.url = d.out.await(t, `NATS +(nats://\S+)`)[1]
	d.out.await(t, `Stop with Ctrl-C`)
	return d
}

// call runs a verb against it.
func (d *development) call(t testing.TB, args ...string) result {
	t.Helper()
	return call(t, append(args, "-s", d.url)...)
}

// connect connects as another program.
func (d *development) connect(t testing.TB) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// answering is a NATS server behind which a worker seems to be: it answers each
// verb as told, an *handlers.APIError as an error.
func answering(t *testing.T, answer func(verb string, request []byte) any) (url string) {
	t.Helper()
	url = natsServer(t).ClientURL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("agent.api.default.>", func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		switch answer := answer(strings.TrimPrefix(m.Subject, "agent.api.default."), m.Data).(type) {
		case *handlers.APIError:
			reply.Header.Set(micro.ErrorCodeHeader, answer.Code)
			reply.Header.Set(micro.ErrorHeader, answer.Message)
		default:
			reply.Data, _ = json.Marshal(answer) // what is no JSON fails the test
		}
		_ = nc.PublishMsg(reply) // a lost answer fails the test
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return url
}

// write makes a file and its folder.
func write(t testing.TB, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
