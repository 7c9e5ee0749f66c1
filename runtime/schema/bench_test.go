package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentruntime/agentruntime/runtime/schema"
)

const completion = `{"type":"object","oneOf":[
	{"properties":{"kind":{"const":"output"},"output":{"$ref":"#/$defs/report"}},"required":["kind","output"],"additionalProperties":false},
	{"properties":{"kind":{"const":"needs_input"},"question":{"type":"string","minLength":1}},"required":["kind","question"],"additionalProperties":false}],
	"$defs":{"report":{"type":"object","properties":{
		"lines":{"type":"array","uniqueItems":true,"items":{"type":"object","properties":{"id":{"type":"integer","minimum":0},"text":{"type":"string","pattern":"^[a-z ]+$","maxLength":80}},"required":["id","text"],"additionalProperties":false}}},
		"required":["lines"]}}}`

func reply(lines int) []byte {
	var b strings.Builder
	b.WriteString(`{"kind":"output","output":{"lines":[`)
	for i := range lines {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"text":"a line of the report"}`, i)
	}
	b.WriteString(`]}}`)
	return []byte(b.String())
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Compile("bench", []byte(completion)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	s := compile(b, completion)
	for _, lines := range []int{1, 100, 10_000} {
		text := reply(lines)
		b.Run(fmt.Sprintf("lines=%d", lines), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if err := s.Validate(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidateRefused(b *testing.B) {
	s := compile(b, completion)
	text := []byte(`{"kind":"output","output":{"lines":[{"id":-1,"text":"A"}]},"question":"?"}`)
	b.ReportAllocs()
	for b.Loop() {
		if s.Validate(text) == nil {
			b.Fatal("accepted")
		}
	}
}
