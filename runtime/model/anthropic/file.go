package anthropic

import (
	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/runtime/model/internal/wire"
)

// mapFiles returns the blocks of the files that are sent: images, and PDFs and
// text as documents. The API has no block for anything else.
func mapFiles(sent map[string][]byte, parts ...events.Part) (blocks []sdk.ToolResultBlockParamContentUnion) {
	for _, f := range wire.Files(sent, parts...) {
		var document sdk.DocumentBlockParam
		switch {
		case f.Image():
			image := sdk.ImageBlockParam{Source: sdk.ImageBlockParamSourceUnion{OfBase64: &sdk.Base64ImageSourceParam{
				Data: f.Base64(), MediaType: sdk.Base64ImageSourceMediaType(f.MediaType)}}}
			blocks = append(blocks, sdk.ToolResultBlockParamContentUnion{OfImage: &image})
			continue
		case f.Textual() && !blank(f.Text()):
			document.Source.OfText = &sdk.PlainTextSourceParam{Data: f.Text()}
		case f.MediaType == "application/pdf":
			document.Source.OfBase64 = &sdk.Base64PDFSourceParam{Data: f.Base64()}
		default:
			continue
		}
		if f.Name != "" {
			document.Title = param.NewOpt(f.Name)
		}
		blocks = append(blocks, sdk.ToolResultBlockParamContentUnion{OfDocument: &document})
	}
	return blocks
}
