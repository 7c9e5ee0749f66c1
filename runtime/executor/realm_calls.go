package executor

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dop251/goja"

	"github.com/agentruntime/agentruntime/events"
)

// callback is one call of a binding.
type callback struct {
	id              int
	name            string
	input           string
	resolve, reject func(any) error
	problem         *goja.Object // made at the call, for its line
}

// bind puts the bindings into the world, with objects for the parts of dotted
// names. A script cannot assign to them.
func (r *realm) bind(names []string) error {
	objects := make(map[string]*goja.Object)
	for _, name := range names {
		parent, path := r.vm.GlobalObject(), ""
		parts := strings.Split(name, ".")
		for _, part := range parts[:len(parts)-1] {
			path += part + "."
			object := objects[path]
			if object == nil {
				object = r.vm.NewObject()
				objects[path] = object
				if err := define(parent, part, object); err != nil {
					return err
				}
			}
			parent = object
		}
		if err := define(parent, parts[len(parts)-1], r.binding(name)); err != nil {
			return err
		}
	}
	return nil
}

func define(parent *goja.Object, key string, v goja.Value) error {
	return parent.DefineDataProperty(key, v, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_TRUE)
}

// function makes a function of the realm. It has the given name, since goja
// would show the name of the Go function.
func (r *realm) function(name string, f func(goja.FunctionCall) goja.Value) *goja.Object {
	object := r.vm.ToValue(f).ToObject(r.vm)
	if err := object.DefineDataProperty("name", r.vm.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
	return object
}

// binding is the function that makes callbacks. Whatever is wrong with a call
// rejects its promise.
func (r *realm) binding(name string) *goja.Object { return r.caller(name, r.input) }

// caller is a function that makes callbacks with what input makes of its
// arguments.
func (r *realm) caller(name string, encode func(name string, arguments []goja.Value) (string, *goja.Object)) *goja.Object {
	return r.function(name, func(call goja.FunctionCall) goja.Value {
		promise, resolve, reject := r.vm.NewPromise()
		c := &callback{name: name, resolve: resolve, reject: reject, problem: r.newError(r.errorClass, "")}
		var input string
		var problem *goja.Object
		err := r.try(func() { input, problem = encode(name, call.Arguments) })
		if isUncatchable(err) {
			panic(err)
		} else if err != nil {
			problem = r.newError(r.typeErrorClass, "the arguments of "+name+" cannot be read: "+r.thrown(err).Error())
		}
		if problem != nil {
			r.mustSettle(reject(problem))
			return r.vm.ToValue(promise)
		}
		c.input = input
		r.made++
		if r.made > r.limits.Callbacks {
			// It goes no further: unlike after a stack overflow, whose iterators
			// the engine still closes, no function of the script is entered again.
			r.exceeded = true
			r.breakDown()
			r.vm.Interrupt("too many callbacks")
			panic(new(goja.InterruptedError))
		}
		c.id = r.made
		r.waiting = append(r.waiting, c)
		r.dispatch()
		return r.vm.ToValue(promise)
	})
}

// input encodes the argument of a callback.
func (r *realm) input(name string, arguments []goja.Value) (text string, problem *goja.Object) {
	if len(arguments) > 1 {
		return "", r.newError(r.typeErrorClass, name+" takes one argument, an object")
	}
	if len(arguments) == 0 || goja.IsUndefined(arguments[0]) {
		return "{}", nil
	}
	text, err := r.encode(arguments[0])
	if isUncatchable(err) {
		panic(err)
	}
	if err == nil && text == "" {
		err = errors.New("it is a function or a symbol")
	}
	if err == nil && len(text) > r.limits.Input {
		err = fmt.Errorf("it has %d bytes of JSON, more than %d", len(text), r.limits.Input)
	}
	if err == nil {
		err = checkValue(text, r.limits.Input)
	}
	if err != nil {
		return "", r.newError(r.typeErrorClass, "the argument of "+name+" cannot be passed on: "+err.Error())
	}
	return text, nil
}

// dispatch sends the calls that wait, as many as may be in flight.
func (r *realm) dispatch() {
	for len(r.waiting) > 0 && len(r.open) < r.limits.Concurrent {
		c := r.waiting[0]
		if len(r.open) > 0 && r.inFlight+len(c.input) > maxInFlight {
			return
		}
		r.waiting[0], r.waiting = nil, r.waiting[1:]
		r.open[c.id] = c
		r.inFlight += len(c.input)
		r.must(r.wire.send(&frame{Type: frameCall, ID: c.id, Name: c.name, Data: []byte(c.input)}))
	}
}

// step receives one answer, sends what waited for it, and goes on with the
// script. The error is one that the script could not catch.
func (r *realm) step() error {
	f, err := r.wire.receive()
	r.must(err)
	c := r.open[f.ID]
	delete(r.open, f.ID)
	r.inFlight -= len(c.input)
	r.dispatch()
	if r.broken {
		return nil
	}
	if err := r.settle(c, f); err != nil {
		r.breakDown()
		return err
	}
	return nil
}

// settle goes on with the script until it waits again.
func (r *realm) settle(c *callback, f *frame) error {
	text := f.Text
	if !f.Fail {
		v, err := r.parse(goja.Undefined(), r.vm.ToValue(string(f.Data)))
		if err == nil {
			return c.resolve(v)
		}
		text = cut("the answer of "+c.name+" cannot be read: "+err.Error(), r.limits.Message)
	}
	if err := c.problem.DefineDataProperty("message", r.vm.ToValue(text), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		return err
	}
	return c.reject(c.problem)
}

// newError makes an error of the realm.
func (r *realm) newError(class *goja.Object, message string) *goja.Object {
	object, err := r.vm.New(class, r.vm.ToValue(cut(message, r.limits.Message)))
	if err != nil {
		panic(err)
	}
	return object
}

// encode returns the JSON of a value, or "" for what has none. It may run code
// of the script.
func (r *realm) encode(v goja.Value) (string, error) {
	encoded, err := r.stringify(goja.Undefined(), v)
	if err != nil {
		return "", r.thrown(err)
	}
	if goja.IsUndefined(encoded) {
		return "", nil
	}
	return replaceSurrogates(encoded.String()), nil
}

// thrown is an error of the engine in the words of what the script threw.
func (r *realm) thrown(err error) error {
	var thrown *goja.Exception
	if errors.As(err, &thrown) && thrown.Value() != nil {
		return errors.New(r.display(thrown.Value()))
	}
	return err
}

// mustSettle goes on with an error that no script can catch.
func (r *realm) mustSettle(err error) {
	if err != nil {
		panic(err)
	}
}

// must ends the child when the worker is gone.
func (r *realm) must(err error) {
	if err != nil {
		os.Exit(1)
	}
}

// checkValue refuses what the host's readers could not take.
func checkValue(text string, limit int) error {
	return events.CheckJSON([]byte(text), events.JSONLimits{MaxBytes: limit})
}

// replaceSurrogates replaces the halves of characters, which text cut by a
// script often ends with, and which no other reader accepts.
func replaceSurrogates(text string) string {
	const size = len(`\ud800`)
	var b strings.Builder
	done := 0
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if !isSurrogate(text[i:], "89abAB") && !isSurrogate(text[i:], "cdefCDEF") {
			i++ // the character after a backslash is no backslash of its own
			continue
		}
		if isSurrogate(text[i:], "89abAB") && isSurrogate(text[i+size:], "cdefCDEF") {
			i += 2*size - 1
			continue
		}
		b.WriteString(text[done:i])
		b.WriteString(`\ufffd`)
		i += size - 1
		done = i + 1
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// isSurrogate reports whether the text begins with the escape of a surrogate
// whose second digit is one of those given.
func isSurrogate(text, digits string) bool {
	return len(text) >= 6 && text[0] == '\\' && text[1] == 'u' && (text[2] == 'd' || text[2] == 'D') &&
		strings.IndexByte(digits, text[3]) >= 0
}
