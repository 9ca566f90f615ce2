package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// world is one history, with the model of what it must lead to.
type world struct {
	t         *testing.T
	seed      uint64
	dir       string
	began     time.Time
	wall      wall
	options   errand.Options
	worker    errand.WorkerOptions
	retention time.Duration
	looks     bool          // handlers look at the queue's clock
	latency   time.Duration // of each call of the store
	friendly  atomic.Bool
	calm      chan struct{} // closed: friendly

	life  *life
	lives int
	steps int
	dice  *rand.Rand // of the step
	n     int        // jobs
	off   int        // troubles

	mu         sync.Mutex
	seq        int64
	lines      []string
	faults     []string
	jobs       map[int64]*job
	byBirth    []*job
	duplicates []duplicate
	acks       []storage.ID
	missed     []missed
	orphans    map[int64][]*lease // of jobs of which the enqueuing is not told yet
	tokens     map[int64]*lease
	pauses     map[string]pauseState
	purgedTo   time.Time
	stepsBack  []step
	hurries    []hurry
	powerCuts  []int  // the lives that ended so
	peaks      []step // what the queue's clock had reached before it may have gone back
	clock      watch
	entries    []entry
	agendas    map[string]*agenda
	ran        int
	ticks      int
}

// life is the time from an opening of the file to its close, or to the end of
// the process.
type life struct {
	path     string
	queue    *errand.Queue
	store    *store
	end      chan struct{} // closed: over
	ended    atomic.Bool
	broken   atomic.Bool // the store has closed itself
	partly   atomic.Bool // a worker had no handler for parcels
	troubled atomic.Bool // the store was slow or failed, or an application kept it from writing
	full     atomic.Bool // an exchange found no room
	stopping atomic.Bool // workers are being stopped
	number   int
	doings   sync.WaitGroup // calls from outside
	workers  []*worker

	// Guarded by world.mu.
	calls   map[string]int64
	trouble trouble
	running map[int64]int
}

type worker struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

func (l *life) over() bool { return l.ended.Load() }

// dead returns the error of a store that is of no use any more.
func (l *life) dead() error {
	if l.over() || l.broken.Load() {
		return fmt.Errorf("in the simulation: %w", storage.ErrClosed)
	}
	return nil
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))

func newWorld(t *testing.T, seed uint64, dir string) *world {
	w := &world{
		t: t, seed: seed, dir: dir, began: time.Now(), calm: make(chan struct{}),
		jobs: map[int64]*job{}, orphans: map[int64][]*lease{}, tokens: map[int64]*lease{},
		pauses: map[string]pauseState{}, agendas: map[string]*agenda{},
	}
	r := w.step(-1)
	w.looks = r.IntN(2) == 0
	w.latency = time.Duration(r.IntN(2)*r.IntN(30)) * time.Millisecond
	w.retention = []time.Duration{0, 10 * time.Minute, 24 * time.Hour}[r.IntN(3)]
	w.options = errand.Options{
		Clock: w.wall.now, Logger: quiet, Policy: policies[0].Policy,
		Queues:    map[string]errand.QueueOptions{"bulk": {Policy: policies[1].Policy}},
		Retention: w.retention,
	}
	if w.retention == 0 {
		w.options.Retention = -1
	}
	w.worker = errand.WorkerOptions{
		Queues: []string{"default", "bulk"}, Concurrency: 1 + r.IntN(4),
		LeaseDuration: []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second}[r.IntN(3)],
		Grace:         time.Duration(1+r.IntN(10)) * time.Second, StuckAfter: time.Duration(1+r.IntN(5)) * time.Second,
		MaxCrashes: 2 + r.IntN(2), MaxSnoozes: 2, MaxRetryAfter: time.Hour, Logger: quiet,
	}
	return w
}

// step returns the random numbers of one step, which depend on no other.
func (w *world) step(i int) *rand.Rand { return rand.New(rand.NewPCG(w.seed, uint64(i+1))) }

// note adds a line to the history. The caller holds mu.
func (w *world) note(format string, args ...any) {
	at := w.elapsed()
	w.lines = append(w.lines, fmt.Sprintf("%12.3fs  %s", at.Seconds(), fmt.Sprintf(format, args...)))
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

func (w *world) blame(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault(format, args...)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

// play plays the history: steps from outside, then a friendly end.
func (w *world) play(most int) {
	first := filepath.Join(w.dir, "jobs-0.db")
	if err := os.WriteFile(first, empty(), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.begin(first)
	w.work(true)
	steps := mostSteps/2 + w.step(-2).IntN(mostSteps/2+1)
	for ; w.steps < min(steps, most) && !w.failed(); w.steps++ {
		w.dice = w.step(w.steps)
		w.idle()
		w.settle()
		if w.life.broken.Load() {
			w.crash("the store is closed", false)
			w.work(true)
		}
		w.act()
	}
	if !w.failed() {
		w.drain()
	}
	w.kill() // whatever is left
}

// empty returns the file of a queue that has just been opened for the first time,
// which saves each seed the making of it.
var empty = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "errand-sim-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "empty.db")
	s, err := sqlite.Open(path, &sqlite.Options{SingleProcess: true, Durability: sqlite.Relaxed, Ballast: -1, Logger: quiet})
	if err == nil {
		err = s.Close()
	}
	b, err2 := os.ReadFile(path)
	if err := errors.Join(err, err2); err != nil {
		panic(err)
	}
	return b
})

// idle lets some time pass.
func (w *world) idle() {
	r := w.dice
	switch r.IntN(10) {
	case 0, 1:
	case 2, 3, 4, 5:
		time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
	case 6, 7, 8:
		time.Sleep(time.Duration(r.IntN(20)) * time.Second)
	case 9:
		time.Sleep(time.Duration(r.IntN(4)*60+r.IntN(60)) * time.Second)
	}
	synctest.Wait()
}

// settle checks all that was taken down, at a moment when nothing is under way
// but calls that wait for time to pass.
func (w *world) settle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	for _, e := range w.entries {
		w.follow(e)
	}
	w.entries = nil
	for _, d := range w.duplicates {
		w.check(d)
	}
	for _, id := range w.acks {
		if j := w.jobs[id.Key()]; j == nil || j.id != id {
			w.fault("job %v was acknowledged, and there is none", id)
		}
	}
	for _, m := range w.missed {
		if p := w.place(m.job); !p.mayBeGone {
			w.fault("%s did not find job %d, which is %v", m.by, m.job.id.Key(), p.states)
		}
	}
	w.duplicates, w.acks, w.missed = nil, nil, nil
	for key := range w.orphans {
		w.fault("job %d was leased, and nobody has enqueued it", key)
	}
	holders := map[string]int64{}
	for _, j := range w.byBirth {
		p := w.place(j)
		if j.Unique == "" || !p.live() || len(p.states) > 1 || j.mayRedrive > 0 && p.is(storage.Dead) {
			continue
		}
		if other, ok := holders[j.Unique]; ok {
			w.fault("jobs %d and %d both have key %q", other, j.id.Key(), j.Unique)
		}
		holders[j.Unique] = j.id.Key()
	}
}

// begin opens the file: the next life.
func (w *world) begin(path string) {
	l := &life{path: path, number: w.lives, end: make(chan struct{}), calls: map[string]int64{}, running: map[int64]int{}}
	w.lives++
	durability := sqlite.Durability(w.seed % 2)
	inner, err := sqlite.Open(path, &sqlite.Options{SingleProcess: true, Durability: durability, Ballast: -1, Logger: quiet})
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	l.store = &store{Store: inner, w: w, l: l, reclaiming: make(chan struct{}, 1)}
	w.mu.Lock()
	w.clock.fresh, w.clock.aheadAt = true, w.elapsed()
	w.mu.Unlock()
	w.life = l
	if l.queue, err = errand.New(context.Background(), l.store, &w.options); err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	w.sample(l, l.queue.Clock().Now)
	if l.number > 0 { // the first life finds an empty file, the same for all seeds
		w.audit()
	}
}

// work starts a worker.
func (w *world) work(all bool) {
	l := w.life
	on := errand.NewWorker(l.queue, &w.worker)
	handle(w, l, on, func(a letter) int { return a.N })
	handle(w, l, on, func(a pulse) int { return a.N })
	if all {
		handle(w, l, on, func(a parcel) int { return a.N })
	} else {
		l.partly.Store(true)
	}
	ctx, cancel := context.WithCancel(w.jitter(l))
	k := &worker{cancel: cancel, ended: make(chan struct{})}
	l.workers = append(l.workers, k)
	go func() {
		defer close(k.ended)
		k.err = on.Run(ctx)
	}()
}

// jitter returns the context of the next worker of a life, whose jitter comes from the
// seed.
func (w *world) jitter(l *life) context.Context {
	return engine.WithRand(context.Background(), w.step(1<<20+l.number<<8+len(l.workers)).Float64)
}

// stop stops all workers in order, and reports whether they had nothing to
// complain about.
func (w *world) stop() bool {
	l, ok := w.life, true
	l.stopping.Store(true)
	defer l.stopping.Store(false)
	for _, k := range l.workers {
		k.cancel()
	}
	for _, k := range l.workers {
		<-k.ended
		if k.err != nil {
			w.say("  the worker ends with: %v", k.err)
			ok = false
			known := strings.Contains(k.err.Error(), "the store does not answer")
			for _, e := range []error{
				errand.ErrStuck, errand.ErrClosed, errand.ErrUnknownOutcome, errand.ErrBusy, errand.ErrFull, errand.ErrIO,
			} {
				known = known || errors.Is(k.err, e)
			}
			if !known && !l.broken.Load() {
				w.blame("a worker ends with %v", k.err)
			}
		}
	}
	l.workers = nil
	if !ok {
		return false
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.byBirth {
		if n := len(j.leases); n > 0 && j.leases[n-1].finish == nil && j.leases[n-1].life == l {
			w.fault("job %d is still leased, and all workers have stopped", j.id.Key())
		}
	}
	return true
}

// restart closes the file in order and opens it again, if that can be.
func (w *world) restart(down time.Duration) {
	w.say("stop, and start after %v", down)
	if !w.stop() {
		w.crash("the process ends", false)
		return
	}
	l := w.life
	l.doings.Wait()
	if l.broken.Load() {
		w.crash("the store is closed", false)
		return
	}
	w.calmly(l, w.inspect)
	w.over(l)
	if err := l.queue.Close(); err != nil {
		w.blame("Close: %v", err)
	}
	time.Sleep(down)
	w.begin(l.path)
}

// calmly calls f while nothing goes wrong in the store.
func (w *world) calmly(l *life, f func()) {
	w.mu.Lock()
	was := l.trouble
	l.trouble = trouble{}
	w.mu.Unlock()
	f()
	w.mu.Lock()
	l.trouble = was
	w.mu.Unlock()
}

// over ends a life for the model.
func (w *world) over(l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.ended.CompareAndSwap(false, true) {
		close(l.end)
	}
}

// crash ends the life as kill -9 does, or a power cut: what was in the file at
// this moment is what the next life finds.
func (w *world) crash(why string, powerCut bool) {
	w.say("crash: %s", why)
	synctest.Wait()
	w.settle()
	l := w.life
	path := filepath.Join(w.dir, fmt.Sprintf("jobs-%d.db", w.lives))
	for _, part := range []string{"", "-wal"} {
		w.copy(l.path+part, path+part)
	}
	if powerCut { // which takes the notes of handlers
		w.mu.Lock()
		w.powerCuts = append(w.powerCuts, l.number)
		w.mu.Unlock()
	} else {
		notes, err := filepath.Glob(l.path + "-instance-*")
		if err != nil {
			w.t.Fatal(err)
		}
		for _, n := range notes {
			w.copy(n, path+n[len(l.path):])
		}
	}
	w.kill()
	w.begin(path)
}

func (w *world) copy(from, to string) {
	b, err := os.ReadFile(from)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the present life. All goroutines must end, so its store is closed,
// whatever that does to its file.
func (w *world) kill() {
	l := w.life
	w.over(l)
	for _, k := range l.workers {
		k.cancel()
		<-k.ended
	}
	l.doings.Wait()
	synctest.Wait()
	// A store that is closed with leases keeps a file open for ever.
	if err := l.store.forget(); err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
	}
	_ = l.store.Close() // of a file that is of no use
	all, _ := filepath.Glob(l.path + "*")
	for _, name := range all {
		_ = os.Remove(name)
	}
}
