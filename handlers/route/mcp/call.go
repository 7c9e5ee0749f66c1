package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/handlers/route/dial"
)

// maxFrame bounds one message of a server, in bytes: the largest answer, with its
// text once more as structured content, and every character escaped.
const maxFrame = 4 * handlers.MaxAnswer

// Carry implements handlers.Carrier.
func (p *Pool) Carry(ctx context.Context, r *handlers.Request) ([]byte, error) {
	route := r.Capability.Route.MCP
	s, err := p.server(route.Server)
	if err != nil {
		return nil, err
	}
	input := r.Input
	if string(input) == "null" || len(input) == 0 {
		input = json.RawMessage("{}") // arguments are an object
	}
	meta := sdk.Meta{}
	for name, value := range r.Header {
		meta[name] = value
	}
	params := &sdk.CallToolParams{Meta: meta, Name: route.Tool, Arguments: input}
	// A session may have ended since the last call. What was not written to it
	// goes to the next one, once.
	for again := true; ; again = false {
		session, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		result, err := session.call(ctx, params)
		if err != nil && ctx.Err() != nil {
			s.question(session)
		}
		if errors.Is(err, errGone) {
			if ctx.Err() == nil {
				s.drop(ctx, session)
				if again {
					continue
				}
			}
			return nil, s.notMade("its session, or the time for the call, ended before the request was written", err)
		}
		if err != nil {
			return nil, s.failure(r.Capability, err)
		}
		return answer(route, result)
	}
}

// call makes one request of the tool.
func (s *session) call(ctx context.Context, params *sdk.CallToolParams) (json.RawMessage, error) {
	x := &exchange{method: "tools/call"}
	defer s.tap.forget(x)
	watched, sent := dial.Watch(context.WithValue(ctx, exchangeKey{}, x))
	_, err := s.client.CallTool(watched, params)
	left := x.began.Load() && (s.http == nil || sent.Left())
	result, refused := x.answered()
	switch status := x.status.Load(); {
	case refused != nil:
		return nil, &refusal{refused, int(status)}
	case result != nil:
		return result, nil // whatever the SDK makes of it
	case err == nil:
		return nil, errors.New("the server's result was not seen")
	case ctx.Err() != nil && left:
		return nil, ctx.Err()
	case !left, status == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	case status >= 400 && status < 500:
		return nil, &handlers.ServiceError{Code: "HTTP " + strconv.Itoa(int(status)), Description: "the MCP server's HTTP endpoint refused the request: " + x.why(err).Error()}
	}
	return nil, x.why(err)
}

// refusal is an error that the server answered with. The SDK has errors of the same
// type for what went wrong on the way.
type refusal struct {
	wire   *jsonrpc.Error
	status int // of the HTTP answer that it came in; 0 when it came in none
}

func (e *refusal) Error() string { return e.wire.Error() }

// leavesOpen reports whether the request may have taken effect all the same.
func (e *refusal) leavesOpen() bool {
	return e.wire.Code == jsonrpc.CodeInternalError || e.status >= 500
}

// failure says what is known of a request that has no result.
func (s *server) failure(c *events.Capability, err error) error {
	var refused *handlers.ServiceError
	var own *refusal
	switch {
	case errors.As(err, &refused):
		return err
	case errors.As(err, &own) && (!own.leavesOpen() || c.Effect == events.EffectRead):
		return &handlers.ServiceError{Code: handlers.OrdinaryCode(strconv.FormatInt(own.wire.Code, 10)), Description: own.wire.Message}
	}
	return fmt.Errorf("MCP server %s: %w", s.name, err)
}

// answer makes the answer of a tool's result.
func answer(route *events.MCPRoute, text json.RawMessage) ([]byte, error) {
	members, err := object(text)
	var failed bool
	kind := "complete"
	if err == nil {
		err = errors.Join(members.read("isError", &failed), members.read("resultType", &kind))
	}
	if err != nil {
		return nil, fmt.Errorf("the result of the tool cannot be read: %w", err)
	}
	structured := members["structuredContent"]
	switch {
	case failed:
		return nil, &handlers.ServiceError{Code: "tool", Description: words(members["content"])}
	case kind != "complete" && kind != "":
		return nil, &handlers.ServiceError{Code: "input_required", Description: "the tool asks for more input, which nobody here can give"}
	case route.Structured && !isThere(structured):
		return nil, fmt.Errorf("the tool was carried out, but its result has no structured content, which it had when it was imported")
	case route.Structured:
		return structured, nil
	}
	return events.Marshal(map[string]json.RawMessage{"content": orEmpty(members["content"])})
}

func orEmpty(list json.RawMessage) json.RawMessage {
	if !isThere(list) {
		return json.RawMessage("[]")
	}
	return list
}

// words returns the texts of content blocks, whole: they are cut once secrets are
// removed.
func words(content json.RawMessage) string {
	var blocks []json.RawMessage
	_ = json.Unmarshal(content, &blocks) // without texts it says that there are none
	var texts []string
	for _, b := range blocks {
		var text string
		if members, err := object(b); err == nil && members.read("text", &text) == nil && text != "" {
			texts = append(texts, text)
		}
	}
	if len(texts) == 0 {
		return "the tool failed and says no more"
	}
	return strings.Join(texts, "\n")
}
