package openai

import (
	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// mapFiles returns the contents of the files that are sent: images, text as
// text, and all else as files.
func mapFiles(sent map[string][]byte, parts ...events.Part) (contents []sdk.ChatCompletionContentPartUnionParam) {
	for _, f := range wire.Files(sent, parts...) {
		switch {
		case f.Textual():
			contents = append(contents, sdk.TextContentPart(f.Text()))
		case f.Image():
			contents = append(contents, sdk.ImageContentPart(sdk.ChatCompletionContentPartImageImageURLParam{URL: f.URL()}))
		default:
			contents = append(contents, sdk.FileContentPart(sdk.ChatCompletionContentPartFileFileParam{
				FileData: param.NewOpt(f.URL()), Filename: param.NewOpt(f.NameOr("file"))}))
		}
	}
	return contents
}

// mapResultFiles returns the contents of the files of results. A tool's message
// may hold only text, so that they are a message of the user, after all results
// of a response; each is named there again.
func mapResultFiles(m *events.Message, sent map[string][]byte) (contents []sdk.ChatCompletionContentPartUnionParam) {
	for _, p := range m.Parts {
		if p.Result == nil {
			continue
		}
		for _, inner := range p.Result.Parts {
			if files := mapFiles(sent, inner); len(files) > 0 {
				contents = append(append(contents, sdk.TextContentPart("From the result of the call "+p.Result.CallID+": "+runtime.Describe(inner.File, ""))), files...)
			}
		}
	}
	return contents
}
