package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Config says what an [Engine] runs and how. The package errand has validated
// it and set its defaults. A field may be nil only if its comment says so.
type Config struct {
	Store    storage.Store
	Queues   []string           // names and prefixes, see [storage.Want]
	Handlers map[string]Handler // by kind
	// QueueHandlers are those of all kinds of some of Queues, by its name or prefix. These
	// queues have no other. If nil, there are none.
	QueueHandlers map[string]Handler

	Concurrency   int           // handlers at a time
	LeaseDuration time.Duration // how long a worker keeps a job without a heartbeat
	Timeout       time.Duration // of an attempt; zero: none
	Grace         time.Duration // for handlers to end by themselves on a stop
	StuckAfter    time.Duration // a handler is stuck this long after its context ended
	MaxCrashes    int           // in a row, then dead
	MaxSnoozes    int           // allowed; the next one is dead
	MaxDeaths     int           // of a lane in a row, then it is held; negative: any number
	MaxRetryAfter time.Duration // the longest floor that an error can ask for
	Retention     storage.Retention

	Policy   policy.Topic             // of queues without a policy; it has a Retry
	Settings map[string]QueueSettings // by queue or prefix; a queue need not be listed
	// SettingsOf returns the settings of a queue that Settings does not have. It must be
	// safe for concurrent use. If nil, there are none.
	SettingsOf func(queue string) QueueSettings
	Lasting    []storage.LaneSettings // written to the store when the worker starts

	// Suspects is the turnstile for suspects. If nil, that of the process.
	Suspects *Turnstile
	// Lanes are shared by the engines that share Store. If nil, no other engine
	// of the process uses it.
	Lanes *Lanes
	// OnDeath returns what is enqueued with the death of a job at a time, or nil. It must
	// not block. If nil, nothing is.
	OnDeath func(job *storage.Leased, f *storage.Finish, at time.Time) *storage.NewJob
	// Events is told what happens. If nil, nobody is.
	Events Events
	// Clock is the clock that due times are about. If nil, Wall(time.Now).
	Clock Clock
	// WaitForClock fires no schedule until Clock is plausible.
	WaitForClock bool
	// Bulk is true of an engine for bulk jobs, which leaves what concerns all jobs to
	// others: it fires no schedules, and warns of no jobs that nobody works for.
	Bulk bool
	// Rand returns random numbers in [0, 1) for jitter, to one goroutine. If nil,
	// those of math/rand/v2. [WithRand] replaces it.
	Rand func() float64
	// Owner is given to handlers, see [Attempt.Owner].
	Owner any
	// Logger receives what no caller can be told: recovered jobs, stuck handlers,
	// failures of the store. If nil, slog.Default.
	Logger *slog.Logger
	// LogEvery is how often the numbers of jobs are logged. If zero, never.
	LogEvery time.Duration

	marker   storage.Marker    // Store, if it is one
	troubled storage.Troubled  // Store, if it is one; else nil
	lacks    []storage.Feature // what Store lacks
	refused  *sync.Map         // the kinds whose jobs have policies of older builds, see effective
}

// lacking returns the error of a Store that lacks one of needs, else nil.
func (c *Config) lacking(needs ...storage.Feature) error { return storage.Lacking(c.lacks, needs) }

// alone reports whether no other process works on the store.
func (c *Config) alone() bool {
	s, ok := c.Store.(storage.Peers)
	return ok && s.Alone()
}

// unmarked stands for a Store that is no [storage.Marker].
type unmarked struct{}

func (unmarked) Started(storage.Lease, time.Time) error { return nil }
func (unmarked) Stopping(storage.Lease) error           { return nil }
func (unmarked) Ended(storage.Lease) error              { return nil }

// NoCrashes is a MaxCrashes with which no job dies of crashes, whatever its policy. As that of a
// [Handler], which passes jobs on, it has no crash be counted either, as the attempt was
// interrupted, and no time of a job ends an attempt.
const NoCrashes = math.MaxInt32

// Handler runs the jobs of one kind.
type Handler struct {
	Run func(ctx context.Context, job *storage.Leased) error
	// Batch, if not nil, runs many jobs at a time; Run those that must be alone then.
	Batch *Batch
	// AliasOf is the kind that has the same handler and limits under its own name; empty:
	// this is the own name.
	AliasOf string
	// Secret is where the args have fields that are hidden from most who look at jobs.
	Secret []string

	Policy policy.Document // a section that it lacks is that of the queue
	Rules  policy.Rules    // nil: those of the queue
	Budget *Budget         // nil: that of the queue
	// Throttle is made by the throttle section of Policy, or nil.
	Throttle *Throttle
	Timeout  time.Duration // zero: that of the Config
	// MaxCrashes in a row, then dead, or NoCrashes. If zero, that of the Config.
	MaxCrashes int
	// Concurrency is how many jobs of the kind run at a time. If zero, as many as
	// there are runners.
	Concurrency int
	Gate        Gate // nil: none
	// CountsFor is how long an attempt counts for the Concurrency of the Config. If zero,
	// until it ends, as with Batch in any case.
	CountsFor time.Duration
	// MaxUnavailable is how old a job may become while the other side cannot be
	// reached. If zero, any age.
	MaxUnavailable time.Duration
	// OnUnauthorized is called when the other side refuses the sender, and a lane is
	// held for it. If nil, none is.
	OnUnauthorized func(context.Context) error
	// OpenJitter is by how much at most the first start is put off after a lane of
	// the kind was closed for long. If zero, that of the queue.
	OpenJitter time.Duration
}

// nameOf returns the kind of which a kind is an alias, or the kind itself.
func (c *Config) nameOf(kind string) string { return cmp.Or(c.Handlers[kind].AliasOf, kind) }

// Engine is one worker: it leases jobs, calls their handlers and writes their
// outcomes. It runs once.
type Engine struct {
	cfg Config

	stop   chan struct{} // closed to stop
	hurry  chan struct{} // closed to end the grace of a stop
	done   chan struct{} // closed when Run has set err
	err    error
	hasten sync.Once

	mu      sync.Mutex
	started bool
	stopped bool
	loop    *loop // nil until Run has begun to work
}

// errStarted is returned by a second Run: handlers of the first may outlive it.
var errStarted = errors.New("errand: worker has been run already")

// New returns an Engine that has started nothing yet.
func New(cfg Config) *Engine {
	if cfg.Suspects == nil {
		cfg.Suspects = &processSuspects
	}
	if cfg.Lanes == nil {
		cfg.Lanes = new(Lanes)
	}
	if cfg.Clock == nil {
		cfg.Clock = Wall(time.Now)
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Logger = logs.New(cfg.Logger) // the loop waits for no logger
	cfg.marker, _ = cfg.Store.(storage.Marker)
	cfg.troubled, _ = cfg.Store.(storage.Troubled)
	cfg.lacks = storage.LacksOf(cfg.Store)
	cfg.refused = new(sync.Map)
	if cfg.marker == nil {
		cfg.marker = unmarked{}
	}
	return &Engine{
		cfg:   cfg,
		stop:  make(chan struct{}),
		hurry: make(chan struct{}),
		done:  make(chan struct{}),
	}
}

// randKey is the key of what WithRand has put into a context.
type randKey struct{}

// WithRand returns a context with which Run takes its random numbers for jitter from
// rand, as [Config].Rand: tests of the public API that have to repeat a history have
// no other way to it.
func WithRand(ctx context.Context, rand func() float64) context.Context {
	return context.WithValue(ctx, randKey{}, rand)
}

// Run works until ctx ends or Shutdown is called, then stops in this order:
// nothing is leased any more, and jobs that were leased but not started go back
// without a spent attempt; handlers have Grace to end by themselves; their
// contexts are cancelled with [ErrShutdown]; they have StuckAfter to end; all
// goroutines are joined. Outcomes are written as they come, during all that.
//
// The contexts of handlers carry the values of ctx, but do not end with it.
//
// Run returns nil after such a stop. If handlers are still running it returns an
// error that wraps [ErrStuck]; their leases are extended until they end. If outcomes
// could not be written for the length of a lease, it returns an error that wraps the
// last one of the store. If the store returns an error that repeating cannot help,
// Run cancels the handlers with [ErrLeaseLost], and returns that error once they
// have ended, after StuckAfter at the latest. If the store lacks what the Config needs, Run
// returns that before it leases anything.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	again, stopped := e.started, e.stopped
	e.started = true
	works := !again && !stopped && ctx.Err() == nil
	if works {
		e.err = e.cfg.lacking(e.cfg.needs()...)
		works = e.err == nil
	}
	if works {
		if rand, ok := ctx.Value(randKey{}).(func() float64); ok {
			e.cfg.Rand = rand
		}
		e.loop = newLoop(ctx, &e.cfg, e.stop, e.hurry)
	}
	e.mu.Unlock()
	if again {
		return errStarted
	}
	defer close(e.done)
	if !works {
		return e.err
	}
	go e.loop.run()
	e.err = <-e.loop.shutdown.report
	logs.Wait(e.cfg.Logger)
	return e.err
}

// Shutdown makes Run stop, waits for it and returns its result. If ctx ends first
// the grace is over at once. If Run was not called, a later Run returns at once.
func (e *Engine) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	if !e.stopped {
		e.stopped = true
		close(e.stop)
	}
	started := e.started
	e.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
	}
	e.hasten.Do(func() { close(e.hurry) })
	<-e.done
	return e.err
}

// Phase returns the phase of its delivery policy that an attempt is in.
func (e *Engine) Phase(job *storage.Leased) policy.Phase {
	if job.Retry == 0 {
		return policy.PhaseFirst
	}
	d, _ := e.cfg.policyOf(job)
	return phaseOf(d, job.Retry)
}
