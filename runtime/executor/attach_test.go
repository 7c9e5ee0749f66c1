//go:build linux

package executor_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/runtime/executor"

	loop "github.com/agentruntime/agentruntime/runtime"
)

// attaching runs code that may attach files and returns them.
func attaching(t *testing.T, code string, refuse error) ([]loop.Attachment, *executor.Result, error) {
	t.Helper()
	var mu sync.Mutex
	var got []loop.Attachment
	result, err := execute(t, newFactory(t, nil), executor.Script{Code: code, Limits: loop.ScriptLimits{Timeout: 20 * time.Second}, Attach: func(a loop.Attachment) error {
		mu.Lock()
		defer mu.Unlock()
		if refuse == nil {
			got = append(got, a)
		}
		return refuse
	}})
	return got, result, err
}

func TestAttachedFilesReachTheHostByteForByteEvenIfTheScriptFails(t *testing.T) {
	got, _, err := attaching(t, `
		await attach('é.txt', 'a\u0000ü');
		await attach('b', new Uint8Array([0, 255, 10]).subarray(1), 'image/png');
		await attach('c', new Uint8Array([1, 2]).buffer, undefined);
		attach('d', {base64: '/wA='});
		throw new Error('later')`, nil)
	failure(t, err, loop.ScriptException)
	want := []loop.Attachment{
		{Name: "é.txt", Data: []byte("a\x00ü")}, {Name: "b", MediaType: "image/png", Data: []byte{255, 10}},
		{Name: "c", Data: []byte{1, 2}}, {Name: "d", Data: []byte{255, 0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAFileOfTheLargestSizeIsAttachedAndNoLargerOne(t *testing.T) {
	got, result, err := attaching(t, `
		await attach('max', new Uint8Array(2 << 20));
		try { await attach('more', new Uint8Array((2 << 20) + 1)) } catch (e) { return e.message }`, nil)
	if err != nil || len(got) != 1 || len(got[0].Data) != 2<<20 || !strings.Contains(string(result.Value), "more than 2097152") {
		t.Errorf("got %d files, %v, %v", len(got), result, err)
	}
}

func TestWhatIsNoFileIsAnErrorTheScriptCanCatch(t *testing.T) {
	for _, call := range []string{`attach()`, `attach('a')`, `attach('', 'x')`, `attach(1, 'x')`, `attach('a', 5)`, `attach('a', {base64: '*'})`, `attach('a', {})`, `attach('a', 'x', 7)`, `attach('a', null)`, `attach('a', 'x', 'y', 'z')`} {
		got, result, err := attaching(t, `try { await `+call+` } catch (e) { return e instanceof TypeError }`, nil)
		if err != nil || string(result.Value) != "true" || len(got) > 0 {
			t.Errorf("%s: got %v, %v", call, result, err)
		}
	}
	_, result, err := attaching(t, `try { await attach('a', 'x') } catch (e) { return e.message }`, errors.New("enough"))
	if err != nil || !strings.Contains(string(result.Value), "enough") {
		t.Errorf("got %v, %v", result, err)
	}
}

func TestAScriptWhoseHostTakesNoFilesHasNoAttach(t *testing.T) {
	result, err := run(t, `return typeof attach`)
	if err != nil || string(result.Value) != `"undefined"` {
		t.Errorf("got %v, %v", result, err)
	}
	if err := executor.CheckBindings([]string{"attach"}); err == nil {
		t.Error("a capability may be named attach")
	}
}
