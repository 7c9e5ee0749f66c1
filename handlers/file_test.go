package handlers_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/handlerstest"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

const picture = "\x89PNG\r\n\x1a\nof a desk"

// withFiles returns a start that is changed.
func withFiles(e events.Event, change func(*events.StartRun)) events.Event {
	data, err := events.PayloadOf[events.StartRun](&e)
	if err == nil {
		change(&data)
		e.Data, err = events.Marshal(data)
	}
	if err != nil {
		panic(err)
	}
	return e
}

func given(name, data string) events.GivenFile {
	return events.GivenFile{Name: name, Data: []byte(data)}
}

// completeShowing completes with what the model was sent of files.
func completeShowing() runtimetest.Step {
	return func(step int, r *runtime.Request) (*runtime.Response, error) {
		var shown []string
		for _, data := range r.Files {
			shown = append(shown, string(bytes.ToValidUTF8(data, []byte("?"))))
		}
		slices.Sort(shown)
		data, err := events.Marshal(shown)
		if err != nil {
			return nil, err
		}
		return runtimetest.Complete(string(data))(step, r)
	}
}

var filesScenario = handlerstest.Scenario{
	Name: "files of the task, of a script and of an answer", Versions: []handlers.Version{agent("desk.draw")},
	Prepare: func(w *handlerstest.World) {
		w.Model.Respond = runtimetest.Script(runtimetest.RunJS("attach note.txt by a script\ndesk.draw {}\nreturn"), completeShowing())
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) {
			return events.Marshal(map[string]any{"drawn": 1, "$attachments": []handlers.AnsweredFile{{Name: "desk.png", Data: []byte(picture)}}})
		}
	},
	Commands: func(string) []events.Event {
		return []events.Event{withFiles(handlerstest.Start("1", "tester", "Draw the desk."), func(d *events.StartRun) {
			d.Files = []events.GivenFile{given("plan.txt", "four legs")}
		})}
	},
}

func TestAKillOrALostAppendAnywhereLosesNoFile(t *testing.T) {
	p := handlerstest.CrashEverywhere(t, filesScenario, false, inMemory)
	if p.Unknown == 0 {
		t.Error("no crash fell between a predispatch and its result")
	}
}

func TestFilesAreStoredBeforeTheFactThatRefersToThem(t *testing.T) {
	w := inMemory()
	filesScenario.Prepare(w)
	worker := w.Start(t.Context(), nil)
	v := agent("desk.draw")
	if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
		t.Fatal(err)
	}
	for _, e := range filesScenario.Commands("") {
		w.Send(e)
	}
	worker.Settle()
	run := only(t, w)
	reply := run.Checkpoint.Reply
	if run.State != projector.StateCompleted || reply == nil {
		t.Fatalf("the run is %s: %s", run.State, run.Reason)
	}
	for _, want := range []string{"four legs", "by a script", "?PNG"} {
		if !strings.Contains(string(reply.Output), want) {
			t.Errorf("the model was not shown %q: %s", want, reply.Output)
		}
	}
	refs := 0
	s, facts, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range facts {
		if bytes.Contains(f.Data, []byte(`"name":"complete"`)) {
			break // from here on it is quoted what the model was shown
		}
		if data := f.Data; len(data) == 0 || bytes.Contains(data, []byte("four legs")) || bytes.Contains(data, []byte("Zm91ciBsZWdz")) || bytes.Contains(data, []byte("UE5H")) {
			t.Errorf("%s holds the bytes of a file: %s", f.Type, data)
		}
	}
	for _, m := range s.Window {
		for _, p := range m.Parts {
			parts := []events.Part{p}
			if p.Result != nil {
				parts = p.Result.Parts
				if strings.Contains(fmt.Sprint(parts[0].Text), "$attachments") {
					t.Errorf("the script was given the files: %s", parts[0].Text)
				}
			}
			for _, p := range parts {
				if p.File != nil {
					refs++
					if n := len(bytes.TrimPrefix(w.Object(p.File.Ref), []byte("agentruntime file of "+w.Namespace+"\n"))); int64(n) != p.File.Size || n == 0 {
						t.Errorf("%s: %d bytes are stored under %+v", p.File.Name, n, p.File)
					}
				}
			}
		}
	}
	if refs != 3 {
		t.Errorf("the window refers to %d files, want 3", refs)
	}
}

func TestARunFailsWithAReasonWhenItsFileIsDamagedAndGoesOnWhenItIsGone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil []byte
		state projector.State
		says  string
	}{
		{"gone", nil, projector.StateCompleted, ""},
		{"damaged", []byte("other bytes"), projector.StateFailed, "plan.txt"},
	} {
		w := inMemory()
		w.Model.Respond = runtimetest.Script(completeShowing())
		worker := w.Start(t.Context(), nil)
		v := agent()
		if _, err := worker.Dispatcher.Apply(t.Context(), w.Namespace, &v); err != nil {
			t.Fatal(err)
		}
		w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
			said := r.Messages[0].Parts[1].Text
			if tt.spoil != nil || !strings.Contains(said, "it is gone") {
				t.Errorf("%s: the model was asked with %q", tt.name, said)
			}
			return runtimetest.Complete(`"done"`)(step, r)
		}
		api := &handlers.API{Host: worker.Dispatcher.Host}
		answer, err := api.Handle(t.Context(), w.Namespace, handlers.VerbFilePut, nil, []byte(`{"data":"Zm91ciBsZWdz"}`))
		if err != nil {
			t.Fatal(err)
		}
		ref := answer.(handlers.PutFileAnswer).Ref
		w.Send(withFiles(handlerstest.Start("1", "tester", "Look."), func(d *events.StartRun) {
			d.Files = []events.GivenFile{{Name: "plan.txt", Ref: ref}}
		}))
		spoiled := false
		w.OnRead(func(events.Key) {
			if len(w.Keys()) > 0 && !spoiled { // the run is admitted
				spoiled = true
				w.SetObject(ref, tt.spoil)
			}
		})
		worker.Settle()
		if run := only(t, w); run.State != tt.state || !strings.Contains(failure(run), tt.says) {
			t.Errorf("%s: the run is %s: %s", tt.name, run.State, failure(run))
		}
	}
}

func TestCommandsWithFilesThatCannotBeTakenAreRejected(t *testing.T) {
	w, worker := memoryWorld(t)
	many := make([]events.GivenFile, handlers.MaxFiles+1)
	for i := range many {
		many[i] = given(fmt.Sprint(i), "x")
	}
	for name, tt := range map[string]struct {
		files  []events.GivenFile
		reason string
	}{
		"no name":        {[]events.GivenFile{given("", "x")}, handlers.RejectMalformed},
		"empty":          {[]events.GivenFile{given("a", "")}, handlers.RejectMalformed},
		"both":           {[]events.GivenFile{{Name: "a", Data: []byte("x"), Ref: "r"}}, handlers.RejectMalformed},
		"too many":       {many, handlers.RejectMalformed},
		"too much":       {[]events.GivenFile{given("a", strings.Repeat("x", handlers.MaxInlineFiles)), given("b", "x")}, handlers.RejectMalformed},
		"no such object": {[]events.GivenFile{given("a", "x"), {Name: "b", Ref: "nowhere"}}, handlers.RejectFile},
	} {
		start := withFiles(handlerstest.Start("id "+name, "tester", "Go."), func(d *events.StartRun) { d.Files = tt.files })
		_, err := worker.Dispatcher.Admit(t.Context(), "ns", &start)
		var refused *handlers.Rejection
		if !errors.As(err, &refused) || refused.Reason != tt.reason {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if facts := w.Facts(); len(facts) > 0 {
		t.Errorf("%d facts were appended", len(facts))
	}
}

func TestFilesComeWithContinuationsAndMessages(t *testing.T) {
	w, worker := memoryWorld(t)
	w.Send(handlerstest.Start("1", "tester", "Go."))
	worker.Settle()
	session := w.Keys()[0].Session
	asked := make(chan string, 1)
	w.Model.Respond = func(step int, r *runtime.Request) (*runtime.Response, error) {
		var shown []string
		for _, data := range r.Files {
			shown = append(shown, string(data))
		}
		slices.Sort(shown)
		if len(shown) == 1 {
			e := handlerstest.Message("3", newest(t, w), "And this.")
			e.Data, _ = events.Marshal(events.MessageRun{Run: newest(t, w), Message: "And this.", Files: []events.GivenFile{given("b.txt", "second")}})
			if _, err := worker.Dispatcher.Admit(t.Context(), "ns", &e); err != nil {
				t.Error(err)
			}
			return runtimetest.Text("Wait.")(step, r)
		}
		asked <- strings.Join(shown, ",")
		return runtimetest.Complete(`"done"`)(step, r)
	}
	e := handlerstest.Continue("2", session, "Look.")
	e.Data, _ = events.Marshal(events.ContinueRun{Session: session, Message: "Look.", Files: []events.GivenFile{given("a.txt", "first")}})
	w.Send(e)
	worker.Settle()
	if got := <-asked; got != "first,second" {
		t.Errorf("the model was shown %q", got)
	}
}

// newest returns the id of the newest run of the world's one session.
func newest(t *testing.T, w *handlerstest.World) string {
	t.Helper()
	s, _, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil {
		t.Fatal(err)
	}
	return s.Current().ID
}

func TestALargeFileIsPutTogetherFromPieces(t *testing.T) {
	w, worker := memoryWorld(t)
	api := &handlers.API{Host: worker.Dispatcher.Host}
	put := func(r handlers.PutFile) (*handlers.PutFileAnswer, error) {
		data, err := events.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := api.Handle(t.Context(), "ns", handlers.VerbFilePut, nil, data)
		if err != nil {
			return nil, err
		}
		put := answer.(handlers.PutFileAnswer)
		return &put, nil
	}
	var pieces []string
	for _, piece := range []string{"one, ", "two"} {
		answer, err := put(handlers.PutFile{Data: []byte(piece)})
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, answer.Ref)
	}
	whole, err := put(handlers.PutFile{Pieces: pieces})
	if err != nil || whole.Size != 8 || !bytes.HasSuffix(w.Object(whole.Ref), []byte("\none, two")) {
		t.Errorf("got %+v, %v", whole, err)
	}
	for name, r := range map[string]handlers.PutFile{"nothing": {}, "both": {Data: []byte("x"), Pieces: pieces}, "no such piece": {Pieces: []string{"nowhere"}}} {
		var refused *handlers.APIError
		if _, err := put(r); !errors.As(err, &refused) || refused.Code == handlers.CodeUnavailable {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAnswersWithFilesAreReadAndOthersLeftAsTheyAre(t *testing.T) {
	for _, tt := range []struct {
		answer, value, fails string
		files                []handlers.AnsweredFile
	}{
		{answer: `{"a":1.50}`, value: `{"a":1.50}`},
		{answer: `not JSON "$attachments"`, value: `not JSON "$attachments"`},
		{answer: `["$attachments"]`, value: `["$attachments"]`},
		{answer: `{"n":12345678901234567890.10,"$attachments":[{"name":"a","data":"eA=="}]}`, value: `{"n":12345678901234567890.10}`, files: []handlers.AnsweredFile{{Name: "a", Data: []byte("x")}}},
		{answer: `{"$value":[1],"$attachments":[{"name":"a","media_type":"text/csv","ref":"r"}]}`, value: `[1]`, files: []handlers.AnsweredFile{{Name: "a", MediaType: "text/csv", Ref: "r"}}},
		{answer: `{"$attachments":[]}`, value: `{}`, files: []handlers.AnsweredFile{}},
		{answer: `{"$attachments":{}}`, fails: "no list"},
		{answer: `{"$attachments":[{"name":"a","data":"*"}]}`, fails: "no list"},
		{answer: `{"$attachments":[{"name":"a"}]}`, fails: "exactly one"},
		{answer: `{"$attachments":[{"name":"a","data":"eA==","ref":"r"}]}`, fails: "exactly one"},
	} {
		value, files, err := handlers.ReadAnswer([]byte(tt.answer))
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("%s: got %v", tt.answer, err)
			}
			continue
		}
		if err != nil || string(value) != tt.value {
			t.Errorf("%s: got %s, %v", tt.answer, value, err)
		}
		if diff := cmp.Diff(tt.files, files); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.answer, diff)
		}
	}
}

func TestAnAnswerWhoseFilesCannotBeTakenIsAnErrorOfTheCall(t *testing.T) {
	for name, tt := range map[string]struct{ answer, says string }{
		"malformed": {`{"$attachments":[{"name":"a"}]}`, "exactly one"},
		"gone":      {`{"$attachments":[{"name":"lost.txt","ref":"nowhere"}]}`, "lost.txt"},
	} {
		w, worker := started(t, agent("desk.draw"), runtimetest.RunJS("desk.draw {}\nreturn"), runtimetest.CompleteQuoting())
		w.Services.Answer = func(string, map[string]string, []byte) ([]byte, error) { return []byte(tt.answer), nil }
		worker.Settle()
		run := only(t, w)
		if run.State != projector.StateCompleted || !strings.Contains(string(run.Checkpoint.Reply.Output), tt.says) || !strings.Contains(string(run.Checkpoint.Reply.Output), "carried out") {
			t.Errorf("%s: the run is %s: %s", name, run.State, run.Checkpoint.Reply.Output)
		}
	}
}

// failure returns what a run failed of.
func failure(r projector.Run) string {
	if r.Failed == nil {
		return ""
	}
	return r.Failed.Error
}
