package handlerstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/events/eventstest"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/projector"
	"github.com/agentruntime/agentruntime/runtime/runtimetest"
)

// Act is what a service does with a request, as the request's input says.
type Act string

// The acts. What a service answers it makes with ActAnswer.
const (
	ActAnswer Act = "answer"
	ActNever  Act = "never"  // takes the request and answers nothing
	ActTwice  Act = "twice"  // answers twice, where the route has a way to
	ActLate   Act = "late"   // answers when the next request comes, before that one is answered
	ActLarge  Act = "large"  // answers more than handlers.MaxAnswer
	ActWrong  Act = "wrong"  // answers what does not fit the output schema
	ActDies   Act = "dies"   // ends in the middle of the answer
	ActError  Act = "error"  // answers ActRefusal as an error
	ActSecret Act = "secret" // answers what holds ActHidden
	ActHold   Act = "hold"   // is told to the witness while others are served, and answers when the witness lets it
)

// The acts of a service that speaks HTTP, which PlayHTTP plays.
const (
	ActForbids  Act = "forbids"  // answers 403 and a text
	ActStalls   Act = "stalls"   // answers with headers and no body
	ActSwitches Act = "switches" // answers 101 and keeps the connection
	ActOverflow Act = "overflow" // answers more than any route reads
)

// PlayHTTP plays the acts of HTTP, and reports whether the act was one of them.
func PlayHTTP(w http.ResponseWriter, r *http.Request, act Act) bool {
	w.Header().Set("Content-Type", "application/json")
	switch act {
	case ActForbids:
		http.Error(w, "the firewall forbids it", http.StatusForbidden)
	case ActStalls:
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case ActSwitches:
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err) // the tests' servers let a handler have its connection
		}
		_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_ = buffered.Flush()
		_, _ = buffered.ReadByte() // until the other side gives it up
		_ = conn.Close()
	case ActOverflow:
		_, _ = w.Write(bytes.Repeat([]byte(" "), 8*handlers.MaxAnswer))
	default:
		w.Header().Del("Content-Type")
		return false
	}
	return true
}

// ActHidden is a secret that the service knows, and ActRefusal an error that
// repeats it.
const (
	ActHidden  = "hidden-in-the-service"
	ActRefusal = "there is no desk for " + ActHidden
)

// ActRequest is the input of a request.
type ActRequest struct {
	Do Act `json:"do"`
	N  int `json:"n"` // of the request
}

// ActAnswer returns the JSON of an answer: the request's number and headers.
func (r ActRequest) Answer(header func(name string) string) json.RawMessage {
	seen := make(map[string]string)
	for _, name := range carried {
		seen[name] = header(name)
	}
	text := ""
	switch r.Do {
	case ActWrong:
		return json.RawMessage(`{"n":"one"}`)
	case ActSecret:
		text = ActHidden
	case ActLarge:
		text = strings.Repeat("x", handlers.MaxAnswer)
	}
	data, err := events.Marshal(map[string]any{"n": r.N, "header": seen, "text": text})
	if err != nil {
		panic(err) // it is made of strings
	}
	return data
}

// carried are the headers of every request.
var carried = []string{handlers.HeaderNamespace, handlers.HeaderRun, handlers.HeaderCall, handlers.HeaderIndex, handlers.HeaderKey, handlers.HeaderEpoch, handlers.HeaderCapability}

// Witness is told of every request that reaches a service, which may be in another
// process.
type Witness struct {
	listener net.Listener
	seen     chan ActRequest
	held     chan net.Conn // of ActHold; closed to let it be answered
}

// NewWitness listens until the test ends.
func NewWitness(t testing.TB) *Witness {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Witness{l, make(chan ActRequest, 64), make(chan net.Conn, 64)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadBytes('\n')
			var r ActRequest
			switch err := json.Unmarshal(line, &r); {
			case err == nil && r.Do == ActHold:
				w.held <- c
				continue
			case err == nil:
				w.seen <- r
			}
			_ = c.Close()
		}
	}()
	return w
}

// Address is where Tell finds the witness.
func (w *Witness) Address() string { return w.listener.Addr().String() }

// Tell tells the witness at an address of a request, and returns when it knows.
func Tell(address string, r ActRequest) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return // the test has ended
	}
	defer c.Close()
	line, _ := json.Marshal(r) // it is made of texts and numbers
	_, _ = c.Write(append(line, '\n'))
	_, _ = c.Read(make([]byte, 1)) // the end says that it was read
}

// Route is a way to a service that plays acts and tells the witness of each request
// before it does.
type Route struct {
	Route    events.Route
	Nowhere  events.Route // of the same kind, to where nobody is
	Services handlers.Services
	Carriers handlers.Carriers
	Witness  *Witness
	Without  []Act // that the route has no way to
	HTTP     bool  // the service plays the acts of HTTP, too
	Alone    []Act // after which the service answers no other request that is under way
}

// routePatience bounds every wait of the suite.
const routePatience = 20 * time.Second

var (
	actInput  = json.RawMessage(`{"type":"object","properties":{"do":{"type":"string"},"n":{"type":"integer"}},"required":["do","n"]}`)
	actOutput = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
)

// TestRoute is the conformance suite of a route: whatever the service does, a call
// has one outcome that says what is known of its effect, the request leaves once,
// the run and the next call go on, and so does a call of another run meanwhile.
func TestRoute(t *testing.T, r Route) {
	for _, c := range []struct {
		act     Act
		quick   bool     // the call has little time
		words   []string // of the error; without any there is an answer
		without string   // and not these
		http    bool
	}{
		{act: ActAnswer},
		{act: ActTwice},
		{act: ActSecret},
		{act: ActNever, quick: true, words: []string{"did not answer within", "not known"}},
		{act: ActLate, quick: true, words: []string{"did not answer within", "not known"}},
		{act: ActLarge, words: []string{"was carried out", "more than"}},
		{act: ActWrong, words: []string{"was carried out", "output schema"}},
		{act: ActDies, words: []string{"not known"}},
		{act: ActError, words: []string{"failed", "there is no desk for " + runtimetest.Redacted}, without: "not known"},
		{act: ActForbids, words: []string{"failed"}, without: "not known", http: true},
		{act: ActStalls, quick: true, words: []string{"did not answer within", "not known"}, http: true},
		{act: ActSwitches, words: []string{"not known"}, http: true},
		{act: ActOverflow, words: []string{"svc.slow"}, http: true}, // whether that was an answer depends on the route
	} {
		if slices.Contains(r.Without, c.act) || c.http && !r.HTTP {
			continue
		}
		t.Run(string(c.act), func(t *testing.T) {
			first, then := r.play(t, c.act, c.quick)
			if len(c.words) == 0 {
				first.answered(t, 1)
			}
			for _, word := range c.words {
				if first.err == nil || !strings.Contains(first.err.Error(), word) {
					t.Errorf("the call ended with %v, want an error that says %s", first.err, word)
				}
			}
			if c.without != "" && first.err != nil && strings.Contains(first.err.Error(), c.without) {
				t.Errorf("the error says %s: %v", c.without, first.err)
			}
			if text := fmt.Sprint(string(first.out), first.err); strings.Contains(text, ActHidden) {
				t.Errorf("the script sees the secret: %s", text)
			}
			then.answered(t, 2)
		})
	}
	t.Run("nobody is there", func(t *testing.T) {
		c := &events.Capability{Name: "svc.slow", Effect: events.EffectWrite, Route: r.Nowhere}
		if out, err := r.carry(t.Context(), &handlers.Request{Capability: c, Header: map[string]string{}, Input: json.RawMessage(`{"do":"answer","n":1}`)}); !errors.Is(err, handlers.ErrNoService) {
			t.Errorf("the request ended with %s, %v; want that it was not made", out, err)
		}
	})
	t.Run("a call that is cancelled ends at once", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), routePatience)
		defer cancel()
		c := &events.Capability{Name: "svc.slow", Effect: events.EffectWrite, Route: r.Route}
		ended := make(chan error, 1)
		go func() {
			_, err := r.carry(ctx, &handlers.Request{Capability: c, Header: map[string]string{}, Input: json.RawMessage(`{"do":"never","n":1}`)})
			ended <- err
		}()
		r.Witness.next(t)
		cancel()
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, handlers.ErrNoService) {
				t.Errorf("the call ended with %v, want an error that leaves the effect open", err)
			}
		case <-time.After(routePatience):
			t.Error("the call goes on")
		}
	})
}

func (r Route) carry(ctx context.Context, request *handlers.Request) ([]byte, error) {
	switch route := request.Capability.Route; {
	case route.NATS != nil:
		return r.Services.Request(ctx, route.NATS.Subject, request.Header, request.Input)
	case route.MCP != nil:
		return r.Carriers.MCP.Carry(ctx, request)
	}
	return r.Carriers.HTTP.Carry(ctx, request)
}

// called is what one call came to.
type called struct {
	out json.RawMessage
	err error
	run string
}

// answered demands the answer of the request with a number, which was asked with
// all that identifies it.
func (o called) answered(t *testing.T, n int) {
	t.Helper()
	var answer struct {
		N      int               `json:"n"`
		Header map[string]string `json:"header"`
		Text   string            `json:"text"`
	}
	if o.err != nil || json.Unmarshal(o.out, &answer) != nil {
		t.Errorf("call %d ended with %s, %v", n, o.out, o.err)
		return
	}
	h := answer.Header
	want := "ns/" + o.run + "/" + h[handlers.HeaderCall] + "/" + h[handlers.HeaderIndex]
	if answer.N != n || h[handlers.HeaderIndex] != fmt.Sprint(n) || h[handlers.HeaderCall] == "" || h[handlers.HeaderRun] != o.run || h[handlers.HeaderKey] != want ||
		h[handlers.HeaderEpoch] != "1" || h[handlers.HeaderNamespace] != "ns" || !strings.HasPrefix(h[handlers.HeaderCapability], "svc.") {
		t.Errorf("call %d was answered with %d and had the headers %v", n, answer.N, h)
	}
}

// play makes three calls in the script of a run: one that is answered, one with the
// act, and one that is answered again. The run must complete, and each request must
// have left once. A call of another is under way meanwhile, and is answered after all.
func (r Route) play(t *testing.T, act Act, quick bool) (first, then called) {
	t.Helper()
	slow := events.Capability{Name: "svc.slow", Effect: events.EffectWrite, Input: actInput, Output: actOutput, Timeout: routePatience.String(), Route: r.Route}
	fast := slow
	fast.Name, fast.Timeout = "svc.quick", "250ms"
	name := slow.Name
	if quick {
		name = fast.Name
	}
	bystander := r.hold(t, &slow)
	defer bystander(!slices.Contains(r.Alone, act))
	w := New(&eventstest.Memory{}, &eventstest.Memory{}, "ns")
	w.Redactor = &runtimetest.Redactor{Secrets: []string{ActHidden}}
	w.Executors.Scripts = map[string]runtimetest.ScriptFunc{"play": func(_ context.Context, call runtimetest.Callback) (any, error) {
		ask := func(name string, act Act, n int) (o called) {
			input, _ := json.Marshal(ActRequest{act, n})
			o.out, o.err = call(name, input)
			return o
		}
		if o := ask(slow.Name, ActAnswer, 0); o.err != nil {
			t.Errorf("before the act the call ended with %v", o.err)
		}
		first = ask(name, act, 1)
		then = ask(slow.Name, ActAnswer, 2)
		return "played", nil
	}}
	w.Model.Respond = runtimetest.Script(runtimetest.RunJS("play"), runtimetest.CompleteQuoting())
	worker := w.Start(t.Context(), nil)
	worker.Dispatcher.Carriers = r.Carriers
	if r.Services != nil {
		worker.Dispatcher.Services = r.Services
	}
	v := handlers.Version{Agent: events.AgentDefinition{Slug: "tester", Instructions: "Test.", Model: "test/model", Capabilities: []string{slow.Name, fast.Name}}, Capabilities: []events.Capability{slow, fast}}
	if _, err := worker.Dispatcher.Apply(t.Context(), "ns", &v); err != nil {
		t.Fatal(err)
	}
	w.Send(Start("1", "tester", "Go."))
	worker.Settle()
	session, _, err := w.Session(t.Context(), w.Keys()[0])
	if err != nil || len(session.Runs) != 1 || session.Runs[0].State != projector.StateCompleted {
		t.Fatalf("the run did not complete: %v", err)
	}
	first.run, then.run = session.Runs[0].ID, session.Runs[0].ID
	for n, want := range []Act{ActAnswer, act, ActAnswer} {
		if got := r.Witness.next(t); got != (ActRequest{want, n}) {
			t.Errorf("request %d at the service is %+v, want %s", n, got, want)
		}
	}
	select {
	case extra := <-r.Witness.seen:
		t.Errorf("the service was asked once more: %+v", extra)
	default:
	}
	return first, then
}

// hold makes a call that is under way until the function is called, which demands its
// answer or lets it end in another way.
func (r Route) hold(t *testing.T, c *events.Capability) (release func(answered bool)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*routePatience)
	ended := make(chan error, 1)
	go func() {
		out, err := r.carry(ctx, &handlers.Request{Capability: c, Header: map[string]string{}, Input: json.RawMessage(`{"do":"hold","n":9}`)})
		if err == nil && !strings.Contains(string(out), `"n":9`) {
			err = fmt.Errorf("it was answered with %s", out)
		}
		ended <- err
	}()
	var held net.Conn
	select {
	case held = <-r.Witness.held:
	case err := <-ended:
		t.Fatalf("the call of another ended with %v", err)
	}
	return func(answered bool) {
		defer cancel()
		_ = held.Close()
		if err := <-ended; answered && err != nil {
			t.Errorf("the call of another ended with %v", err)
		}
	}
}

func (w *Witness) next(t *testing.T) ActRequest {
	t.Helper()
	select {
	case r := <-w.seen:
		return r
	case <-time.After(routePatience):
		t.Fatal("no request reached the service")
		return ActRequest{}
	}
}
