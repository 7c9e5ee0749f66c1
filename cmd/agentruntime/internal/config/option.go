package config

import (
	"regexp"
	"strconv"
)

// Options are how a model is asked. Each is for the kinds whose API has it; where
// none is given, the model does as it does by default.
type Options struct {
	// Effort is how much the model is to reason: low, medium, high and what else
	// it knows. For the kinds of OpenAI's APIs, and for anthropic.
	Effort string `yaml:"effort"`

	// Thinking is off, adaptive (as much as the model finds right), or the most
	// tokens that it may think. For anthropic and gemini.
	Thinking string `yaml:"thinking" takes:"number"`

	// Temperature is from 0 to 2, for anthropic to 1. Models that reason do not
	// take it.
	Temperature *float64 `yaml:"temperature"`
}

// The values of Options.Thinking that are no number.
const (
	ThinkingOff      = "off"
	ThinkingAdaptive = "adaptive"
)

const (
	minThinking = 1024 // tokens; Anthropic's, and no model of Gemini's needs less
	maxThinking = 1_000_000
)

var effortForm = regexp.MustCompile(`^[a-z]{1,16}$`)

// ThinkingTokens returns the number that Thinking is, or 0.
func (o Options) ThinkingTokens() int64 {
	n, err := strconv.ParseInt(o.Thinking, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// check refuses what the API of that kind does not have. Output is the limit of a
// response, 0 where none is given.
func (o Options) check(at, kind string, output int64) error {
	thinks := kind == KindAnthropic || kind == KindGemini
	n := o.ThinkingTokens()
	most := 2.0
	if kind == KindAnthropic {
		most = 1
	}
	switch {
	case o.Effort != "" && kind == KindGemini:
		return &Error{at + ".effort", "must not be given for " + kind + ", which has thinking"}
	case o.Effort != "" && !effortForm.MatchString(o.Effort):
		return &Error{at + ".effort", "must be a word that the model knows, such as low, medium or high"}
	case o.Thinking != "" && !thinks:
		return &Error{at + ".thinking", "must not be given for " + kind + ", which has effort"}
	case o.Thinking != "" && o.Thinking != ThinkingOff && o.Thinking != ThinkingAdaptive && (n < minThinking || n > maxThinking):
		return &Error{at + ".thinking", "must be off, adaptive, or a number of tokens from 1024 to 1000000"}
	case n > 0 && output > 0 && n >= output:
		return &Error{at + ".thinking", "must be less than output_tokens, of which it is a part"}
	case n > 0 && output == 0 && kind == KindAnthropic:
		return &Error{at + ".output_tokens", "must be given with a number of thinking tokens, which are a part of them"}
	case o.Temperature != nil && !(*o.Temperature >= 0 && *o.Temperature <= most):
		return &Error{at + ".temperature", "must be a number from 0 to " + strconv.Itoa(int(most))}
	case o.Temperature != nil && (o.Effort != "" || o.Thinking != "" && o.Thinking != ThinkingOff):
		return &Error{at + ".temperature", "must not be given with effort or thinking: a model that reasons takes none"}
	}
	return nil
}
