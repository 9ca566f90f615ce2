package errand

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/policy"
)

// WorkerOptions configure a [Worker]. Nil and the zero value mean defaults.
type WorkerOptions struct {
	// Queues are the queues to work for. Their jobs are ordered together, by priority and due
	// time. A name that ends in "*" is a prefix: "webhook/*" stands for all queues whose
	// names begin with "webhook/", also those that come to be later, and "*" for all queues.
	// Queues without ready jobs cost nothing. If several prefixes fit a queue, the longest
	// counts.
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
	// Retry-After, can ask for. Once probes hang in half of the runners, the waits between
	// probes of a held lane grow up to it too, see docs/outages.md. If zero, 24 h.
	MaxRetryAfter time.Duration
	// Middleware wraps all handlers of the worker, outside of the middleware of a handler. If
	// nil, none.
	Middleware []Middleware
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
	defaultMaxDeaths     = 20
)

// HandlerOptions are the settings of one kind of job, or with [HandleQueue] of one queue.
type HandlerOptions struct {
	// Policy is the delivery policy of the kind. Its throttle section limits the
	// start rate of jobs of the kind, in all queues together; see [QueueOptions].
	// If nil, or for a section that is absent, that of the queue. A queue's policy
	// can disable it.
	Policy policy.Delivery
	// Rules decide which errors of the handler are retried. An error of class
	// [policy.Permanent] makes the job dead at once. After an error of class
	// [policy.Throttled] the policy for throttling holds, if the document has one. An error
	// of class [policy.Unavailable] is as the verdict [Unavailable]. A verdict of this
	// package goes before the rules. If nil, those of the queue.
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
	// before it is dead. With [math.MaxInt32] no crash is counted, as the attempt was interrupted, and
	// no time of the job ends it: for a handler that passes jobs on. If zero, that of the worker.
	MaxCrashes int
	// Concurrency is how many jobs of the kind run at a time in the worker, in all queues
	// together, at most 10,000. The Concurrency of a queue holds as well, see [QueueOptions].
	// A low Concurrency of a kind of long jobs leaves runners to short ones. If zero, only
	// the Concurrency of the worker counts. A higher one than that of the worker matters only
	// with a CountsFor.
	Concurrency int
	// CountsFor is how long an attempt of the kind counts for the Concurrency of the
	// worker, for handlers that need little of this machine while they wait for another
	// one. An attempt that runs for longer leaves its place to another job, of any kind.
	// Up to 1,000 attempts run besides those that count. The Concurrency of the kind and of
	// queues goes on counting them. Calls of [HandleMany] count until they end. If zero, an
	// attempt counts until it ends.
	CountsFor time.Duration
	// Gate says whether jobs of the kind may start, see [QueueOptions]. If nil, none.
	Gate Gate
	// OpenJitter is as in [QueueOptions]. If zero, that of the queue.
	OpenJitter time.Duration
	// Middleware wraps the handler, inside of the middleware of the worker. If nil, none.
	Middleware []Middleware
	// OnDead enqueues a job when a job of the kind dies. If nil, the OnDead of the queue
	// holds.
	OnDead *OnDead
	// Aliases are other kinds that the handler runs too, such as the name before a rename.
	// What these options set holds for all the kinds together: a job under any of the names
	// counts for Concurrency, Gate, Policy and Budget. Each name has its own lanes, and so
	// its own holds and order of retries, and its own unique keys. If nil, the kind has no
	// other name.
	Aliases []string
	// MaxUnavailable is how long after it was enqueued a job may still be waiting for the
	// other side to be reached. If an attempt ends as [Unavailable] after that time, the job
	// is dead, with reason "unavailable". No job dies so while the clock cannot be right, see
	// [ClockState].Plausible, or after a redrive. If zero, jobs wait for as long as it takes.
	MaxUnavailable time.Duration
	// OnUnauthorized lets the application renew its token. It is called when jobs of the
	// kind are held because the other side refuses the sender, see [policy.IsUnauthorized],
	// and again each time a job that the hold lets through is refused as well. Each worker
	// calls it for its own attempts, one call at a time. If it returns nil a job is let
	// through at once, but the next early one not before the hold would have let one
	// through. ctx ends when the worker stops. If nil, nothing is called.
	OnUnauthorized func(ctx context.Context) error
}

// single returns the options of a call that registers a handler.
func single(name string, all []HandlerOptions) (o HandlerOptions) {
	if len(all) > 1 {
		panic(fmt.Sprintf("errand: Handle %q: at most one HandlerOptions, not %d", name, len(all)))
	}
	if len(all) == 1 {
		o = all[0]
	}
	return o
}

// made returns a handler, which set completes with the middleware around it.
func (w *Worker) made(name string, o *HandlerOptions, set func(*engine.Handler, []Middleware)) engine.Handler {
	h := w.settings(name, o)
	if w.err == nil { // else Run returns that, and there may be middleware that is nil
		set(&h, slices.Concat(w.opts.Middleware, o.Middleware))
	}
	return h
}

// mustNotRun panics if it is too late for a handler. The mutex is held.
func (w *Worker) mustNotRun(name string) {
	if w.engine != nil {
		panic(fmt.Sprintf("errand: Handle %q: the worker has been run", name))
	}
}

// ofQueue returns the name of a field that is set and that [QueueOptions] have too, or that is of a
// single kind; empty if none is.
func (o *HandlerOptions) ofQueue() string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"policy", o.Policy != nil}, {"rules", o.Rules != nil}, {"budget", o.Budget != nil}, {"concurrency", o.Concurrency != 0},
		{"open_jitter", o.OpenJitter != 0}, {"on_dead", o.OnDead != nil}, {"aliases", o.Aliases != nil},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}

// settings returns the settings of a handler, checked.
func (w *Worker) settings(kind string, o *HandlerOptions) engine.Handler {
	h := engine.Handler{
		Timeout: o.Timeout, MaxCrashes: o.MaxCrashes, Concurrency: o.Concurrency, Gate: gateOf(o.Gate),
		MaxUnavailable: o.MaxUnavailable, OnUnauthorized: o.OnUnauthorized, OpenJitter: o.OpenJitter, CountsFor: o.CountsFor,
	}
	if h.Timeout < 0 {
		panic(fmt.Sprintf("errand: Handle %q: timeout %v must not be negative", kind, h.Timeout))
	}
	if h.MaxCrashes < 0 || h.MaxCrashes > math.MaxInt32 {
		panic(fmt.Sprintf("errand: Handle %q: max_crashes %d must be between 0 and %d", kind, h.MaxCrashes, math.MaxInt32))
	}
	var f faults
	h.Policy = f.override("policy", o.Policy)
	f.rules("rules", o.Rules)
	f.budget("budget", o.Budget)
	f.between("concurrency", h.Concurrency, mostConcurrency)
	if h.MaxUnavailable < 0 {
		f.field("max_unavailable", h.MaxUnavailable, "must not be negative")
	}
	if h.CountsFor < 0 {
		f.field("counts_for", h.CountsFor, "must not be negative")
	}
	f.openJitter("open_jitter", h.OpenJitter)
	f.middleware("middleware", o.Middleware)
	f.aliases("aliases", kind, o.Aliases)
	f.onDead("on_dead", o.OnDead, &w.queue.opts, append([]string{kind}, o.Aliases...)...)
	if err := f.err(); err != nil {
		panic(fmt.Sprintf("errand: Handle %q: %v", kind, err))
	}
	h.Rules = slices.Clone(o.Rules)
	h.Budget = w.queue.limits.budget(owner{kind: kind}, o.Budget)
	h.Throttle = w.queue.limits.throttle(owner{kind: kind}, h.Policy.Throttle)
	logDoubts(logs.Direct(w.opts.Logger), "kind "+kind, o.Policy)
	return h
}

// aliases checks the other names of a kind.
func (f *faults) aliases(field, kind string, all []string) {
	for i, name := range all {
		at := fmt.Sprintf("%s[%d]", field, i)
		f.add(checkName(at, name))
		if name == kind || slices.Contains(all[:i], name) {
			f.field(at, name, "must be another kind")
		}
	}
}
