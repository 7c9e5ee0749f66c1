package executor

import (
	"strings"

	"github.com/dop251/goja"
)

// addConsole gives the script a console whose output goes to the worker at
// once, so that it is there when the script is killed.
func (r *realm) addConsole() {
	console := r.vm.NewObject()
	for _, name := range []string{"log", "info", "warn", "error", "debug"} {
		write := r.function(name, func(call goja.FunctionCall) goja.Value {
			words := make([]string, len(call.Arguments))
			for i, v := range call.Arguments {
				words[i] = r.display(v)
			}
			r.log(strings.Join(words, " "))
			return goja.Undefined()
		})
		if err := console.Set(name, write); err != nil {
			panic(err)
		}
	}
	if err := r.vm.GlobalObject().DefineDataProperty("console", console, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
}

func (r *realm) log(text string) {
	if kept, ok := r.logs.take(text); ok {
		r.must(r.wire.send(&frame{Type: frameLog, Text: kept}))
	}
}

// display returns a value as a person would want to read it: text as it is,
// errors with name and message, anything else as JSON. It never fails for what
// the script does meanwhile.
func (r *realm) display(v goja.Value) string {
	object, ok := v.(*goja.Object)
	if !ok {
		return v.String()
	}
	text := "[object]"
	err := r.try(func() {
		switch _, callable := goja.AssertFunction(object); {
		case object.ClassName() == "Error":
			text = object.String()
		case callable:
			text = "[function]"
		default:
			encoded, err := r.stringify(goja.Undefined(), object)
			switch {
			case isUncatchable(err):
				panic(err)
			case err == nil && !goja.IsUndefined(encoded):
				text = encoded.String()
			default:
				text = object.String()
			}
		}
	})
	if err != nil {
		if r.exceeded {
			panic(err)
		}
		return "[object]"
	}
	return text
}
