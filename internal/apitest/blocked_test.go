package apitest

import (
	"context"
	"errors"
	"go/ast"
	"go/token"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/gate"
	"github.com/errandq/errand/internal/house"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

// The tests of this file block each call into the application for three leases, one by
// one. Meanwhile a job that runs keeps its lease, though another process would take it,
// and the jobs of other lanes run.

// blockedLease is the lease of the workers.
const blockedLease = 10 * time.Second

// blocker blocks its calls while it is on.
type blocker struct {
	on    atomic.Pointer[chan struct{}]
	first sync.Once
	begun chan struct{} // closed when the first call is blocked
}

func newBlocker() *blocker { return &blocker{begun: make(chan struct{})} }

func (b *blocker) call() {
	if until := b.on.Load(); until != nil {
		b.first.Do(func() { close(b.begun) })
		<-*until
	}
}

func (b *blocker) begin() { b.on.Store(new(make(chan struct{}))) }
func (b *blocker) end()   { close(*b.on.Swap(nil)) }

// Types of values whose methods are blocked.
type (
	blockedPolicy   struct{ *blocker }
	blockedGate     struct{ *blocker }
	blockedHandler  struct{ *blocker } // of a logger
	blockedError    struct{ *blocker }
	blockedArgs     struct{ *blocker }
	blockedUnwrap   struct{ blockedError }
	blockedTripper  struct{ *blocker }
	blockedEnabled  struct{ blockedHandler }
	blockedDecoding struct{ N int }
)

func (p blockedPolicy) Delivery() policy.Topic { p.call(); return policy.Topic{} }
func (p blockedPolicy) Validate() error        { p.call(); return nil }

func (g blockedGate) State() (open bool, reason string, changed <-chan struct{}) {
	g.call()
	return true, "", nil
}

func (h blockedHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockedHandler) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}
func (h blockedHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h blockedHandler) WithGroup(string) slog.Handler            { return h }
func (h blockedEnabled) Enabled(context.Context, slog.Level) bool { h.call(); return false }

func (e blockedError) Error() string { e.call(); return "blocked" }

func (e blockedUnwrap) Error() string { return "blocked" }
func (e blockedUnwrap) Unwrap() error { e.call(); return errors.ErrUnsupported }
func (e blockedUnwrap) Is(error) bool { e.call(); return false }
func (e blockedUnwrap) As(any) bool   { e.call(); return false }

func (blockedArgs) Kind() string                   { return "blocked" }
func (a blockedArgs) MarshalJSON() ([]byte, error) { a.call(); return []byte("{}"), nil }
func (*blockedArgs) UnmarshalJSON([]byte) error    { return nil }

func (blockedDecoding) Kind() string { return "decoding" }

// decodes is called by blockedDecoding, which the package json makes.
var decodes atomic.Pointer[blocker]

func (*blockedDecoding) UnmarshalJSON([]byte) error {
	if b := decodes.Load(); b != nil {
		b.call()
	}
	return nil
}

func (t blockedTripper) RoundTrip(*http.Request) (*http.Response, error) {
	t.call()
	return nil, errors.New("no network")
}

// Kinds of the jobs that are watched.
type (
	longJob  struct{} // runs until the test ends
	otherJob struct{} // of another lane
)

func (longJob) Kind() string  { return "long" }
func (otherJob) Kind() string { return "other" }

// blocking is a test of one call.
type blocking struct {
	*testing.T
	*blocker
	open    func(o *errand.Options) (*errand.Queue, error) // on the same database
	options errand.Options
	worker  errand.WorkerOptions
	handle  func(w *errand.Worker, q *errand.Queue) // registers what is blocked; may be nil
	cause   func(q *errand.Queue) error             // has the call made
}

// kind has a job of a kind of its own enqueued, whose handler is fn, and may be nil.
func (b *blocking) kind(o errand.HandlerOptions, fn func() error) {
	b.handle = func(w *errand.Worker, _ *errand.Queue) {
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			if fn == nil {
				return nil
			}
			return fn()
		}, o)
	}
	b.cause = func(q *errand.Queue) error { return enqueueInto(q, note{}, nil) }
}

func enqueueInto(q *errand.Queue, args errand.Args, o *errand.JobOptions) error {
	_, err := q.Enqueue(context.Background(), args, o)
	return err
}

// runs counts the runs of the long job.
type runs struct {
	mu        sync.Mutex
	now, most int
	cut       bool
}

func (r *runs) handler(until <-chan struct{}) func(context.Context, *errand.Job[longJob]) error {
	return func(ctx context.Context, _ *errand.Job[longJob]) error {
		r.mu.Lock()
		r.now++
		r.most = max(r.most, r.now)
		r.mu.Unlock()
		<-until // whatever ctx says
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now--
		r.cut = r.cut || ctx.Err() != nil
		return nil
	}
}

// test blocks the call for three leases.
func (b *blocking) test() {
	q, err := b.open(&b.options)
	if err != nil {
		b.Fatal(err)
	}
	other, err := b.open(&errand.Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	var long runs
	var done atomic.Int64
	until := make(chan struct{})
	b.worker.LeaseDuration = blockedLease
	if b.worker.Queues == nil {
		b.worker.Queues = []string{"*"}
	}
	w := errand.NewWorker(q, &b.worker)
	errand.Handle(w, long.handler(until))
	errand.Handle(w, func(context.Context, *errand.Job[otherJob]) error {
		done.Add(1)
		return nil
	})
	if b.handle != nil {
		b.handle(w, q)
	}
	stop := run(b.T, w)
	id := enqueue(b.T, other, longJob{}, nil)
	synctest.Wait()
	w2 := errand.NewWorker(other, &errand.WorkerOptions{LeaseDuration: blockedLease})
	errand.Handle(w2, long.handler(until))
	stop2 := run(b.T, w2)
	time.Sleep(blockedLease)

	b.begin()
	go func() {
		if err := b.cause(q); err != nil {
			b.Error(err)
		}
	}()
	const each = time.Second
	for i := range int64(3 * blockedLease / each) {
		enqueue(b.T, other, otherJob{}, nil)
		time.Sleep(each)
		synctest.Wait()
		if n := done.Load(); n != i+1 {
			b.Errorf("after %v %d jobs of another lane have run, want %d", time.Duration(i+1)*each, n, i+1)
			break
		}
	}
	select {
	case <-b.begun:
	default:
		b.Error("nothing was blocked")
	}
	b.end()
	time.Sleep(blockedLease)
	close(until)
	synctest.Wait()
	if j := lookUp(b.T, other, id); j.State != errand.Done || j.Attempt != 1 || long.most != 1 || long.cut {
		b.Errorf("the job that ran meanwhile is %s after attempt %d, ran %d times at a time, its context has ended: %v", j.State, j.Attempt, long.most, long.cut)
	}
	if err := errors.Join(stop(), stop2(), q.Close(), other.Close()); err != nil {
		b.Error(err)
	}
}

func testBlocked(t *testing.T, prepare func(b *blocking)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))) // else the clock cannot be right
		db := storagetest.NewMemory()
		b := &blocking{T: t, blocker: newBlocker(), options: errand.Options{Logger: quiet}}
		b.open = func(o *errand.Options) (*errand.Queue, error) { return errand.New(context.Background(), db.Open(), o) }
		prepare(b)
		b.test()
	})
}

// hooks has deliveries to an endpoint made with some options.
func (b *blocking) hooks(o webhook.Options) {
	o.Logger = quiet
	if o.Transport == nil && o.Proxy == nil {
		o.Transport = blockedTripper{newBlocker()} // which is never on
	}
	var hooks *webhook.Webhooks
	b.handle = func(w *errand.Worker, q *errand.Queue) {
		var err error
		if hooks, err = webhook.New(q, &o); err != nil {
			b.Fatal(err)
		}
		hooks.Handle(w)
		if _, _, err := hooks.Create(b.Context(), webhook.Endpoint{ID: "a", URL: "https://a.example/in"}, webhook.Secret{}); err != nil {
			b.Fatal(err)
		}
	}
	b.cause = func(*errand.Queue) error {
		_, err := hooks.Send(context.Background(), webhook.Message{Body: []byte("{}")}, "a")
		return err
	}
}

// gated has a job behind a gate.
func (b *blocking) gated(g errand.Gate, err error) {
	if err != nil {
		b.Fatal(err)
	}
	b.kind(errand.HandlerOptions{Gate: g}, nil)
}

// blockedFields are what the fields of options are that take something of the
// application's which can be called.
var blockedFields = map[string]func(b *blocking){
	"errand.Options.Clock": func(b *blocking) {
		b.options.Clock = func() time.Time { b.call(); return time.Now() }
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, note{}, nil) }
	},
	"errand.Options.Policy": func(b *blocking) {
		b.cause = func(*errand.Queue) error {
			q, err := b.open(&errand.Options{Logger: quiet, Policy: blockedPolicy{b.blocker}})
			if err == nil {
				err = q.Close()
			}
			return err
		}
	},
	"errand.Options.Middleware": func(b *blocking) {
		b.options.Middleware = []errand.Middleware{b.middleware}
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, note{}, nil) }
	},
	"errand.QueueOptions.Policy": func(b *blocking) {
		b.cause = func(*errand.Queue) error {
			q, err := b.open(&errand.Options{
				Logger: quiet, Queues: map[string]errand.QueueOptions{"q": {Policy: blockedPolicy{b.blocker}}},
			})
			if err == nil {
				err = q.Close()
			}
			return err
		}
	},
	"errand.QueueOptions.Rules": func(b *blocking) {
		b.options.Queues = map[string]errand.QueueOptions{"default": {Rules: b.rules()}}
		b.kind(errand.HandlerOptions{}, func() error { return errors.New("no") })
	},
	"errand.QueueOptions.Gate": func(b *blocking) {
		b.options.Queues = map[string]errand.QueueOptions{"gated": {Gate: blockedGate{b.blocker}}}
		b.kind(errand.HandlerOptions{}, nil)
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, note{}, &errand.JobOptions{Queue: "gated"}) }
	},
	"errand.WorkerOptions.Middleware": func(b *blocking) {
		b.worker.Middleware = []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
			return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
				if job.Kind == "note" {
					b.call()
				}
				return next(ctx, job)
			}
		}}
		b.kind(errand.HandlerOptions{}, nil)
	},
	"errand.HandlerOptions.Policy": func(b *blocking) {
		b.cause = func(q *errand.Queue) error {
			errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
				errand.HandlerOptions{Policy: blockedPolicy{b.blocker}})
			return nil
		}
	},
	"errand.HandlerOptions.Rules": func(b *blocking) {
		b.kind(errand.HandlerOptions{Rules: b.rules()}, func() error { return errors.New("no") })
	},
	"errand.HandlerOptions.Gate":       func(b *blocking) { b.gated(blockedGate{b.blocker}, nil) },
	"errand.HandlerOptions.Middleware": func(b *blocking) { b.kind(errand.HandlerOptions{Middleware: []errand.Middleware{b.middleware}}, nil) },
	"errand.HandlerOptions.OnUnauthorized": func(b *blocking) {
		b.kind(errand.HandlerOptions{OnUnauthorized: func(context.Context) error { b.call(); return blockedError{b.blocker} }},
			func() error { return policy.HTTPError(401, nil, time.Now()) })
	},
	"errand.JobOptions.Policy": func(b *blocking) {
		b.cause = func(q *errand.Queue) error {
			return enqueueInto(q, note{}, &errand.JobOptions{Policy: blockedPolicy{b.blocker}})
		}
	},
	"errand.JobChange.Policy": func(b *blocking) {
		b.cause = func(q *errand.Queue) error {
			_, err := q.DeadLetters().Redrive(context.Background(), errand.JobFilter{All: true}, &errand.RedriveOptions{Change: &errand.JobChange{Policy: blockedPolicy{b.blocker}}})
			return err
		}
	},
	"errand.OnConflict.Merge": func(b *blocking) {
		b.cause = func(q *errand.Queue) error {
			o := &errand.JobOptions{Delay: time.Hour, Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{
				Mode: errand.Replace, Merge: func(_, args errand.Args) (errand.Args, error) { b.call(); return args, nil },
			}}}
			return errors.Join(enqueueInto(q, note{}, o), enqueueInto(q, note{}, o))
		}
	},
	"webhook.Options.Policy": func(b *blocking) {
		b.cause = func(q *errand.Queue) error {
			_, err := webhook.New(q, &webhook.Options{Policy: blockedPolicy{b.blocker}})
			return err
		}
	},
	"webhook.Options.Proxy": func(b *blocking) {
		b.hooks(webhook.Options{Proxy: func(*http.Request) (*url.URL, error) { b.call(); return nil, errors.New("no proxy") }})
	},
	"webhook.Options.Transport": func(b *blocking) { b.hooks(webhook.Options{Transport: blockedTripper{b.blocker}}) },
	"webhook.Options.Secrets": func(b *blocking) {
		b.hooks(webhook.Options{Secrets: func(context.Context, string) ([]webhook.Secret, error) { b.call(); return nil, errors.New("none") }})
	},
	"webhook.Options.Online": func(b *blocking) { b.hooks(webhook.Options{Online: blockedGate{b.blocker}}) },
	"topic.Options.ARN": func(b *blocking) {
		b.hooks(webhook.Options{})
		hooks := b.handle
		var topics *topic.Topics
		b.handle = func(w *errand.Worker, q *errand.Queue) {
			hooks(w, q)
			all, err := webhook.New(q, &webhook.Options{Transport: blockedTripper{newBlocker()}, Logger: quiet})
			if err != nil {
				b.Fatal(err)
			}
			o := &topic.Options{Logger: quiet, ConfirmURL: "https://here.example/sns", ARN: func(of, name string) string { b.call(); return of + name }}
			if topics, err = topic.New(q, all, o); err != nil {
				b.Fatal(err)
			}
			topics.Handle(w)
			if _, err := topics.Create(b.Context(), topic.Topic{Name: "t"}); err != nil {
				b.Fatal(err)
			}
		}
		b.cause = func(*errand.Queue) error {
			_, err := topics.Subscribe(context.Background(), topic.Subscription{Topic: "t", Endpoint: "a", SNS: true})
			return err
		}
	},
	"gate.HTTPOptions.Proxy": func(b *blocking) {
		b.gated(gate.HTTP("https://a.example", &gate.HTTPOptions{Proxy: func(*http.Request) (*url.URL, error) { b.call(); return nil, errors.New("no proxy") }}))
	},
	"gate.HTTPOptions.Transport": func(b *blocking) {
		b.gated(gate.HTTP("https://a.example", &gate.HTTPOptions{Transport: blockedTripper{b.blocker}}))
	},
	"gate.DialOptions.Dial": func(b *blocking) {
		b.gated(gate.Dial("a.example:80", &gate.DialOptions{Dial: func(context.Context, string, string) (net.Conn, error) {
			b.call()
			return nil, errors.New("no network")
		}}))
	},
}

func (b *blocking) middleware(next errand.HandlerFunc) errand.HandlerFunc {
	return func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
		b.call()
		return next(ctx, job)
	}
}

func (b *blocking) rules() policy.Rules {
	return policy.Rules{func(error) (policy.Class, bool) { b.call(); return policy.Permanent, true }}
}

//errand:shows calls into the application that block | | each function and interface in options, loggers, and the methods of args and errors: while one is blocked for three leases, a job that runs keeps its lease, and the jobs of other lanes run
func TestBlocked_fields(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(blockedFields)) {
		t.Run(name, func(t *testing.T) { testBlocked(t, blockedFields[name]) })
	}
}

// A clock that answers slowly is asked for each of many jobs.
func TestBlocked_slowClock(t *testing.T) {
	testBlocked(t, func(b *blocking) {
		b.options.Clock = func() time.Time {
			if b.on.Load() != nil {
				b.first.Do(func() { close(b.begun) })
				time.Sleep(200 * time.Millisecond)
			}
			return time.Now()
		}
		b.worker.Concurrency = 200
		b.kind(errand.HandlerOptions{}, func() error { return errors.New("no") })
		b.cause = func(q *errand.Queue) error {
			many := make([]errand.NewJob, 500)
			for i := range many {
				many[i].Args = note{N: i}
			}
			_, err := q.EnqueueMany(context.Background(), many)
			return err
		}
	})
}

// Run and Close wait for a logger that stalls for a second together.
func TestBlocked_runAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker()
		q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Logger: slog.New(blockedHandler{b})})
		if err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return errand.Permanent(errors.New("no")) })
		stop := run(t, w)
		b.begin()
		enqueue(t, q, note{}, nil)
		<-b.begun
		began := time.Now()
		if err := errors.Join(stop(), q.Close()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("they took %v, want a second at most", d)
		}
		b.end()
	})
}

// What can be called of options, however new they are, is in the table of the test above.
//
//errand:shows calls into the application that block
func TestBlocked_allFields(t *testing.T) {
	known := map[reflect.Type]bool{}
	fields := map[string]bool{}
	var visit func(x reflect.Type, at string)
	visit = func(x reflect.Type, at string) {
		switch x.Kind() {
		case reflect.Func, reflect.Interface:
			fields[at] = true
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
			visit(x.Elem(), at)
		case reflect.Struct:
			if known[x] || !strings.HasPrefix(x.PkgPath(), "github.com/errandq/errand") {
				return
			}
			known[x] = true
			for f := range x.NumField() {
				if field := x.Field(f); field.IsExported() {
					visit(field.Type, x.String()+"."+field.Name)
				}
			}
		}
	}
	for _, o := range []any{
		errand.Options{}, errand.WorkerOptions{}, errand.HandlerOptions{}, errand.JobOptions{}, errand.BatchOptions{}, errand.ListOptions{},
		errand.HealthOptions{}, errand.GroupOptions{}, errand.CauseOptions{}, errand.RedriveOptions{}, errand.RunNowOptions{}, errand.HoldOptions{},
		errand.Schedule{}, sqlite.Options{}, webhook.Options{}, topic.Options{}, gate.HTTPOptions{}, gate.DialOptions{}, gate.CheckOptions{}, policy.BudgetOptions{},
	} {
		visit(reflect.TypeOf(o), "")
	}
	// An alias of another package's options has no fields of its own.
	for _, dir := range []string{".", "storage/sqlite", "webhook", "topic", "gate", "policy"} {
		for file, tree := range must(house.ParseDir(token.NewFileSet(), filepath.Join(root, dir))) {
			ast.Inspect(tree, func(n ast.Node) bool {
				s, ok := n.(*ast.TypeSpec)
				if !ok || strings.HasSuffix(file, "_test.go") || s.Assign.IsValid() || !s.Name.IsExported() || !strings.HasSuffix(s.Name.Name, "Options") {
					return true
				}
				name := map[string]string{".": "errand"}[dir]
				if name == "" {
					name = filepath.Base(dir)
				}
				if !slices.ContainsFunc(slices.Collect(maps.Keys(known)), func(x reflect.Type) bool { return x.String() == name+"."+s.Name.Name }) {
					t.Errorf("%s.%s is not looked at", name, s.Name.Name)
				}
				return true
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if blockedFields[name] == nil && name != "errand.Schedule.Args" && name != "errand.JobChange.Args" { // as those of jobs
			t.Errorf("nobody knows what happens while %s blocks", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(blockedFields)) {
		if !fields[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// blockedCheck is a gate of the application that embeds one of package gate.
type blockedCheck struct {
	*gate.Check
	*blocker
}

func (g blockedCheck) State() (open bool, reason string, changed <-chan struct{}) {
	g.call()
	return g.Check.State()
}

// embedding returns a blockedCheck.
func (b *blocking) embedding() errand.Gate {
	check, err := gate.NewCheck("it", func(context.Context) error { return nil }, nil)
	if err != nil {
		b.Fatal(err)
	}
	return blockedCheck{check, b.blocker}
}

// failing has the handler of a job return an error.
func (b *blocking) failing(err error) {
	b.kind(errand.HandlerOptions{}, func() error { return err })
}

// blockedMethods are what is no field of such a kind: methods of loggers, args and errors.
var blockedMethods = map[string]func(b *blocking){
	"logger of the queue": func(b *blocking) {
		b.options.Logger = slog.New(blockedHandler{b.blocker})
		b.failing(errors.New("no"))
	},
	"logger of the worker": func(b *blocking) {
		b.worker.Logger = slog.New(blockedHandler{b.blocker})
		b.failing(errors.New("no"))
	},
	"logger's Enabled": func(b *blocking) {
		b.options.Logger = slog.New(blockedEnabled{blockedHandler{b.blocker}})
		b.failing(errors.New("no"))
	},
	"MarshalJSON": func(b *blocking) {
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, blockedArgs{b.blocker}, nil) }
	},
	"UnmarshalJSON": func(b *blocking) {
		decodes.Store(b.blocker)
		b.handle = func(w *errand.Worker, _ *errand.Queue) {
			errand.Handle(w, func(context.Context, *errand.Job[blockedDecoding]) error { return nil })
		}
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, blockedDecoding{1}, nil) }
	},
	"Error":              func(b *blocking) { b.failing(blockedError{b.blocker}) },
	"Error of a verdict": func(b *blocking) { b.failing(errand.Permanent(blockedError{b.blocker})) },
	"Unwrap, Is, As":     func(b *blocking) { b.failing(blockedUnwrap{blockedError{b.blocker}}) },
	"Error of a panic": func(b *blocking) {
		b.kind(errand.HandlerOptions{}, func() error { panic(blockedError{b.blocker}) })
	},
	"Error in a batch": func(b *blocking) {
		b.handle = func(w *errand.Worker, _ *errand.Queue) {
			errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[note]) error { return blockedError{b.blocker} }, errand.BatchOptions{Max: 10})
		}
		b.cause = func(q *errand.Queue) error { return enqueueInto(q, note{}, nil) }
	},
	"State of a gate that embeds a check":        func(b *blocking) { b.gated(b.embedding(), nil) },
	"State of a part of All that embeds a check": func(b *blocking) { b.gated(gate.All(b.embedding())) },
	"State of a gate in Not that embeds a check": func(b *blocking) { b.gated(gate.Not(b.embedding(), "it is open")) },
	"Error of a check": func(b *blocking) {
		b.gated(gate.NewCheck("it", func(context.Context) error { return blockedError{b.blocker} }, nil))
	},
}

//errand:shows calls into the application that block
func TestBlocked_methods(t *testing.T) {
	for name, prepare := range blockedMethods {
		t.Run(name, func(t *testing.T) { testBlocked(t, prepare) })
	}
}
