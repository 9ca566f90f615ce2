package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// WorkerOptions configure a [Worker]. Nil and the zero value mean defaults.
type WorkerOptions struct {
	// Queues are the queues to work for. Their jobs are ordered together, by
	// priority and due time. If empty, "default".
	Queues []string
	// Concurrency is how many handlers run at a time, at most 10,000. Memory holds
	// the args of their jobs and up to about 32 MiB of args of the next jobs. If
	// zero, 16.
	Concurrency int
	// LeaseDuration is how long a worker may go without a heartbeat before others
	// may take its jobs, at least 1 s. Heartbeats are sent every third of it. If
	// zero, 30 s.
	LeaseDuration time.Duration
	// Timeout bounds each attempt if neither the job nor its handler sets a
	// timeout. If zero, none.
	Timeout time.Duration
	// Grace is how long handlers may go on undisturbed when the worker stops. It
	// must be shorter than the time after which the process is killed: Docker
	// waits 10 s, Kubernetes 30 s, systemd 90 s. If zero, 8 s; if negative, none.
	Grace time.Duration
	// StuckAfter is how long a handler may go on after its context has ended
	// before it is reported as stuck. If zero, 5 s.
	StuckAfter time.Duration
	// MaxCrashes is how many processes in a row a job may bring down before it
	// is dead. If zero, 3.
	MaxCrashes int
	// MaxSnoozes is how often a job may [Snooze]. If zero, 10,000.
	MaxSnoozes int
	// MaxRetryAfter is the longest delay that [RetryAfter], or an error with a
	// Retry-After, can ask for. If zero, 24 h.
	MaxRetryAfter time.Duration
	// Logger receives what no caller can be told: recovered jobs, stuck handlers,
	// failures of the store. If nil, that of the queue.
	Logger *slog.Logger
}

const (
	defaultConcurrency   = 16
	mostConcurrency      = 10_000
	defaultLease         = 30 * time.Second
	minLease             = time.Second
	defaultGrace         = 8 * time.Second
	defaultStuckAfter    = 5 * time.Second
	defaultMaxCrashes    = 3
	defaultMaxSnoozes    = 10_000
	defaultMaxRetryAfter = 24 * time.Hour
)

// HandlerOptions are the settings of one kind of job.
type HandlerOptions struct {
	// Policy is the delivery policy of the kind. Its throttle section limits the
	// start rate of jobs of the kind, in all queues together; see [QueueOptions].
	// If nil, or for a section that is absent, that of the queue. A queue's policy
	// can disable it.
	Policy policy.Delivery
	// Rules decide which errors of the handler are retried. An error of class
	// [policy.Permanent] makes the job dead at once. After one of class
	// [policy.Throttled] the policy for throttling holds, if the document has one.
	// One of class [policy.Unavailable] is as the verdict [Unavailable].
	// A verdict of this package goes before the rules. If nil, those of the queue.
	Rules policy.Rules
	// Budget is the retry budget of the kind. A retry takes tokens when it is about
	// to start. If there are too few, the job goes back with nothing used up. It
	// comes again when the refill by time has brought enough, or up to a minute
	// later if many wait. Successes pay in.
	//
	// Workers of a queue that set the same options for a kind share one budget.
	// TimeoutCost has no effect, and RetriesPerSecond must not be negative. See
	// [Queue.Budgets]. If nil, that of the queue.
	Budget *policy.BudgetOptions
	// Timeout bounds each attempt of a job without a timeout of its own. If zero,
	// that of the worker.
	Timeout time.Duration
	// MaxCrashes is how many processes in a row a job of the kind may bring down
	// before it is dead. If zero, that of the worker.
	MaxCrashes int
	// Concurrency is how many jobs of the kind run at a time in the worker, in all
	// queues together, at most 10,000. That of a queue holds as well, see
	// [QueueOptions]. With it long jobs leave runners to short ones. If zero, or
	// above that of the worker, only that of the worker counts.
	Concurrency int
	// Gate says whether jobs of the kind may start, see [QueueOptions]. If nil, none.
	Gate Gate
}

// Worker runs jobs in this process: it takes due jobs from its queues and calls
// their handlers. It is safe for concurrent use.
type Worker struct {
	queue *Queue
	opts  WorkerOptions

	mu       sync.Mutex
	handlers map[string]engine.Handler
	engine   *engine.Engine // nil until Run or Shutdown is called
	err      error          // faults of the options
}

// NewWorker makes a worker on q. It starts nothing. Run returns the faults of the
// options.
func NewWorker(q *Queue, o *WorkerOptions) *Worker {
	if q == nil {
		panic("errand: NewWorker: nil queue")
	}
	w := &Worker{queue: q, opts: *cmp.Or(o, &WorkerOptions{}), handlers: map[string]engine.Handler{}}
	w.opts.Queues = slices.Clone(w.opts.Queues)
	w.err = w.opts.validate()
	return w
}

// Handle registers fn as the handler of the jobs whose args are of type A; the
// kind is that of A's zero value, or of a new value if A is a pointer. Jobs of
// kinds without a handler are left alone for others.
//
// If fn returns nil, the job is done. If it returns an error, the job is retried
// by its policy. [Permanent], [RetryAfter], [Unavailable], [Snooze] and [Cancel] are
// more exact verdicts, and may be wrapped. A panic and [runtime.Goexit] count as errors. ctx
// ends when the attempt must end; [context.Cause] returns why. A job may be run
// more than once: see the package documentation.
//
// Handle panics on misuse: a nil fn, a malformed kind, a kind that has a handler
// already or belongs to another type, a type A of whose fields JSON sees none, bad
// options, or a call after Run.
func Handle[A Args](w *Worker, fn func(ctx context.Context, job *Job[A]) error, o ...HandlerOptions) {
	kind := w.kindOf(reflect.TypeFor[A]())
	if fn == nil {
		panic(fmt.Sprintf("errand: Handle %q: nil handler", kind))
	}
	w.register(kind, o, func(ctx context.Context, l *storage.Leased) error {
		job, err := decodeJob[A](l)
		if err != nil {
			return &engine.DecodeError{Err: err}
		}
		job.Phase = w.engine.Phase(l)
		return fn(ctx, job)
	})
}

// kindOf returns the kind of a type of args, which must be fit for a handler.
func (w *Worker) kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Interface {
		panic(fmt.Sprintf("errand: Handle: %v is an interface: the type of the args must be known", t))
	}
	x := w.queue.types.of(t)
	switch {
	case checkName("kind", x.kind) != nil: // register says so
	case x.taken != nil:
		panic(fmt.Sprintf("errand: Handle %q: the kind must be of one type: %v has it, and %v", x.kind, x.taken, deref(t)))
	case x.hidden && !implements(reflect.PointerTo(deref(t)), slices.Concat(marshalers, unmarshalers)):
		panic(fmt.Sprintf("errand: Handle %q: %v %s", x.kind, t, hiddenLimit))
	}
	return x.kind
}

func (w *Worker) register(kind string, o []HandlerOptions, run func(context.Context, *storage.Leased) error) {
	if err := checkName("kind", kind); err != nil {
		panic(err.Error())
	}
	h := engine.Handler{Run: run}
	switch len(o) {
	case 0:
	case 1:
		h.Timeout = o[0].Timeout
		if h.Timeout < 0 {
			panic(fmt.Sprintf("errand: Handle %q: timeout %v must not be negative", kind, h.Timeout))
		}
		h.MaxCrashes, h.Concurrency, h.Gate = o[0].MaxCrashes, o[0].Concurrency, o[0].Gate
		if h.MaxCrashes < 0 || h.MaxCrashes > math.MaxInt32 {
			panic(fmt.Sprintf("errand: Handle %q: max_crashes %d must be between 0 and %d", kind, h.MaxCrashes, math.MaxInt32))
		}
		var f faults
		h.Policy = f.override("policy", o[0].Policy)
		f.rules("rules", o[0].Rules)
		f.budget("budget", o[0].Budget)
		f.between("concurrency", h.Concurrency, mostConcurrency)
		if err := f.err(); err != nil {
			panic(fmt.Sprintf("errand: Handle %q: %v", kind, err))
		}
		h.Rules = slices.Clone(o[0].Rules)
		h.Budget = w.queue.limits.budget(owner{kind: kind}, o[0].Budget)
		h.Throttle = w.queue.limits.throttle(owner{kind: kind}, h.Policy.Throttle)
		logDoubts(w.logger(), "kind "+kind, o[0].Policy)
	default:
		panic(fmt.Sprintf("errand: Handle %q: at most one HandlerOptions, not %d", kind, len(o)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine != nil {
		panic(fmt.Sprintf("errand: Handle %q: the worker has been run", kind))
	}
	if _, ok := w.handlers[kind]; ok {
		panic(fmt.Sprintf("errand: Handle %q: the kind has a handler already", kind))
	}
	w.handlers[kind] = h
}

func decodeJob[A Args](l *storage.Leased) (*Job[A], error) {
	job := &Job[A]{
		ID: l.ID, Queue: l.Queue, Kind: l.Kind, Priority: l.Priority,
		Attempt: l.Attempt, Retry: l.Retry, Crashes: l.Crashes, Snoozes: l.Snoozes,
		CreatedAt: l.CreatedAt, DueAt: l.DueAt,
	}
	if err := json.Unmarshal(l.Args, &job.Args); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	if l.Headers != nil {
		if err := json.Unmarshal(l.Headers, &job.Headers); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
		}
	}
	return job, nil
}

// Run works until ctx ends or [Worker.Shutdown] is called. It then stops in this
// order. It leases no more jobs, and returns those that were not started. Handlers
// have Grace to end by themselves. Then their contexts are cancelled with cause
// [ErrShutdown]; an interrupted job is ready again, with nothing used up. Outcomes
// are written. Run returns when all that it started has ended, unless a handler is
// stuck.
//
// The contexts of handlers have the values of ctx, but do not end with it.
//
// Run returns nil after such a stop. It returns an error that wraps [ErrStuck] if
// a handler is still running StuckAfter after its context was cancelled; the job
// stays leased until the handler ends, also after Run has returned. Run returns a
// [FieldError] for each fault of the options, and the queue's error if the queue
// can no longer be used. A worker runs once.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	return w.get().Run(ctx)
}

// Shutdown makes Run stop in the order described there, waits until Run has
// returned, and returns the same result. If ctx ends first the grace is over at
// once, and Run returns within about StuckAfter unless the disk is slow. If Run was
// not called, a later Run returns at once.
//
// A handler that wants its own worker to stop must call Shutdown in a goroutine.
// Otherwise both wait for each other until the handler counts as stuck.
func (w *Worker) Shutdown(ctx context.Context) error { return w.get().Shutdown(ctx) }

// get returns the engine. After the first call no handler can be registered.
func (w *Worker) get() *engine.Engine {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine == nil {
		w.engine = engine.New(w.config())
	}
	return w.engine
}

func (w *Worker) logger() *slog.Logger { return cmp.Or(w.opts.Logger, w.queue.opts.Logger) }

func (w *Worker) config() engine.Config {
	o, q := w.opts, w.queue.opts
	c := engine.Config{
		Store:         w.queue.store,
		Queues:        o.Queues,
		Handlers:      w.handlers,
		Concurrency:   cmp.Or(o.Concurrency, defaultConcurrency),
		LeaseDuration: cmp.Or(o.LeaseDuration, defaultLease),
		Timeout:       o.Timeout,
		Grace:         max(cmp.Or(o.Grace, defaultGrace), 0),
		StuckAfter:    cmp.Or(o.StuckAfter, defaultStuckAfter),
		MaxCrashes:    cmp.Or(o.MaxCrashes, defaultMaxCrashes),
		MaxSnoozes:    cmp.Or(o.MaxSnoozes, defaultMaxSnoozes),
		MaxRetryAfter: cmp.Or(o.MaxRetryAfter, defaultMaxRetryAfter),
		Retention:     storage.Retention{Default: q.Retention},
		Policy:        q.Policy.Delivery(),
		Settings:      map[string]engine.QueueSettings{},
		Lanes:         &w.queue.lanes,
		Clock:         w.queue.clock,
		WaitForClock:  q.WaitForClock,
		Logger:        w.logger(),
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{defaultQueue}
	}
	for name := range q.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	for _, name := range c.Queues {
		c.Settings[name] = w.queue.settings(name)
	}
	return c
}
