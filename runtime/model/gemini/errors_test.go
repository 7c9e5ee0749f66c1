package gemini_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/gemini"
)

func modelError(t *testing.T, err error) *runtime.ModelError {
	t.Helper()
	var failed *runtime.ModelError
	if !errors.As(err, &failed) {
		t.Fatalf("error %v is no ModelError", err)
	}
	if failed.Provider != gemini.Provider {
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

// status is an error body as the API writes it.
func status(name, details string) string {
	return `{"error":{"code":0,"message":"Refused.","status":"` + name + `","details":[` + details + `]}}`
}

const (
	retryInfo = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerMinute"}]},
		{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}`
	invalidKey = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}},
		{"@type":"type.googleapis.com/google.rpc.DebugInfo","detail":"Invalid API key: ` + key + `"}`
)

func TestStatuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		class  runtime.ErrorClass
		after  time.Duration
		text   string
	}{
		{"429 with RetryInfo", 429, nil, status("RESOURCE_EXHAUSTED", retryInfo), runtime.ClassLimited, 34500 * time.Millisecond, "Refused. [RESOURCE_EXHAUSTED]"},
		{"429 with RetryInfo and a header", 429, map[string]string{"Retry-After": "20"}, status("RESOURCE_EXHAUSTED", retryInfo), runtime.ClassLimited, 34500 * time.Millisecond, "Refused."},
		{"429 with a header alone", 429, map[string]string{"Retry-After": "20"}, status("RESOURCE_EXHAUSTED", ""), runtime.ClassLimited, 20 * time.Second, "Refused."},
		{"429 with a date", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, "", runtime.ClassLimited, 30 * time.Second, "Too Many Requests"},
		{"429 with nonsense", 429, map[string]string{"Retry-After": "soon"}, status("RESOURCE_EXHAUSTED", `{"@type":"google.rpc.RetryInfo","retryDelay":"-3s"}`), runtime.ClassLimited, 0, "Refused."},
		{"429 in a list", 429, nil, "[" + status("RESOURCE_EXHAUSTED", retryInfo) + "]", runtime.ClassLimited, 34500 * time.Millisecond, "Refused."},
		{"500", 500, nil, status("INTERNAL", ""), runtime.ClassRetry, 0, "Refused. [INTERNAL]"},
		{"503", 503, nil, status("UNAVAILABLE", retryInfo), runtime.ClassRetry, 34500 * time.Millisecond, "Refused. [UNAVAILABLE]"},
		{"504", 504, nil, status("DEADLINE_EXCEEDED", ""), runtime.ClassRetry, 0, "Refused."},
		{"502 in HTML", 502, map[string]string{"Content-Type": "text/html"}, "<html>Bad Gateway</html>", runtime.ClassRetry, 0, "Bad Gateway"},
		{"408", 408, nil, status("", ""), runtime.ClassRetry, 0, "Refused."},
		{"409", 409, nil, status("ABORTED", ""), runtime.ClassRetry, 0, "Refused."},
		{"401", 401, nil, status("UNAUTHENTICATED", ""), runtime.ClassDenied, 0, "Refused."},
		{"403", 403, nil, status("PERMISSION_DENIED", ""), runtime.ClassDenied, 0, "Refused."},
		{"400", 400, nil, status("INVALID_ARGUMENT", ""), runtime.ClassInvalid, 0, "Refused. [INVALID_ARGUMENT]"},
		{"400 for a wrong key", 400, nil, status("INVALID_ARGUMENT", invalidKey), runtime.ClassDenied, 0, "[API_KEY_INVALID]"},
		{"400 that repeats the key", 400, nil, `{"error":{"message":"No such key: ` + key + `."}}`, runtime.ClassInvalid, 0, "No such key: [key]."},
		{"404 with no body", 404, nil, "", runtime.ClassInvalid, 0, "Not Found"},
		{"404 of another form", 404, nil, `{"error":"nothing here"}`, runtime.ClassInvalid, 0, "Not Found"},
		{"422 with a long message", 422, nil, `{"error":{"message":"` + strings.Repeat("ä", 9999) + `"}}`, runtime.ClassInvalid, 0, strings.Repeat("ä", 9999)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json; charset=UTF-8")
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

func TestUnusableResponses(t *testing.T) {
	spent := events.Usage{Input: 19, Output: 10}
	for _, tt := range []struct {
		name, file string
		class      runtime.ErrorClass
		status     int
		after      time.Duration
		text       string
		usage      events.Usage
	}{
		{"a stream that ends early", "truncated.sse", runtime.ClassRetry, 0, 0, "ended before", spent},
		{"a stream that is cut inside a call", "cut_call.sse", runtime.ClassRetry, 0, 0, "ended inside an event", events.Usage{}},
		{"malformed JSON", "malformed.sse", runtime.ClassInvalid, 0, 0, "JSON", events.Usage{}},
		{"a part that is no object", "bad_part.sse", runtime.ClassInvalid, 0, 0, "a part", events.Usage{}},
		{"a call whose name is no string", "bad_call.sse", runtime.ClassInvalid, 0, 0, "a function call", events.Usage{}},
		{"a blocked prompt", "blocked.sse", runtime.ClassInvalid, 0, 0, "PROHIBITED_CONTENT", events.Usage{Input: 19}},
		{"a call the API could not read", "malformed_call.sse", runtime.ClassRetry, 0, 0, `"MALFORMED_FUNCTION_CALL": Malformed function call: print`, spent},
		{"an unknown finish reason", "unknown_finish.sse", runtime.ClassInvalid, 0, 0, `"PAUSED"`, spent},
		{"an overload in the stream", "error_unavailable.sse", runtime.ClassRetry, 503, 0, "overloaded", events.Usage{}},
		{"a quota in the stream", "error_quota.sse", runtime.ClassLimited, 0, 1500 * time.Millisecond, "Quota.", events.Usage{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			response, err := serve(t, file(t, tt.file), nil).Generate(t.Context(), &runtime.Request{})
			failed := modelError(t, err)
			if failed.Class != tt.class || failed.Status != tt.status || failed.RetryAfter != tt.after || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v", err)
			}
			var usage events.Usage
			if response != nil {
				usage = response.Usage
				if response.Parts != nil || response.Finish != "" {
					t.Errorf("an unusable response is returned: %v", response)
				}
			}
			if usage != tt.usage {
				t.Errorf("usage %v", usage)
			}
		})
	}
}

func TestUnusableBodies(t *testing.T) {
	for _, tt := range []struct {
		name, contentType, body string
		class                   runtime.ErrorClass
	}{
		{"no candidates", "application/json", `{"candidates":[]}`, runtime.ClassRetry},
		{"an error", "application/json", `{"error":{"code":429}}`, runtime.ClassLimited},
		{"half of one", "application/json", `{"candi`, runtime.ClassInvalid},
		{"half a list", "application/json", `[{"candidates":[]},`, runtime.ClassInvalid},
		{"a number", "application/json", `7`, runtime.ClassInvalid},
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

func TestFinishReasonsAreMapped(t *testing.T) {
	retried, refused := string(runtime.ClassRetry), string(runtime.ClassInvalid)
	for reason, want := range map[string]string{
		"STOP": string(runtime.FinishStop), "MAX_TOKENS": string(runtime.FinishLength), "CONTINUATION": string(runtime.FinishLength),
		"SAFETY": string(runtime.FinishFilter), "RECITATION": string(runtime.FinishFilter), "LANGUAGE": string(runtime.FinishFilter),
		"BLOCKLIST": string(runtime.FinishFilter), "PROHIBITED_CONTENT": string(runtime.FinishFilter), "SPII": string(runtime.FinishFilter),
		"IMAGE_SAFETY": string(runtime.FinishFilter), "IMAGE_PROHIBITED_CONTENT": string(runtime.FinishFilter), "IMAGE_RECITATION": string(runtime.FinishFilter),
		"MALFORMED_FUNCTION_CALL": retried, "UNEXPECTED_TOOL_CALL": retried, "TOO_MANY_TOOL_CALLS": retried, "MALFORMED_RESPONSE": retried,
		"OTHER": retried, "FINISH_REASON_UNSPECIFIED": retried,
		"MISSING_THOUGHT_SIGNATURE": refused, "NO_IMAGE": refused, "NEW_REASON": refused,
	} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"`+reason+`"}]}`+"\n\n")
		}, nil)
		response, err := m.Generate(t.Context(), &runtime.Request{})
		got := ""
		if err != nil {
			got = string(modelError(t, err).Class)
		} else {
			got = string(response.Finish)
		}
		if got != want {
			t.Errorf("%s is %s, want %s", reason, got, want)
		}
	}
}

// begin sends the head of a stream and its first event.
func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, `data: {"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}`+"\n\n")
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
		"closed inside a whole response": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"candidates":`)
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
			m := serve(t, handler, func(c *gemini.Config) {
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
	const event = `data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}]}` + "\n\n"
	for name, tt := range map[string]struct {
		gap     time.Duration
		stalled bool
	}{
		"comments hold a stream open for hours": {50 * time.Second, false},
		"a minute of silence ends a stream":     {61 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := gemini.New(gemini.Config{Name: "m", APIKey: key, HTTPClient: &http.Client{Transport: piped(func(ctx context.Context, w io.Writer) {
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
				if failed := modelError(t, err); failed.Class != runtime.ClassRetry || time.Since(began) != gemini.DefaultStallTimeout {
					t.Errorf("error %v after %v", err, time.Since(began))
				}
			})
		})
	}
}
