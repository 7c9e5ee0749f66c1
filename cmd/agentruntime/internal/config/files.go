package config

import (
	"fmt"
	"regexp"

	"github.com/agentruntime/agentruntime/runtime"
)

// Files are which files models take, and how large. A size is in bytes of the
// file as it is; 0 is no bound. What stands here replaces the default as a
// whole, so that an empty object lets models have files in words only.
type Files struct {
	Types    []string `yaml:"types"`     // media types, or image/* for all images
	MaxImage int64    `yaml:"max_image"` // of one image; max_file by default
	MaxFile  int64    `yaml:"max_file"`  // of any other one
	MaxTotal int64    `yaml:"max_total"` // of all in one request
}

var mediaTypeForm = regexp.MustCompile(`^[a-z0-9.+-]+/([a-z0-9.+-]+|\*)$`)

func (f *Files) check(at string) error {
	if f == nil {
		return nil
	}
	for i, t := range f.Types {
		if !mediaTypeForm.MatchString(t) {
			return &Error{fmt.Sprintf("%s.types[%d]", at, i), "must be a media type in small letters, such as image/png, or image/*"}
		}
	}
	if f.MaxImage < 0 || f.MaxFile < 0 || f.MaxTotal < 0 {
		return &Error{at, "must have positive sizes"}
	}
	return nil
}

// What the vendors take of files, by their own documentation. All count what is
// sent, which base64 makes a third larger.
var (
	images    = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	texts     = []string{"text/*", "application/json"}
	documents = append(append([]string{"application/pdf"}, images...), texts...)

	// Anthropic, "Vision" and "PDF support": 5 MB an image, counted in base64;
	// 32 MB a request, which bounds a PDF as well.
	anthropicFiles = Files{Types: documents, MaxImage: 5 << 20 / 4 * 3, MaxFile: 20 << 20, MaxTotal: 20 << 20}

	// OpenAI, "Images and vision" and "File inputs": 50 MB a request, and less
	// than that for one file; PDFs and images by either API, text as text.
	openaiFiles = Files{Types: documents, MaxFile: 32 << 20, MaxTotal: 32 << 20}

	// Google, "Image understanding" and "Document understanding": 20 MB a
	// request with inline data, one file or many; no GIF.
	geminiFiles = Files{Types: append([]string{"application/pdf", "image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "audio/*"}, texts...), MaxFile: 14 << 20, MaxTotal: 14 << 20}

	// Nobody knows what another endpoint takes: text goes as text.
	plainFiles = Files{Types: texts, MaxFile: 1 << 20, MaxTotal: 1 << 20}
)

// FileLimits returns which files a model of the provider takes.
func (p *Provider) FileLimits(model string) runtime.FileLimits {
	f := p.Models[model].Files
	switch {
	case f != nil:
	case p.Files != nil:
		f = p.Files
	case p.Kind == KindAnthropic:
		f = &anthropicFiles
	case p.Kind == KindGemini:
		f = &geminiFiles
	case (p.Kind == KindOpenAI || p.Kind == KindOpenAIResponses) && p.BaseURL == "":
		f = &openaiFiles
	default:
		f = &plainFiles
	}
	return runtime.FileLimits{Types: f.Types, MaxImage: f.MaxImage, MaxFile: f.MaxFile, MaxTotal: f.MaxTotal}
}
