// Package tokens estimates how many tokens a request has before it is made.
//
// For the models of OpenAI the text is counted by their own tokenizers, whose
// vocabularies are part of the binary; for all others a token is taken for four
// bytes. Either way the result is an estimate: providers add tokens of their own
// around messages and tools, which are known only about. It is meant to be
// rather too high than too low. What a request really had is in the usage of its
// response.
package tokens

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
)

// What providers add, as OpenAI has published it for its own models.
const (
	perMessage = 4
	perTool    = 12
	perRequest = 3
	perCall    = 8
)

// bytesPerToken is what a token of English text has.
const bytesPerToken = 4

// maxCached is of how many messages and tools the counts are remembered, at
// least; at most twice as many are.
const maxCached = 1 << 14

// Estimator estimates the requests to one model. It remembers what it counted,
// so that a window that grows costs what is new. It may be used concurrently.
type Estimator struct {
	count func(text string) int64
	seed  maphash.Seed

	mu            sync.Mutex
	recent, older map[uint64]int64 // counts by what was counted
}

// New returns an estimator for a model, named as definitions name it
// (openai/gpt-5) or as its provider does. A tokenizer is loaded when it is first
// needed.
func New(model string) *Estimator {
	return &Estimator{count: counterOf(model), seed: maphash.MakeSeed()}
}

// Request estimates the tokens of a request.
func (e *Estimator) Request(r *runtime.Request) int64 {
	total := int64(perRequest)
	if r.System != "" {
		total += e.remember(perMessage, r.System)
	}
	for i := range r.Messages {
		total += e.message(&r.Messages[i], r.Files)
	}
	for _, t := range r.Tools {
		total += e.remember(perTool, t.Name, t.Description, string(t.InputSchema))
	}
	return total
}

// Message estimates the tokens of one message, whose files are described in
// words.
func (e *Estimator) Message(m *events.Message) int64 { return e.message(m, nil) }

// message estimates a message with those of the files that are sent with it, by
// what runtime.FileTokens says of them.
func (e *Estimator) message(m *events.Message, files map[string][]byte) int64 {
	extra, texts := textsOf(m.Parts, perMessage, nil)
	if m.Role != events.RoleAssistant && len(files) > 0 {
		extra += fileTokens(m.Parts, files)
	}
	return e.remember(extra, texts...)
}

func fileTokens(parts []events.Part, files map[string][]byte) (n int64) {
	for _, p := range parts {
		if p.Result != nil {
			n += fileTokens(p.Result.Parts, files)
		}
		if p.Type == events.PartFile && p.File != nil {
			if _, sent := files[p.File.Ref]; sent {
				n += runtime.FileTokens(p.File)
			}
		}
	}
	return n
}

// textsOf collects what is counted of parts, and what is estimated beside it. A
// thought without anything to hand it back by is not sent.
func textsOf(parts []events.Part, extra int64, texts []string) (int64, []string) {
	for _, p := range parts {
		for _, kept := range p.Provider {
			extra += byBytes(string(kept))
		}
		switch {
		case p.Call != nil:
			extra += perCall
			texts = append(texts, p.Call.ID, p.Call.Name, string(p.Call.Arguments))
		case p.Result != nil:
			texts = append(texts, p.Result.CallID)
			extra, texts = textsOf(p.Result.Parts, extra+perCall, texts)
		case p.File != nil:
			extra += perCall
			texts = append(texts, p.File.Name, p.File.MediaType, p.File.Ref)
		case p.Type != events.PartReasoning || len(p.Provider) > 0:
			texts = append(texts, p.Text)
		}
	}
	return extra, texts
}

// remember returns the tokens of the texts and the extra ones, counting only
// what was not counted lately.
func (e *Estimator) remember(extra int64, texts ...string) int64 {
	var h maphash.Hash
	h.SetSeed(e.seed)
	for _, text := range texts {
		_, _ = h.WriteString(text) // it never fails
		_ = h.WriteByte(0xff)      // no UTF-8 has it, so that "a", "b" is not "ab"
	}
	key := h.Sum64()
	e.mu.Lock()
	n, ok := e.recent[key]
	if !ok {
		n, ok = e.older[key]
	}
	e.mu.Unlock()
	if !ok {
		for _, text := range texts {
			n += e.count(text)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.recent == nil || len(e.recent) >= maxCached {
		e.recent, e.older = map[uint64]int64{}, e.recent
	}
	e.recent[key] = n
	return n + extra
}

func byBytes(text string) int64 {
	return int64((len(text) + bytesPerToken - 1) / bytesPerToken)
}

var (
	o200k  = sync.OnceValue(codec.NewO200kBase)
	cl100k = sync.OnceValue(codec.NewCl100kBase)
)

// counterOf returns how text is counted for a model. Models of OpenAI that are
// not known by name are taken for newer ones.
func counterOf(model string) func(string) int64 {
	_, name, found := strings.Cut(model, "/")
	if !found {
		name = model
	} else if !strings.HasPrefix(model, "openai/") {
		return byBytes
	}
	name = strings.TrimPrefix(name, "ft:")
	switch {
	case name == "gpt-4", strings.HasPrefix(name, "gpt-4-"), strings.HasPrefix(name, "gpt-3.5"), strings.HasPrefix(name, "gpt-35"):
		return by(cl100k)
	case strings.HasPrefix(name, "gpt-"), strings.HasPrefix(name, "chatgpt-"), len(name) > 1 && name[0] == 'o' && '1' <= name[1] && name[1] <= '9':
		return by(o200k)
	}
	return byBytes
}

func by(load func() *codec.Codec) func(string) int64 {
	return func(text string) int64 {
		n, err := load().Count(text)
		if err != nil {
			return byBytes(text) // an estimate is always possible
		}
		return int64(n)
	}
}
