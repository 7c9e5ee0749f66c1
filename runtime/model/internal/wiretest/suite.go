// Package wiretest holds what every adapter of a provider's HTTP API promises
// alike, as one suite, and what the tests of adapters share.
package wiretest

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// Key is the API key of every model under test.
const Key = "sk-test-0123456789abcdef"

// Config is what the configs of all adapters have.
type Config struct {
	Name, APIKey, BaseURL       string
	HTTPClient                  *http.Client
	HeaderTimeout, StallTimeout time.Duration
}

// Adapter is an adapter under test.
type Adapter struct {
	Provider string
	New      func(Config) (runtime.Model, error)

	Begun, Rest string       // a stream in two pieces, between two events
	Spent       events.Usage // what Begun reports
	Path        string       // of a request
	Keyed       http.Header  // what a request with the key carries

	Environment map[string]string // what the vendor's client would read
}

// Serve returns a model whose endpoint is the handler. It checks that a
// Generate makes one request at most.
func (a Adapter) Serve(t *testing.T, handler http.HandlerFunc, change func(*Config)) runtime.Model {
	t.Helper()
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Method != http.MethodPost || r.URL.Path != a.Path {
			t.Errorf("request %s %s", r.Method, r.URL)
		}
		handler(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		if n := requests.Load(); n > 1 {
			t.Errorf("%d requests were made, want one", n)
		}
	})
	c := Config{Name: "m", APIKey: Key, BaseURL: server.URL}
	if change != nil {
		change(&c)
	}
	m, err := a.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// File answers with a stream of testdata.
func File(t *testing.T, name string) http.HandlerFunc {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return Stream(string(data))
}

// Stream answers with a stream.
func Stream(data string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, data)
		_ = http.NewResponseController(w).Flush()
	}
}

// ModelError returns the error as one of the adapter, without the key.
func (a Adapter) ModelError(t *testing.T, err error) *runtime.ModelError {
	t.Helper()
	var failed *runtime.ModelError
	if !errors.As(err, &failed) {
		t.Fatalf("error %v is no ModelError", err)
	}
	if failed.Provider != a.Provider {
		t.Errorf("provider %q", failed.Provider)
	}
	withoutKey(t, err)
	return failed
}

// withoutKey looks for the key in the text of every error of the tree.
func withoutKey(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), Key) {
			t.Errorf("the key is in an error: %T", err)
		}
	}
}

// request is one that every adapter sends.
func request() *runtime.Request {
	return &runtime.Request{Messages: []events.Message{events.Text("m1", events.RoleUser, "Hi")}}
}

// Run holds an adapter to the suite.
func Run(t *testing.T, a Adapter) {
	t.Run("statuses are mapped to classes", a.statuses)
	t.Run("broken connections may be repeated, and what they cost is known", a.broken)
	t.Run("only silence ends a stream", a.stalls)
	t.Run("what is no stream is refused", a.noStream)
	t.Run("nothing comes from the environment", a.environment)
	t.Run("the own client uses no proxy", a.proxy)
	t.Run("a config is checked", a.config)
	Files(t, a)
	t.Run("a cancelled request returns the context's error", a.cancelled)
}

func (a Adapter) statuses(t *testing.T) {
	const body = `{"type":"error","error":{"message":"Refused.","type":"some_type","param":null,"code":"some_code"}}`
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		class  runtime.ErrorClass
		after  time.Duration
		text   string
	}{
		{"400", 400, nil, body, runtime.ClassInvalid, 0, "Refused. [some_type] [some_code]"},
		{"400 for a context that is too long", 400, nil, `{"error":{"message":"prompt is too long","type":"invalid_request_error","code":"context_length_exceeded"}}`, runtime.ClassOverflow, 0, "prompt is too long [invalid_request_error] [context_length_exceeded]"},
		{"400 that asks to be repeated", 400, map[string]string{"X-Should-Retry": "true"}, body, runtime.ClassInvalid, 0, "Refused."},
		{"401 that repeats the key", 401, nil, `{"error":{"message":"Incorrect API key provided: ` + Key + `."}}`, runtime.ClassDenied, 0, "provided: [key]."},
		{"403", 403, nil, body, runtime.ClassDenied, 0, "Refused."},
		{"404 with no body", 404, nil, "", runtime.ClassInvalid, 0, "Not Found"},
		{"408", 408, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"409", 409, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"413", 413, nil, `{"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, runtime.ClassOverflow, 0, "maximum size [request_too_large]"},
		{"413 that gives no known code", 413, nil, body, runtime.ClassOverflow, 0, "Refused."},
		{"413 of a proxy, in HTML", 413, map[string]string{"Content-Type": "text/html"}, "<html>Payload Too Large</html>", runtime.ClassOverflow, 0, "Request Entity Too Large"},
		{"429 without Retry-After", 429, nil, body, runtime.ClassLimited, 0, "Refused."},
		{"429 with Retry-After in seconds", 429, map[string]string{"Retry-After": "20"}, body, runtime.ClassLimited, 20 * time.Second, "Refused."},
		{"429 with Retry-After as a date", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, body, runtime.ClassLimited, 30 * time.Second, "Refused."},
		{"429 for ever", 429, map[string]string{"Retry-After": "99999999999999"}, body, runtime.ClassLimited, math.MaxInt64, "Refused."},
		{"500", 500, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"502 in HTML", 502, map[string]string{"Content-Type": "text/html"}, "<html>Bad Gateway</html>", runtime.ClassRetry, 0, "Bad Gateway"},
		{"503 with Retry-After", 503, map[string]string{"Retry-After": "2"}, body, runtime.ClassRetry, 2 * time.Second, "Refused."},
		{"504", 504, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"529", 529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`, runtime.ClassRetry, 0, "Overloaded [overloaded_error]"},
		{"a redirect that leads nowhere", 304, nil, "", runtime.ClassInvalid, 0, "Not Modified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := a.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}, nil)
			response, err := m.Generate(t.Context(), request())
			failed := a.ModelError(t, err)
			if response != nil || failed.Class != tt.class || failed.Status != tt.status || failed.RetryAfter != tt.after || failed.Usage != (events.Usage{}) {
				t.Errorf("response %v, error %+v", response, failed)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func (a Adapter) broken(t *testing.T) {
	const silence = 200 * time.Millisecond
	reset := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	for _, tt := range []struct {
		name  string
		begun bool // the stream has
		then  func(w http.ResponseWriter, r *http.Request)
		text  string
	}{
		{"reset before the response", false, func(w http.ResponseWriter, _ *http.Request) { reset(w) }, ""},
		{"closed inside the stream", true, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "read the stream"},
		{"ended inside the stream", true, func(http.ResponseWriter, *http.Request) {}, "ended before"},
		{"ended inside an event", true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, a.Rest[:len(a.Rest)/2]) }, "ended before"},
		{"silent before the response", false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no byte for 200ms"},
		{"silent inside the stream", true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no byte for 200ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := a.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tt.begun {
					Stream(a.Begun)(w, r)
				}
				tt.then(w, r)
			}, func(c *Config) {
				if strings.HasPrefix(tt.name, "silent") {
					c.HeaderTimeout, c.StallTimeout = silence, silence
				}
			})
			response, err := m.Generate(t.Context(), request())
			failed := a.ModelError(t, err)
			if failed.Class != runtime.ClassRetry || failed.Status != 0 || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			var spent events.Usage
			if tt.begun {
				spent = a.Spent
			}
			if failed.Usage != spent {
				t.Errorf("usage %+v, want %+v", failed.Usage, spent)
			}
			HoldsUsage(t, response, spent)
		})
	}
}

// HoldsUsage checks what is returned beside an error.
func HoldsUsage(t *testing.T, r *runtime.Response, spent events.Usage) {
	t.Helper()
	if (r == nil) != (spent == events.Usage{}) || r != nil && (r.Usage != spent || r.Parts != nil || r.Finish != "") {
		t.Errorf("beside the error stands %+v, want usage %+v alone", r, spent)
	}
}

// piped is a transport whose response is written by a function, in the bubble
// of a synctest.
type piped func(ctx context.Context, w io.Writer)

func (p piped) RoundTrip(r *http.Request) (*http.Response, error) {
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	go func() {
		p(r.Context(), w)
		_ = w.Close()
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body, Request: r}, nil
}

func (a Adapter) stalls(t *testing.T) {
	for _, tt := range []struct {
		name, sign string
		gap        time.Duration
		stalled    bool
	}{
		{"keep-alive comments hold a stream open for hours", ": keep-alive\n\n", 50 * time.Second, false},
		{"pings hold a stream open for hours", "event: ping\ndata: {\"type\": \"ping\"}\n\n", 50 * time.Second, false},
		{"a minute of silence ends a stream", ": keep-alive\n\n", 61 * time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := a.New(Config{Name: "m", HTTPClient: &http.Client{Transport: piped(func(ctx context.Context, w io.Writer) {
					_, _ = io.WriteString(w, a.Begun)
					for range 300 {
						select {
						case <-ctx.Done():
							return
						case <-time.After(tt.gap):
							_, _ = io.WriteString(w, tt.sign)
						}
					}
					_, _ = io.WriteString(w, a.Rest)
				})}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = m.Generate(t.Context(), request())
				if !tt.stalled {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if failed := a.ModelError(t, err); failed.Class != runtime.ClassRetry || failed.Usage != a.Spent || time.Since(began) != wire.DefaultStallTimeout {
					t.Errorf("error %v after %v", err, time.Since(began))
				}
			})
		})
	}
}

func (a Adapter) noStream(t *testing.T) {
	for name, tt := range map[string]struct {
		contentType, body string
		class             runtime.ErrorClass
	}{
		"a web page":     {"text/html", `<html></html>`, runtime.ClassInvalid},
		"a JSON object":  {"application/json", `{"object":"list"}`, runtime.ClassInvalid},
		"an empty body":  {"text/event-stream", ``, runtime.ClassRetry},
		"a list":         {"text/event-stream", "data: []\n\n", runtime.ClassInvalid},
		"half an object": {"text/event-stream", "data: {\"type\n\n", runtime.ClassInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			m := a.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				_, _ = io.WriteString(w, tt.body)
			}, nil)
			_, err := m.Generate(t.Context(), request())
			if failed := a.ModelError(t, err); failed.Class != tt.class {
				t.Errorf("error %v", err)
			}
		})
	}
}

func (a Adapter) environment(t *testing.T) {
	for name, value := range a.Environment {
		t.Setenv(name, value)
	}
	for _, key := range []string{Key, ""} {
		var header http.Header
		m := a.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			header = r.Header
			Stream(a.Begun+a.Rest)(w, r)
		}, func(c *Config) { c.APIKey = key })
		if _, err := m.Generate(t.Context(), request()); err != nil {
			t.Fatal(err)
		}
		for name, want := range a.Keyed {
			if key == "" {
				want = nil
			}
			if got := strings.Join(header[name], ","); got != strings.Join(want, ",") {
				t.Errorf("%s: %s", name, got)
			}
		}
		for name, values := range header {
			if strings.Contains(strings.Join(values, ""), "environment") || name == "X-Environment" {
				t.Errorf("%s: %s", name, values)
			}
		}
	}
}

func (a Adapter) proxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy was asked for %s", r.URL)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	m, err := a.New(Config{Name: "m", BaseURL: "http://model.invalid/"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), request())
	if failed := a.ModelError(t, err); failed.Class != runtime.ClassRetry || failed.Status != 0 {
		t.Errorf("error %v", err)
	}
}

func (a Adapter) config(t *testing.T) {
	for name, c := range map[string]Config{
		"no name":                {},
		"a key with a line end":  {Name: "m", APIKey: Key + "\n"},
		"no scheme":              {Name: "m", BaseURL: "api.example.com"},
		"not a URL":              {Name: "m", BaseURL: "http://a b:" + Key},
		"a password in the URL":  {Name: "m", BaseURL: "https://user:" + Key + "@host/"},
		"a key in the URL query": {Name: "m", BaseURL: "https://host/?key=" + Key},
	} {
		_, err := a.New(c)
		if err == nil || !strings.HasPrefix(err.Error(), a.Provider+" model: ") {
			t.Errorf("%s: error %v", name, err)
		}
		withoutKey(t, err)
	}
}

func (a Adapter) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := a.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}, nil)
	_, err := m.Generate(ctx, request())
	var failed *runtime.ModelError
	if !errors.Is(err, context.Canceled) || errors.As(err, &failed) {
		t.Errorf("error %v", err)
	}
}
