package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// said is an answer that reads a body to its end and reports a usage.
type said struct{ usage events.Usage }

func (s *said) Read(r *http.Response) error {
	_, err := io.Copy(io.Discard, r.Body)
	return err
}
func (s *said) Usage() events.Usage { return s.usage }
func (s *said) Response() (*runtime.Response, error) {
	return &runtime.Response{Finish: runtime.FinishStop, Usage: s.usage}, nil
}

func generate(t *testing.T, status int, body io.Reader, usage events.Usage) (*runtime.Response, error) {
	t.Helper()
	e := Endpoint{Provider: "test"}
	if err := e.Complete("m", "m", "http://endpoint.invalid"); err != nil {
		t.Fatal(err)
	}
	return e.Generate(t.Context(), func(context.Context) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}, &said{usage})
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAResponseWithoutEndIsCutOff(t *testing.T) {
	_, err := generate(t, 200, zeros{}, events.Usage{Input: 7})
	var failed *runtime.ModelError
	if !errors.As(err, &failed) || failed.Class != runtime.ClassInvalid || failed.Usage.Input != 7 || !strings.Contains(err.Error(), "more than 67108864 bytes") {
		t.Errorf("error %v", err)
	}
}

func TestAUsageThatCannotBeIsBroughtWithinBounds(t *testing.T) {
	for _, tt := range []struct{ said, want events.Usage }{
		{events.Usage{Input: 10, Cached: 4, Output: 8, Reasoning: 8}, events.Usage{Input: 10, Cached: 4, Output: 8, Reasoning: 8}},
		{events.Usage{Input: -5, Cached: -1, Output: -7, Reasoning: -9}, events.Usage{}},
		{events.Usage{Input: 10, Cached: 11, Output: 3, Reasoning: 4}, events.Usage{Input: 10, Cached: 10, Output: 3, Reasoning: 3}},
		{events.Usage{Input: 1 << 62, Cached: 1 << 62, Output: 1 << 62}, events.Usage{Input: maxTokens, Cached: maxTokens, Output: maxTokens}},
	} {
		response, err := generate(t, 200, strings.NewReader(""), tt.said)
		if err != nil || response.Usage != tt.want {
			t.Errorf("%+v is counted as %+v (%v), want %+v", tt.said, response.Usage, err, tt.want)
		}
		_, err = generate(t, 200, io.MultiReader(strings.NewReader("x"), zeros{}), tt.said)
		if got := runtime.Spent(nil, err); got != tt.want {
			t.Errorf("%+v of a request that failed is counted as %+v, want %+v", tt.said, got, tt.want)
		}
	}
}

func TestARequestThatIsTooLargeIsKnownByItsWords(t *testing.T) {
	for message, class := range map[string]runtime.ErrorClass{
		"prompt is too long: 210345 tokens > 200000 maximum":                                                    runtime.ClassOverflow,
		"input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000":                           runtime.ClassOverflow,
		"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).":               runtime.ClassOverflow,
		"This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.":               runtime.ClassOverflow,
		"Your input exceeds the context window of this model. Please adjust your input and try again.":          runtime.ClassOverflow,
		"max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens":                       runtime.ClassInvalid,
		"messages.1: `tool_use` ids were found without `tool_result` blocks immediately after":                  runtime.ClassInvalid,
		"Invalid value: 'tooo long'. Supported values are: 'low', 'medium', and 'high'.":                        runtime.ClassInvalid,
		"The model `gpt-6` does not exist or you do not have access to it. Its context length is not relevant.": runtime.ClassInvalid,
	} {
		body := `{"type":"error","error":{"type":"invalid_request_error","message":"` + message + `"}}`
		_, err := generate(t, 400, strings.NewReader(body), events.Usage{})
		var failed *runtime.ModelError
		if !errors.As(err, &failed) || failed.Class != class {
			t.Errorf("%q is %v, want %s", message, err, class)
		}
		if failed := ResponseError([]byte(body)); failed.Class != class {
			t.Errorf("%q inside a response is %v, want %s", message, failed, class)
		}
		// What may pass is asked again as it is.
		_, err = generate(t, 503, strings.NewReader(body), events.Usage{})
		if !errors.As(err, &failed) || failed.Class != runtime.ClassRetry {
			t.Errorf("%q with 503 is %v", message, err)
		}
	}
}
