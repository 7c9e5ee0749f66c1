package handlerstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentruntime/agentruntime/events"
	"github.com/agentruntime/agentruntime/handlers"
	"github.com/agentruntime/agentruntime/runtime"
)

// with runs f on the world's state for a worker that is alive.
func (w *Worker) with(f func()) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	return nil
}

type objects struct{ w *Worker }

func (o objects) Put(_ context.Context, data []byte) (ref string, err error) {
	ref = events.Derive(52, "object", string(data))
	return ref, o.w.with(func() { o.w.objects[ref] = slices.Clone(data) })
}

func (o objects) Get(_ context.Context, ref string) (data []byte, err error) {
	err = o.w.with(func() { data = o.w.objects[ref] })
	switch {
	case err != nil:
	case data == nil:
		err = events.ErrNotFound
	case events.Derive(52, "object", string(data)) != ref:
		err = events.ErrDamaged
	}
	return data, err
}

// stored returns what a reference, perhaps one of a file, is stored under.
func stored(ref string) string { return ref[strings.LastIndexByte(ref, '-')+1:] }

// SetObject keeps bytes under a reference, whatever it names; nil loses them.
func (w *World) SetObject(ref string, data []byte) {
	ref = stored(ref)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.objects[ref] = data; data == nil {
		delete(w.objects, ref)
	}
}

// Object returns what is kept under a reference, as it is stored.
func (w *World) Object(ref string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.objects[stored(ref)]
}

func (o objects) Remove(_ context.Context, ref string) error {
	return o.w.with(func() { delete(o.w.objects, ref) })
}

type definitions struct{ w *Worker }

func (d definitions) Put(_ context.Context, namespace, slug string, version []byte) (hash string, err error) {
	hash = events.Derive(52, "version", string(version))
	return hash, d.w.with(func() {
		d.w.definitions[namespace+"/"+hash] = slices.Clone(version)
		d.w.latest[namespace+"/"+slug] = hash
	})
}

func (d definitions) Get(_ context.Context, namespace, hash string) (data []byte, err error) {
	err = d.w.with(func() { data = d.w.definitions[namespace+"/"+hash] })
	if err == nil && data == nil {
		err = events.ErrNotFound
	}
	return data, err
}

func (d definitions) Latest(_ context.Context, namespace, slug string) (hash string, err error) {
	err = d.w.with(func() { hash = d.w.latest[namespace+"/"+slug] })
	if err == nil && hash == "" {
		err = events.ErrNotFound
	}
	return hash, err
}

func (d definitions) Names(_ context.Context, namespace string) (names map[string]string, err error) {
	err = d.w.with(func() {
		names = make(map[string]string)
		for full, hash := range maps.All(d.w.latest) {
			if slug, ok := strings.CutPrefix(full, namespace+"/"); ok {
				names[slug] = hash
			}
		}
	})
	return names, err
}

// Forget drops every stored definition, as a lost bucket would.
func (w *World) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.definitions)
}

// Replace puts another version in the place of a stored one, as a wrong restore
// would.
func (w *World) Replace(namespace, hash string, v *handlers.Version) {
	data, err := events.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.definitions[namespace+"/"+hash] = data
}

// HasSnapshot reports whether a session has a snapshot.
func (w *World) HasSnapshot(key events.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshots[key] != nil
}

// SpoilSnapshot changes a byte of a session's snapshot.
func (w *World) SpoilSnapshot(key events.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snapshots[key][len(w.snapshots[key])/2] ^= 1
}

type snapshots struct{ w *Worker }

func (s snapshots) Get(_ context.Context, key events.Key) (data []byte, err error) {
	return data, s.w.with(func() { data = s.w.snapshots[key] })
}

func (s snapshots) Put(_ context.Context, key events.Key, data []byte) error {
	return s.w.with(func() { s.w.snapshots[key] = slices.Clone(data) })
}

func (s snapshots) Remove(_ context.Context, key events.Key) error {
	return s.w.with(func() { delete(s.w.snapshots, key) })
}

type hinter struct{ w *Worker }

func (h hinter) Publish(_ context.Context, hint events.Hint) error {
	return h.w.with(func() {
		if !h.w.Unhinted {
			h.w.work = append(h.w.work, &item{hint: hint})
		}
	})
}

type timers struct{ w *Worker }

func timerName(t handlers.Timer) string {
	return t.Namespace + "/" + t.Run + "/" + t.CallID
}

func (t timers) Arm(_ context.Context, timer handlers.Timer) error {
	return t.w.with(func() {
		if !t.w.Untimed {
			t.w.timers[timerName(timer)] = timer
		}
	})
}

func (t timers) Disarm(_ context.Context, timer handlers.Timer) error {
	return t.w.with(func() { delete(t.w.timers, timerName(timer)) })
}

type signals struct{ w *Worker }

func (s signals) Send(key events.Key) error {
	var all []*func()
	err := s.w.with(func() {
		if !s.w.Unheard {
			all = slices.Clone(s.w.listeners[key])
		}
	})
	for _, f := range all {
		(*f)()
	}
	return err
}

func (s signals) Listen(key events.Key, f func()) (stop func(), err error) {
	err = s.w.with(func() { s.w.listeners[key] = append(s.w.listeners[key], &f) })
	return func() {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		s.w.listeners[key] = slices.DeleteFunc(s.w.listeners[key], func(o *func()) bool { return o == &f })
	}, err
}

type publisher struct{ w *Worker }

func (p publisher) Publish(_ context.Context, e *events.Event, _ events.Position) error {
	return p.w.with(func() {
		if !slices.ContainsFunc(p.w.Published, func(o events.Event) bool { return o.ID == e.ID }) {
			p.w.Published = append(p.w.Published, *e)
		}
	})
}

type dead struct{ w *Worker }

func (d dead) Bury(_ context.Context, namespace, reason string, _ map[string][]string, data []byte, _ error) error {
	return d.w.with(func() { d.w.Buried = append(d.w.Buried, Letter{namespace, reason, slices.Clone(data)}) })
}

// leases know who is dead: a lease whose worker was killed has been silent for
// long enough.
type leases struct{ w *Worker }

func (l leases) Take(_ context.Context, key events.Key, lease handlers.Lease) error {
	return l.w.with(func() { l.w.leases[key] = lease })
}

func (l leases) Renew(_ context.Context, key events.Key, lease handlers.Lease) error {
	var err error
	return errors.Join(l.w.with(func() {
		if err = l.w.renewError; err != nil {
			return
		}
		if l.w.leases[key].Claim != lease.Claim {
			err = handlers.ErrLeaseLost
			return
		}
		l.w.leases[key] = lease
	}), err)
}

func (l leases) Release(_ context.Context, key events.Key, lease handlers.Lease) error {
	return l.w.with(func() {
		if l.w.leases[key].Claim == lease.Claim {
			delete(l.w.leases, key)
		}
	})
}

// Note implements handlers.Notes.
func (w *World) Note(_ context.Context, key events.Key) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[key].Note, nil
}

func (l leases) Silent(_ context.Context, key events.Key, _ string) (silent time.Duration, err error) {
	return silent, l.w.with(func() {
		if lease, held := l.w.leases[key]; !held || lease.Worker != l.w.Dispatcher.Worker {
			if silent = l.w.Silence; silent == 0 {
				silent = time.Hour
			}
		}
	})
}

// BeginLoading takes every other worker's note for that of a dead one.
func (l leases) BeginLoading(_ context.Context, key events.Key, worker string) (deaths int, err error) {
	return deaths, l.w.with(func() {
		m := l.w.loading[key]
		if m.worker != "" && m.worker != worker {
			m.deaths++
		}
		m.worker, deaths = worker, m.deaths
		l.w.loading[key] = m
	})
}

func (l leases) EndLoading(_ context.Context, key events.Key, worker string, loaded bool) error {
	return l.w.with(func() {
		m := l.w.loading[key]
		if loaded {
			m = loading{}
		} else if m.worker == worker {
			m.worker = ""
		}
		l.w.loading[key] = m
	})
}

// loading tells who loads a session, and how many died of it.
type loading struct {
	worker string
	deaths int
}

type models struct{ w *World }

func (m models) Model(name string) (runtime.Model, runtime.ModelLimits, error) {
	model := m.w.Model
	if named := m.w.Named[name]; named != nil {
		model = named
	}
	return model, runtime.ModelLimits{ContextTokens: 100_000, Files: runtime.FileLimits{Types: []string{"image/*", "text/*"}}}, nil
}

// Services is the world of capability services: it writes down every request
// before it answers.
type Services struct {
	// Answer, when set, answers requests. Otherwise each is answered with
	// its number.
	Answer func(subject string, header map[string]string, data []byte) ([]byte, error)

	// Reached, when set, is called for the nth request, counted from 1, when
	// it is written down and not answered yet, with the worker that made it.
	Reached func(n int, by *Worker)

	mu     sync.Mutex
	Ledger []ServiceCall
}

// ServiceCall is one request that reached a service.
type ServiceCall struct {
	Subject string
	Key     string // idempotency key
	Header  map[string]string
	Data    json.RawMessage
}

// Request implements handlers.Services.
func (s *Services) Request(_ context.Context, subject string, header map[string]string, data []byte) ([]byte, error) {
	return s.request(subject, header, data, nil)
}

func (s *Services) request(subject string, header map[string]string, data []byte, by *Worker) ([]byte, error) {
	s.mu.Lock()
	s.Ledger = append(s.Ledger, ServiceCall{subject, header[handlers.HeaderKey], header, slices.Clone(data)})
	n := len(s.Ledger)
	s.mu.Unlock()
	if s.Reached != nil {
		s.Reached(n, by)
	}
	if s.Answer != nil {
		return s.Answer(subject, header, data)
	}
	return fmt.Appendf(nil, `{"n":%d}`, n), nil
}

type mortalServices struct {
	*Services
	worker *Worker
}

func (m mortalServices) Request(ctx context.Context, subject string, header map[string]string, data []byte) ([]byte, error) {
	if err := context.Cause(m.worker.ctx); err != nil {
		return nil, err
	}
	answer, err := m.Services.request(subject, header, data, m.worker)
	if cause := context.Cause(m.worker.ctx); cause != nil {
		return nil, cause
	}
	return answer, err
}
