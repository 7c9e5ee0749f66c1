package schema_test

import (
	"errors"
	"os"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

// slow makes tests larger.
var slow = os.Getenv("AGENTRUNTIME_SLOW") == "1"

func compile(t testing.TB, doc string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile("test", []byte(doc))
	if err != nil {
		t.Fatalf("%s\n%v", doc, err)
	}
	return s
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// violations returns why an instance is refused, or nil when it is accepted.
func violations(t fataler, s *schema.Schema, instance string) *schema.ValidationError {
	t.Helper()
	err := s.Validate([]byte(instance))
	if err == nil {
		return nil
	}
	var refused *schema.ValidationError
	if !errors.As(err, &refused) || len(refused.Violations) == 0 {
		t.Fatalf("the error is %T %v, want a *ValidationError with a violation", err, err)
	}
	return refused
}
