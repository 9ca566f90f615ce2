package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

const (
	lease = 30 * time.Second
	grace = 20 * time.Second
	stuck = 5 * time.Second
)

// rig is an engine on a database in memory, in the bubble of one test.
type rig struct {
	t     *testing.T
	db    *storagetest.Memory
	app   storage.Store // what enqueues and looks: another instance
	store *spy
	logs  *logs
	cfg   engine.Config

	engine *engine.Engine
	cancel context.CancelFunc
	ended  chan struct{} // closed: Run gave err
	err    error
}

// noRetry and thrice are policies with exact delays.
var (
	noRetry = policy.Policy{}
	thrice  = policy.Policy{
		MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Retries: 3,
		NoDelayRetries: 1, MinDelayRetries: 1, Jitter: policy.NoJitter,
	}
)

// bubble runs a test in a bubble of its own, where time is fake.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

func newRig(t *testing.T) *rig {
	db := storagetest.NewMemory()
	return newRigOn(t, db, db.Open())
}

// another returns a rig for another process on the same database.
func (r *rig) another() *rig { return newRigOn(r.t, r.db, r.app) }

func newRigOn(t *testing.T, db *storagetest.Memory, app storage.Store) *rig {
	r := &rig{t: t, db: db, app: app, logs: &logs{}, store: &spy{Store: db.Open()}}
	r.cfg = engine.Config{
		Store: r.store, Queues: []string{"q"}, Handlers: map[string]engine.Handler{},
		Concurrency: 4, LeaseDuration: lease, Grace: grace, StuckAfter: stuck,
		MaxCrashes: 3, MaxSnoozes: 3, MaxDeaths: 20, MaxRetryAfter: time.Hour, Retention: storage.Retention{Default: 24 * time.Hour},
		Policy: thrice.Delivery(), Suspects: new(engine.Turnstile), Logger: slog.New(slog.NewTextHandler(r.logs, nil)),
	}
	return r
}

type handle = func(ctx context.Context, job *storage.Leased) error

func (r *rig) handle(kind string, run handle) { r.cfg.Handlers[kind] = engine.Handler{Run: run} }

// start runs the engine; it is stopped when the test ends, if not before.
func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithValue(r.t.Context(), ctxKey{}, "value"))
	r.cancel = cancel
	r.engine = engine.New(r.cfg)
	r.ended = make(chan struct{})
	go func() {
		defer close(r.ended)
		r.err = r.engine.Run(ctx)
	}()
	r.t.Cleanup(func() { _ = r.stop() })
	synctest.Wait()
}

type ctxKey struct{}

// stop ends the engine and returns what Run returned.
func (r *rig) stop() error {
	r.cancel()
	<-r.ended
	return r.err
}

// now returns the time on the engine's clock.
func (r *rig) now() time.Time {
	if r.cfg.Clock != nil {
		return r.cfg.Clock.Now()
	}
	return time.Now()
}

// enqueue adds ready jobs of a kind to queue q.
func (r *rig) enqueue(kind string, n int) []storage.ID {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = storage.NewJob{Queue: "q", Kind: kind}
	}
	return r.add(jobs...)
}

func (r *rig) add(jobs ...storage.NewJob) []storage.ID {
	r.t.Helper()
	for i := range jobs {
		jobs[i].Args = []byte("{}")
	}
	res, err := r.app.Enqueue(r.t.Context(), r.now(), jobs)
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []storage.ID
	for _, e := range res {
		ids = append(ids, e.ID)
	}
	synctest.Wait()
	return ids
}

func (r *rig) job(id storage.ID) storage.Record {
	r.t.Helper()
	rec, err := r.app.Job(context.Background(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// wantState checks the state and the counters of a job.
func (r *rig) wantState(id storage.ID, state storage.State, c storage.Counters) storage.Record {
	r.t.Helper()
	rec := r.job(id)
	if rec.State != state || rec.Counters != c {
		r.t.Errorf("job is %s %+v, want %s %+v (error %q)", rec.State, rec.Counters, state, c, rec.Error)
	}
	return rec
}

// pass lets time pass, and waits until all that it set off has come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// listener collects events.
type listener struct {
	mu  sync.Mutex
	all []engine.Event
}

func (l *listener) Wanted() bool { return true }

func (l *listener) Tell(e engine.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

// types returns the types of the events about a job, in order.
func (l *listener) types(id storage.ID) (types []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.ID == id {
			types = append(types, e.Type)
		}
	}
	return types
}

// logs collects what the engine logs.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// with returns the lines that contain s.
func (l *logs) with(s string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, s) {
			out = append(out, line)
		}
	}
	return out
}
