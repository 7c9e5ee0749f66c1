package openai_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/openai"
)

func modelError(t *testing.T, err error) *runtime.ModelError {
	t.Helper()
	var failed *runtime.ModelError
	if !errors.As(err, &failed) {
		t.Fatalf("error %v is no ModelError", err)
	}
	if failed.Provider != openai.Provider {
		t.Errorf("provider %q", failed.Provider)
	}
	withoutKey(t, err)
	return failed
}

// withoutKey looks for the key in the text of every error of the tree.
func withoutKey(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), key) {
			t.Errorf("the key is in an error: %T", err)
		}
	}
}

func isContextError(t *testing.T, err error) {
	t.Helper()
	var failed *runtime.ModelError
	if !errors.Is(err, context.Canceled) || errors.As(err, &failed) {
		t.Errorf("error %v", err)
	}
}

func TestStatuses(t *testing.T) {
	const body = `{"error":{"message":"Refused.","type":"some_type","param":null,"code":"some_code"}}`
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		class  runtime.ErrorClass
		after  time.Duration
		text   string
	}{
		{"429 with Retry-After in seconds", 429, map[string]string{"Retry-After": "20"}, body, runtime.ClassLimited, 20 * time.Second, "Refused. [some_type] [some_code]"},
		{"429 with Retry-After as a date", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, body, runtime.ClassLimited, 30 * time.Second, "Refused."},
		{"429 with a date in the past", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:30 GMT"}, body, runtime.ClassLimited, 0, "Refused."},
		{"429 without Retry-After", 429, nil, body, runtime.ClassLimited, 0, "Refused."},
		{"429 with a fraction", 429, map[string]string{"Retry-After": "1.5"}, body, runtime.ClassLimited, 1500 * time.Millisecond, "Refused."},
		{"429 for ever", 429, map[string]string{"Retry-After": "99999999999999"}, body, runtime.ClassLimited, math.MaxInt64, "Refused."},
		{"429 with nonsense", 429, map[string]string{"Retry-After": "NaN"}, body, runtime.ClassLimited, 0, "Refused."},
		{"429 with a negative number", 429, map[string]string{"Retry-After": "-3"}, body, runtime.ClassLimited, 0, "Refused."},
		{"503 with Retry-After", 503, map[string]string{"Retry-After": "2"}, body, runtime.ClassRetry, 2 * time.Second, "Refused."},
		{"500", 500, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"529", 529, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"502 in HTML", 502, map[string]string{"Content-Type": "text/html"}, "<html>Bad Gateway</html>", runtime.ClassRetry, 0, "Bad Gateway"},
		{"408", 408, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"409", 409, nil, body, runtime.ClassRetry, 0, "Refused."},
		{"401 that repeats the key", 401, nil, `{"error":{"message":"Incorrect API key provided: ` + key + `."}}`, runtime.ClassDenied, 0, "Incorrect API key provided: [key]."},
		{"403", 403, nil, body, runtime.ClassDenied, 0, "Refused."},
		{"400", 400, nil, body, runtime.ClassInvalid, 0, "Refused."},
		{"400 that asks to be repeated", 400, map[string]string{"X-Should-Retry": "true"}, body, runtime.ClassInvalid, 0, "Refused."},
		{"400 in a list", 400, nil, `[` + body + `]`, runtime.ClassInvalid, 0, "Refused."},
		{"400 with a string", 400, nil, `{"error":"model not loaded"}`, runtime.ClassInvalid, 0, "model not loaded"},
		{"404 with no body", 404, nil, "", runtime.ClassInvalid, 0, "Not Found"},
		{"422 with a long message", 422, nil, `{"error":{"message":"` + strings.Repeat("ä", 9999) + `"}}`, runtime.ClassInvalid, 0, strings.Repeat("ä", 9999)},
		{"a redirect that leads nowhere", 304, nil, "", runtime.ClassInvalid, 0, "Not Modified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for name, value := range tt.header {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}, nil)
			response, err := m.Generate(t.Context(), &runtime.Request{})
			failed := modelError(t, err)
			if response != nil || failed.Class != tt.class || failed.Status != tt.status || failed.RetryAfter != tt.after {
				t.Errorf("response %v, class %s, status %d, retry after %v", response, failed.Class, failed.Status, failed.RetryAfter)
			}
			if !strings.Contains(err.Error(), tt.text) || len(err.Error()) > len(tt.text)+1200 {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestADateIsMeasuredByOurClockIfTheResponseHasNone(t *testing.T) {
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(429)
	}, nil)
	_, err := m.Generate(t.Context(), &runtime.Request{})
	if after := modelError(t, err).RetryAfter; after < 50*time.Minute || after > time.Hour {
		t.Errorf("retry after %v", after)
	}
}

func TestUnusableResponses(t *testing.T) {
	spent := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		class      runtime.ErrorClass
		status     int
		text       string
		usage      events.Usage
	}{
		{"malformed JSON", "malformed.sse", runtime.ClassInvalid, 0, "JSON", events.Usage{}},
		{"a truncated stream", "truncated.sse", runtime.ClassRetry, 0, "ended before", events.Usage{}},
		{"a stream done without a finish reason", "done_without_finish.sse", runtime.ClassRetry, 0, "ended before", events.Usage{}},
		{"a stream of no choices", "empty_choices.sse", runtime.ClassRetry, 0, "ended before", events.Usage{}},
		{"an unknown finish reason is named, its usage returned", "unknown_finish.sse", runtime.ClassInvalid, 0, `"paused"`, spent},
		{"a server error in the stream", "error_server.sse", runtime.ClassRetry, 0, "Sorry about that! [server_error]", events.Usage{}},
		{"a rate limit in the stream", "error_rate.sse", runtime.ClassLimited, 0, "[rate_limit_exceeded]", events.Usage{}},
		{"a status in the stream", "error_status.sse", runtime.ClassRetry, 502, "disconnected", events.Usage{}},
		{"a context that is too long", "error_invalid.sse", runtime.ClassOverflow, 0, "too long", events.Usage{}},
		{"an error object without a wrapper", "error_flat.sse", runtime.ClassInvalid, 404, "no such model", events.Usage{}},
		{"an error event without JSON", "error_event.sse", runtime.ClassRetry, 0, "error in the response", events.Usage{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response, err := serve(t, file(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			failed := modelError(t, err)
			if failed.Class != tt.class || failed.Status != tt.status || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			var usage events.Usage
			if response != nil {
				usage = response.Usage
				if response.Parts != nil || response.Finish != "" {
					t.Errorf("an unusable response is returned: %v", response)
				}
			}
			if usage != tt.usage || failed.Usage != tt.usage {
				t.Errorf("usage %v, of the error %v", usage, failed.Usage)
			}
		})
	}
}

func TestUnusableCompletions(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, body string
		class                   runtime.ErrorClass
	}{
		{"no choices", "application/json", `{"object":"chat.completion","choices":[]}`, runtime.ClassInvalid},
		{"no finish reason", "application/json", `{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":null}]}`, runtime.ClassInvalid},
		{"an error", "application/json; charset=utf-8", `{"error":{"message":"overloaded","code":503}}`, runtime.ClassRetry},
		{"half of one", "application/json", `{"choices":[{"ind`, runtime.ClassInvalid},
		{"a list", "application/json", `[]`, runtime.ClassInvalid},
		{"a web page", "text/html", `<html></html>`, runtime.ClassInvalid},
		{"nothing", "text/event-stream", ``, runtime.ClassRetry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				_, _ = io.WriteString(w, tt.body)
			}, nil)
			_, err := m.Generate(t.Context(), &runtime.Request{})
			if failed := modelError(t, err); failed.Class != tt.class {
				t.Errorf("error %v", err)
			}
		})
	}
}

// begin sends the head of a stream and its first event.
func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}`+"\n\n")
	_ = http.NewResponseController(w).Flush()
}

func TestBrokenConnections(t *testing.T) {
	reset := func(w http.ResponseWriter) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	for name, handler := range map[string]http.HandlerFunc{
		"reset before the response": func(w http.ResponseWriter, _ *http.Request) { reset(w) },
		"reset inside the stream": func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			reset(w)
		},
		"closed inside the stream": func(w http.ResponseWriter, _ *http.Request) {
			begin(w)
			panic(http.ErrAbortHandler)
		},
		"closed inside a completion": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"choices":`)
		},
		"silent before the response": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"silent inside the stream": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			begin(w)
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := serve(t, handler, func(c *openai.Config) {
				if strings.HasPrefix(name, "silent") {
					c.HeaderTimeout, c.StallTimeout = 200*time.Millisecond, 200*time.Millisecond
				}
			})
			_, err := m.Generate(t.Context(), &runtime.Request{})
			if failed := modelError(t, err); failed.Class != runtime.ClassRetry || failed.Status != 0 {
				t.Errorf("error %v", err)
			}
			if strings.HasPrefix(name, "silent") != strings.Contains(err.Error(), "no byte for 200ms") {
				t.Errorf("error %v", err)
			}
		})
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

func TestStalls(t *testing.T) {
	const event = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n"
	for name, tt := range map[string]struct {
		gap     time.Duration
		stalled bool
	}{
		"keep-alive comments hold a stream open for hours": {50 * time.Second, false},
		"a minute of silence ends a stream":                {61 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := openai.New(openai.Config{Name: "m", HTTPClient: &http.Client{Transport: piped(func(ctx context.Context, w io.Writer) {
					for range 300 {
						select {
						case <-ctx.Done():
							return
						case <-time.After(tt.gap):
							_, _ = io.WriteString(w, ": keep-alive\n\n")
						}
					}
					_, _ = io.WriteString(w, event)
				})}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_, err = m.Generate(t.Context(), &runtime.Request{})
				if !tt.stalled {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if failed := modelError(t, err); failed.Class != runtime.ClassRetry || time.Since(began) != openai.DefaultStallTimeout {
					t.Errorf("error %v after %v", err, time.Since(began))
				}
			})
		})
	}
}
