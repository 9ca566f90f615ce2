package errand

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/logs"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Durability says what an acknowledged write survives.
type Durability = sqlite.Durability

const (
	// Full syncs every commit: what was acknowledged survives a crash of the
	// system and a power cut.
	Full = sqlite.Full
	// Relaxed lets the operating system choose when to sync: what was acknowledged
	// survives the end of the process, but a crash of the system or a power cut
	// may lose the last commits. The database stays whole.
	Relaxed = sqlite.Relaxed
)

// SQLiteOptions configure the file of a queue: Durability, SingleProcess,
// BusyTimeout, Ballast, AnyFileSystem, ReadOnly, Existing and Own.
type SQLiteOptions = sqlite.Options

// Options configure a [Queue]. Nil and the zero value mean defaults.
type Options struct {
	// SQLite configures the file that Open opens. New refuses it, as its store is
	// open already. SQLite.Logger is Logger if nil. If zero, the defaults of
	// [sqlite.Options].
	SQLite SQLiteOptions
	// Policy is the delivery policy of jobs for which neither the job nor its kind
	// or queue sets one: a [policy.Policy], [policy.Document] or [policy.Topic].
	// Sections are resolved independently of each other. The warnings of
	// [policy.Policy.Lint] are logged, also about the policies of Queues and of
	// handlers. If nil, or if it has no retry section, [policy.Default].
	Policy policy.Delivery
	// Queues overrides settings for single queues, by name. Queues need not be listed to be
	// used. A name that ends in "*" is a prefix, see [WorkerOptions].Queues: its options are
	// those of each queue that begins with it, unless the queue itself or a longer prefix is
	// listed. The queues of a prefix share only the Gate: each has a Concurrency, Budget and
	// GroupThrottle of its own, and a MaxDeaths for each kind. For a prefix Settings must be
	// zero, and the throttle section of Policy absent. The log of a worker names queues
	// listed here that have no jobs and no worker in this process. If nil, none is
	// overridden.
	Queues map[string]QueueOptions
	// Strict is true if queues are refused that Queues does not list, by their names or by a
	// prefix; a [FieldError] names those listed. It is about the queues that this process
	// names:
	//
	//   - of a job that it enqueues, also by a schedule or an [OnDead]
	//   - of [JobChange], [RedriveOptions] and [Queue.Configure]
	//   - of a worker, whose prefix must be listed or within one that is
	//
	// If they are used, "default" must be listed too, and the queues of the packages webhook
	// and topic (webhook.Queues, topic.Queues). Holds and pauses may be of any queue. What
	// other processes enqueue, and jobs and schedules that are there already, stay as they
	// are. If false, a queue need not be listed.
	Strict bool
	// Settings are the settings of the whole file. A worker writes them to the file when it
	// runs; [Queue.Configure] sets them without one. If zero, they are left as they are.
	Settings Settings
	// Retention is how long finished jobs are kept. Dead letters are kept until
	// they are purged. If zero, 24 h; if negative, finished jobs are deleted at
	// once.
	Retention time.Duration
	// MaxArgs is the limit for the args of a job, in bytes of JSON, up to
	// 64 MiB. If zero, 256 KiB.
	MaxArgs int
	// MaxHeaders is the limit for the headers of a job, in bytes of JSON, up
	// to 64 MiB. If zero, 16 KiB.
	MaxHeaders int
	// Clock is the wall clock; [ClockState] says how far it is believed. A store with a
	// clock of its own is believed instead. A change of the clock is noticed within 15 s. It must be safe for concurrent use. If
	// nil, time.Now.
	Clock func() time.Time
	// WaitForClock holds schedules back in this process while the wall clock is
	// not plausible, that is before the program was built. If false, they fire
	// by the queue's clock, right or wrong.
	WaitForClock bool
	// Middleware wraps the way of jobs into the queue: those of Enqueue, EnqueueMany and
	// their forms with Tx, in this process. The job of a [Schedule] goes that way when the schedule is
	// declared; each tick has the args and headers that result. Declaring it again writes
	// nothing only if the middleware adds the same again, see [Declaring]. If nil, none.
	Middleware []Middleware
	// Logger receives what no caller can be told: recovered jobs, stuck handlers,
	// failures of the store. docs/operations.md has its levels and keys. If nil,
	// slog.Default.
	Logger *slog.Logger
	// LogEvery is how often a running worker logs how many jobs are in which state and how
	// many lanes are held, for machines without a metrics system: an hour, say. It logs
	// nothing if these numbers have not changed. If zero, never.
	LogEvery time.Duration
}

// QueueOptions are the settings of one queue.
type QueueOptions struct {
	// Policy is the delivery policy of the queue's jobs. A [policy.Topic] can
	// disable the policies of kinds and jobs.
	//
	// The throttle section limits the start rate of the queue's jobs, except for
	// kinds with a throttle of their own. The limit is an average; bursts of a
	// tenth of a second's worth are allowed. It holds for all workers of a Queue
	// together. A worker leases no more of these jobs than may start at once.
	//
	// If nil, or for a section that is absent, that of Options. The throttle of
	// Options applies to each queue separately.
	Policy policy.Delivery
	// Rules decide which errors of handlers are retried, see [HandlerOptions].
	// If nil, [policy.DefaultRules].
	Rules policy.Rules
	// Budget is the retry budget of the queue's jobs, except for kinds with a
	// budget of their own; see [HandlerOptions]. If nil, retries are not limited.
	Budget *policy.BudgetOptions
	// GroupThrottle limits the start rate of each group of the queue, see
	// [JobOptions].Group. If zero, it is not limited.
	GroupThrottle GroupThrottle
	// Concurrency is how many of the queue's jobs run at a time in each worker, at
	// most 10,000: those of all kinds together, also of kinds with a limit of their
	// own. The rest of the worker is left to other queues. A worker leases no more
	// of these jobs than may run. If zero, only that of the worker counts. One above
	// that of the worker matters only with a CountsFor of [HandlerOptions].
	Concurrency int
	// Gate says whether jobs of the queue may start in this process. While the gate is
	// closed workers lease none of them: the jobs keep their due times and their order, and
	// cost nothing. A job that was leased ahead and has not started goes back with nothing
	// used up; a running job goes on. A change is noticed within about 10 ms. Workers ask
	// the gate only while jobs of its queue or kind are due. They also ask a closed gate
	// while jobs may have to be made ready when it opens: see NoKick.
	//
	// A job starts only if the gates of its queue and its kind are open. A gate that
	// panics counts as closed, and is asked again every 10 s. If nil, none.
	Gate Gate
	// NoKick leaves the due times of the queue's jobs as they are when a gate opens, or a
	// hold for the reason "unavailable" ends. If false, and the gate was closed or the hold
	// in force for 15 s or more, jobs behind it are made ready, as by [Queue.RunNow] with
	// FailedOnly: what failed while the network was dying must not wait an hour after it is
	// back. First come twice as many jobs of a kind and queue as can run. When about as many
	// attempts have ended, more of them well than unable to reach the other side, as many
	// follow; twice as many if half of the attempts have ended well.
	NoKick bool
	// MaxDeaths is how many jobs of one kind may die in a row, with none done between: as
	// permanent, exhausted, or because their args do not decode. If more do, the jobs of the
	// queue and kind are held, in all processes, with reason "brake": see [Queue.Holds]. One
	// job is let through after 1 s; if it dies too, the next after twice that time, up to
	// 1 h. The first attempt that does not end with the death of its job ends the hold. Jobs
	// that are running already can still die. Redriven jobs do not count. If zero, 20; if
	// negative, any number may die.
	MaxDeaths int
	// OnDead enqueues a job when a job of the queue dies. Set it in each process that works
	// for the queue. If nil, no job is enqueued.
	OnDead *OnDead
	// Settings of the queue are obeyed by all processes, also those that only enqueue. A
	// worker of the queue writes them to the file when it runs; [Queue.Configure] sets
	// them without one. If zero, they are left as they are.
	Settings Settings
	// OpenJitter puts off the first start after a lane, the jobs of one kind in the
	// queue, was closed for more than a minute: held, or behind a gate. The start waits
	// for a random part of OpenJitter, at most 24 h, so that the devices of a fleet do
	// not all come back at once. Each worker draws its own for each lane. A worker that
	// starts waits only if it finds a hold that has lasted for longer, or has seen the
	// gate closed for longer. After the first start the lane opens gently, see
	// docs/outages.md: up to 256 lanes of a worker at a time, further ones open at once. If
	// zero, the first job starts at once.
	OpenJitter time.Duration
}

const (
	defaultQueue      = "default"
	defaultRetention  = 24 * time.Hour
	defaultMaxArgs    = 256 << 10
	defaultMaxHeaders = 16 << 10
	mostBytes         = 64 << 20
	mostOpenJitter    = 24 * time.Hour
)

// withDefaults returns a copy that shares nothing with o that can change. In it
// Policy has a retry section, Clock and Logger are set, and a Retention of zero
// means zero.
func (o *Options) withDefaults() Options {
	c := *o
	retry := policy.Default()
	all, _ := delivery(o.Policy)
	all.Document = all.Or(policy.Document{Retry: &retry})
	c.Policy = all
	c.Queues = maps.Clone(o.Queues)
	for name, q := range c.Queues {
		if own, ok := delivery(q.Policy); ok {
			q.Policy = own
		} else {
			q.Policy = nil
		}
		q.Rules = slices.Clone(q.Rules)
		if q.Budget != nil {
			q.Budget = new(*q.Budget)
		}
		if q.OnDead != nil {
			q.OnDead = new(*q.OnDead)
		}
		q.Settings = q.Settings.clone()
		c.Queues[name] = q
	}
	c.Settings = o.Settings.clone()
	c.Retention = max(cmp.Or(o.Retention, defaultRetention), 0)
	c.MaxArgs = cmp.Or(o.MaxArgs, defaultMaxArgs)
	c.MaxHeaders = cmp.Or(o.MaxHeaders, defaultMaxHeaders)
	c.Logger, c.SQLite.Logger = o.loggers()
	c.Clock = wallClock(o.Clock, c.Logger)
	return c
}

// Queue is a durable job queue: a database with any number of named queues. It is
// safe for concurrent use.
type Queue struct {
	store  storage.Store
	opts   Options // with defaults
	clock  *queueClock
	limits limits
	types  argsTypes
	lanes  engine.Lanes
	events events
	awaits awaits
	entry  HandlerFunc // Options.Middleware; nil: none
	// changing holds one value while a schedule is changed. Callers in this
	// process take turns by it, so that none of them fails by another's change.
	changing chan struct{}
	notices  sync.Map // the kinds that an OnDead of this process names
	loggers  loggers

	opened time.Time // by its clock

	closing  sync.Once
	closeErr error
}

// settings returns the settings of a queue, which need not be listed in Options.
func (q *Queue) settings(name string) engine.QueueSettings {
	o, of := q.opts.optionsOf(name), owner{queue: name}
	s := engine.QueueSettings{Rules: o.Rules, Budget: q.limits.budget(of, o.Budget), Concurrency: o.Concurrency, Gate: gateOf(o.Gate), NoKick: o.NoKick,
		MaxDeaths: o.MaxDeaths, OpenJitter: o.OpenJitter, Groups: q.limits.groupThrottle(name, o.GroupThrottle)}
	own, ok := delivery(o.Policy)
	if ok {
		s.Policy = &own
	}
	s.Throttle = q.limits.throttle(of, own.Or(q.opts.Policy.Delivery().Document).Throttle)
	return s
}

// Open opens the queue in the SQLite file at path. It creates the file with mode
// 0600 if there is none, and brings its tables up to date.
//
// It returns a [FieldError] for an empty path, [ErrUnsupportedDB] for a file on a
// network or shared file system, [ErrCorrupt] for a file that is no database,
// [ErrReadOnly] for a file that cannot be written, [ErrTooNew] for a database
// that a later version of errand has changed, and [ErrTakenAway] while another process
// has a database open whose log or index is gone.
//
// If a process has ended without closing the file, the tables are checked in the
// background. Once damage is found, calls that add work return [ErrCorrupt], and
// Run of each worker returns that error when its running jobs have ended; see
// docs/operations.md.
//
// With SQLiteOptions.ReadOnly the file is only read. Then Open returns fs.ErrNotExist if
// there is no file, fs.ErrPermission if this user may not read it, [ErrUnsupportedDB] if
// it has no tables of errand, and [ErrNeedsRecovery]. With SQLiteOptions.Existing it
// returns the first three for a file that is written, too, and with Own [ErrUnsupportedDB]
// for a file of another program.
func Open(ctx context.Context, path string, o *Options) (*Queue, error) {
	o = cmp.Or(o, &Options{})
	f := faults{}
	if path == "" {
		f.field("path", path, "must name a file")
	}
	f.add(o.validate())
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := o.withDefaults()
	store, err := sqlite.Open(path, &c.SQLite)
	if err != nil {
		return nil, err
	}
	q, err := newQueue(ctx, store, c)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	o.logDoubts(c.Logger)
	return q, nil
}

// logDoubts logs the doubts about the policies in o, before defaults are filled in.
func (o *Options) logDoubts(log *slog.Logger) {
	log = logs.Direct(log) // there may be any number of doubts
	logDoubts(log, "options", o.Policy)
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) {
		logDoubts(log, "queue "+name, o.Queues[name].Policy)
	}
}

func newQueue(ctx context.Context, store storage.Store, o Options) (*Queue, error) {
	c, err := newClock(ctx, store, &o)
	if err != nil {
		return nil, err
	}
	q := &Queue{store: store, opts: o, clock: c, opened: c.Now(), changing: make(chan struct{}, 1), loggers: loggers{all: []*slog.Logger{o.Logger, o.SQLite.Logger}}}
	if len(o.Middleware) > 0 {
		q.entry = through(o.Middleware, take)
	}
	q.events.types = &q.types
	q.tellEvicted()
	for name, settings := range o.Queues {
		q.limits.budget(owner{queue: name}, settings.Budget)
		if o := settings.OnDead; o != nil {
			q.notices.Store(o.kind(), nil)
		}
	}
	return q, nil
}

// New makes a queue on a store that is open already, for example one on the
// application's own database. Closing the queue closes the store. Options.SQLite
// must be zero: set those options where the store is opened.
func New(ctx context.Context, store storage.Store, o *Options) (*Queue, error) {
	o = cmp.Or(o, &Options{})
	var f faults
	if store == nil {
		f.field("store", nil, "must not be nil")
	}
	f.noSQLite("sqlite.", &o.SQLite)
	f.add(o.validate())
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := o.withDefaults()
	q, err := newQueue(ctx, store, c)
	if err != nil {
		return nil, err
	}
	o.logDoubts(c.Logger)
	return q, nil
}

// Close closes the queue and its store. Calls under way finish first; later calls
// return [ErrClosed]. Stop the workers before, see [Worker.Shutdown]. Closing
// twice is harmless and returns the same result.
func (q *Queue) Close() error {
	q.closing.Do(func() {
		q.closeErr = q.store.Close()
		q.events.close()
		q.awaits.close()
		q.loggers.wait()
	})
	return q.closeErr
}

// Backup writes a copy of the queue to a new file with mode 0600, while others go
// on using the queue. The copy shows one moment during the call. Open it as any
// queue: jobs that were running start again, with nothing counted against them,
// and schedules have missed their ticks since, see [Missed]. docs/operations.md
// has the steps of a restore.
//
// Backup returns an error that is fs.ErrExist if the path exists. It returns
// [ErrUnsupportedDB] if the store cannot be backed up, or if the log, its index or the
// journal of another database is beside the path. After an error there is no file.
func (q *Queue) Backup(ctx context.Context, path string) error {
	s, ok := q.store.(storage.Backuper)
	if !ok {
		return fmt.Errorf("%w: store %T cannot be backed up", ErrUnsupportedDB, q.store)
	}
	if path == "" {
		return &FieldError{Field: "path", Value: path, Limit: "must name a file"}
	}
	return s.Backup(ctx, path)
}

// Compact writes the file anew without its unused space, and returns by how many bytes it
// has become smaller. Pages that are only in the log count as if they were in the file.
// The file itself becomes smaller at the next checkpoint that reaches the end of the log:
// mostly at once, later if somebody reads.
//
// In all processes, calls that write wait until Compact is done, and fail after
// SQLiteOptions.BusyTimeout. Compact takes about 10 s for each GB that is in use: call it
// when little is going on. It needs room for what is in use twice: in the directory for
// temporary files and beside the file. It returns [ErrFull] if there is not as much. If
// ctx ends, or the process dies, the file stays as it was. It returns [ErrUnsupportedDB]
// if the store cannot become smaller. See docs/limits.md.
func (q *Queue) Compact(ctx context.Context) (freed int64, err error) {
	s, ok := q.store.(storage.Compacter)
	if !ok {
		return 0, fmt.Errorf("%w: store %T cannot become smaller", ErrUnsupportedDB, q.store)
	}
	return s.Compact(ctx)
}

// Job returns all that is known of a job, live, finished or dead. It returns
// [ErrNotFound] if there is no job with this ID, or if it has been deleted.
func (q *Queue) Job(ctx context.Context, id ID) (JobInfo, error) {
	r, err := q.store.Job(ctx, id)
	if err != nil {
		return JobInfo{}, err
	}
	info, err := jobInfo(&r)
	if err == nil && info.State == Running {
		info.Progress = q.progress(ctx, id, info.Progress)
	}
	return info, err
}

// Cancel finishes a job as cancelled. If the job is running, the context of its
// handler is cancelled with cause [ErrCancelled]. If the handler then returns nil
// the job is done; otherwise it is cancelled.
//
// Cancel returns the state of the job after the call. A job that had already ended
// keeps its state. Cancel returns [ErrNotFound] if there is no job with this ID.
func (q *Queue) Cancel(ctx context.Context, id ID) (State, error) {
	var was storage.Record
	if q.events.Wanted() {
		was, _ = q.store.Job(ctx, id) // what fails here, Cancel returns
	}
	defer q.awaits.changed()
	now := q.clock.current(ctx)
	state, err := q.store.Cancel(ctx, now, id, storage.Retention{Default: q.opts.Retention})
	if err == nil && state == Cancelled {
		q.tellCancelled(ctx, now, &was)
	}
	return state, err
}

// CancelTx is [Queue.Cancel] inside a transaction of the application on the queue's
// file: it takes effect if tx commits. The handler of a running job learns of it at
// once if tx is of [Queue.Tx], otherwise about a second after the commit, or with
// the next heartbeat if the queue is of a single process.
//
// It returns [ErrWrongDatabase] for a transaction on another database.
func (q *Queue) CancelTx(ctx context.Context, tx *sql.Tx, id ID) (State, error) {
	in, err := q.inside(tx)
	if err != nil {
		return "", err
	}
	return in.Cancel(ctx, id)
}

// Counts returns the number of jobs by queue, kind and state, sorted and without
// zeros. The numbers are kept, not counted: the call is cheap however many jobs
// there are.
func (q *Queue) Counts(ctx context.Context) ([]Count, error) { return q.store.Counts(ctx) }
