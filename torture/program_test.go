//go:build unix

package torture_test

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// part is what a child is to do.
type part struct {
	Role     string
	DB       string
	First    int // number of its first job
	Jobs     int // how many to enqueue; negative: until it is killed
	Senders  int // goroutines that enqueue
	Workers  int // handlers at a time; 0: it does not work
	Finish   bool
	Relaxed  bool
	Fragile  bool // it ends when the store closes itself
	Short    bool // it does only the last part
	Abrupt   bool // it ends without closing
	Handoff  bool // jobs are leased as they are enqueued
	Seed     uint64
	Boot     string        // names the boot of the system that it believes in; empty: the true one
	Lease    time.Duration // zero: 1 s
	Busy     time.Duration // zero: that of the store
	Handling time.Duration // how long a handler takes at most
	Size     int           // bytes of args at most
	Args     int           // bytes of the args of a drain, see drainDisk
	Plan     string        // what its outcomes bring, of Size bytes
	Pause    time.Duration // between two jobs of a sender
	Keep     time.Duration // retention; zero: that of errand
	Queues   []string      // to enqueue in and to work for; empty: "default"
}

// roles are what a child can be.
var roles = map[string]func(part, *voice) error{"mix": mix}

func (p part) play() error {
	go func() { // no child outlives the test
		_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin))
		os.Exit(2)
	}()
	if p.Boot != "" {
		if err := errors.Join(leaveDisks(p.DB), believeInBoot(p.Boot)); err != nil {
			return err
		}
	}
	f, ok := roles[p.Role]
	if !ok {
		return fmt.Errorf("no role %q", p.Role)
	}
	return f(p, &voice{out: os.Stdout})
}

// order is the job of all children: its number, and what its handler is to do.
type order struct {
	N    int
	Plan string
	Pad  string `json:",omitempty"`
}

func (order) Kind() string { return "order" }

// tickNumber is the number of all jobs of schedules.
const tickNumber = -1

// plans are what becomes of jobs, so that each transition is under way when
// something happens.
var plans = []string{"done", "done", "fail", "die", "snooze", "cancel", "panic", "late", "unique", "large", "tx", "withdraw", "after"}

// handle does what the plan says. What is asked of the first attempt only goes
// otherwise if that was cut, which is no fault.
func (o order) handle(job *errand.Job[order]) error {
	if job.Attempt > 1 {
		return nil
	}
	switch o.Plan {
	case "fail":
		return errors.New("as planned")
	case "die":
		return errand.Permanent(errors.New("as planned"))
	case "snooze":
		return errand.Snooze(100*time.Millisecond, nil)
	case "cancel":
		return errand.Cancel(nil)
	case "panic":
		panic("as planned")
	case "after":
		return errand.RetryAfter(20*time.Millisecond, errors.New("as planned"))
	}
	return nil
}

// quick is the policy of all jobs: most retries at once.
var quick = policy.Policy{MinDelay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond, Retries: 6, NoDelayRetries: 1, MinDelayRetries: 2}

// mix is a program that does all that errand can do, at the same time.
func mix(p part, v *voice) error {
	ctx := context.Background()
	enough, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	dead := make(chan int64, 10_000)
	q, err := p.open(v, func(key int64) { dead <- key })
	if err != nil {
		return err
	}
	if p.Workers > 0 && !p.Finish {
		err := q.Schedule(ctx, errand.Schedule{Name: "often", Spec: "@every 1s", Args: order{N: tickNumber}})
		if err != nil {
			return err
		}
	}
	v.say("ready")
	m := &mixer{part: p, plans: plans, voice: v, q: q, enough: enough.Done(), ids: map[int64]errand.ID{}}
	var all sync.WaitGroup
	worked := make(chan error, 1)
	worker := m.worker()
	if p.Workers > 0 {
		all.Go(func() { worked <- worker.Run(ctx) })
		go m.redrive(dead)
		go m.checkpoint()
	}
	if err := m.send(); err != nil {
		if p.Fragile {
			v.say("worker ended: %v", <-worked)
		}
		return err
	}
	if p.Finish {
		v.say("sent")
		if err := m.untilDone(); err != nil {
			return err
		}
	}
	if p.Workers > 0 {
		stop, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := worker.Shutdown(stop); err != nil {
			return err
		}
		all.Wait()
		if err := <-worked; err != nil {
			return err
		}
	}
	return q.Close()
}

// open opens the queue, with a witness.
func (p part) open(v *voice, died func(key int64)) (*errand.Queue, error) {
	opts := &sqlite.Options{BusyTimeout: p.Busy, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if p.Relaxed {
		opts.Durability = sqlite.Relaxed
	}
	store, err := sqlite.Open(p.DB, opts)
	if err != nil {
		return nil, err
	}
	w := &witness{Store: store, voice: v, died: died}
	return errand.New(context.Background(), w, &errand.Options{Policy: quick, Retention: p.Keep, Logger: opts.Logger})
}

// mixer is the state of mix.
type mixer struct {
	part
	plans  []string
	voice  *voice
	q      *errand.Queue
	enough <-chan struct{} // stop enqueuing

	mu   sync.Mutex
	next int
	ids  map[int64]errand.ID // what was enqueued here; nil: not kept
}

func (m *mixer) worker() *errand.Worker {
	lease := m.Lease
	if lease == 0 {
		lease = time.Second
	}
	w := errand.NewWorker(m.q, &errand.WorkerOptions{
		Queues: m.Queues, Concurrency: max(m.Workers, 1), LeaseDuration: lease, Grace: -1,
		StuckAfter: 30 * time.Second, // a busy disk takes its time for the last outcomes
	})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[order]) error {
		m.voice.say("run %d %d", job.ID.Key(), job.Attempt)
		if m.Handling > 0 {
			select {
			case <-time.After(rand.N(m.Handling)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if job.Args.Plan == "stop" && job.Attempt == 1 {
			if _, err := m.q.Cancel(ctx, job.ID); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return job.Args.handle(job)
	})
	return w
}

// send enqueues, from several goroutines.
func (m *mixer) send() error {
	errs := make(chan error, m.Senders)
	for i := range m.Senders {
		go func() {
			r := rand.New(rand.NewPCG(m.Seed, uint64(i)))
			var err error
			for err == nil {
				n, ok := m.number()
				if !ok {
					break
				}
				select {
				case <-m.enough:
					ok = false
				case <-time.After(m.Pause):
				}
				if !ok {
					break
				}
				if err = m.enqueue(n, r); errors.Is(err, errand.ErrBusy) || errors.Is(err, errand.ErrFull) {
					err = nil
				}
			}
			errs <- err
		}()
	}
	var err error
	for range m.Senders {
		err = errors.Join(err, <-errs)
	}
	return err
}

func (m *mixer) number() (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Jobs >= 0 && m.next >= m.Jobs {
		return 0, false
	}
	m.next++
	return m.First + m.next - 1, true
}

// order makes the job with this number, one of those there are.
func (m *mixer) order(n int, r *rand.Rand) (order, *errand.JobOptions) {
	o := order{N: n, Plan: m.plans[r.IntN(len(m.plans))], Pad: strings.Repeat("x", r.IntN(m.Size+1))}
	opts := &errand.JobOptions{Priority: r.IntN(201) - 100}
	if len(m.Queues) > 0 {
		opts.Queue = m.Queues[r.IntN(len(m.Queues))]
	}
	switch o.Plan {
	case "late":
		opts.Delay = time.Duration(r.IntN(100)) * time.Millisecond
	case "unique":
		opts.Unique, opts.Delay = &errand.Unique{Key: fmt.Sprint(n % 5)}, time.Duration(r.IntN(300))*time.Millisecond
	case "large":
		o.Pad = strings.Repeat("large", 1000)
	case "withdraw":
		opts.Delay = 3 * time.Second // long enough to be withdrawn before
	}
	return o, opts
}

// enqueue enqueues the job with this number in one of the ways there are.
func (m *mixer) enqueue(n int, r *rand.Rand) error {
	ctx := context.Background()
	o, opts := m.order(n, r)
	m.voice.say("try %d %s", n, cmp.Or(opts.Queue, "default"))
	var e errand.Enqueued
	var err error
	if o.Plan == "tx" {
		mine := m.Keep == 0 // else it would be there after its job
		if mine {
			m.voice.say("tx %d", n)
		}
		err = m.q.Tx(ctx, func(tx *sql.Tx) (err error) {
			if mine {
				if err := addMine(ctx, tx, n); err != nil {
					return err
				}
			}
			e, err = m.q.EnqueueTx(ctx, tx, o, opts)
			return err
		})
	} else {
		e, err = m.q.Enqueue(ctx, o, opts)
	}
	if err != nil {
		m.voice.say("refused %d %v", n, err)
		return err
	}
	if e.Duplicate {
		m.voice.say("refused %d for %s", n, e.ID)
		return nil
	}
	m.voice.say("enqueued %d %s", n, e.ID)
	if m.ids != nil {
		m.mu.Lock()
		m.ids[e.ID.Key()] = e.ID
		m.mu.Unlock()
	}
	if o.Plan == "withdraw" {
		_, err = m.q.Cancel(ctx, e.ID)
	}
	return err
}

// redrive puts back what was dead at the start and what dies here.
func (m *mixer) redrive(dead <-chan int64) {
	ctx := context.Background()
	page, err := m.q.DeadLetters().List(ctx, errand.JobFilter{}, &errand.ListOptions{Limit: 1000})
	for _, j := range page.Jobs {
		if err == nil {
			_, err = m.q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{j.ID}}, nil)
		}
	}
	for key := range dead {
		m.mu.Lock()
		id, ok := m.ids[key]
		m.mu.Unlock()
		if !ok { // enqueued by another process: find its ID
			continue
		}
		_, err = m.q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{id}}, nil)
	}
	_ = err // the error of a broken store is reported by those who send
}

// checkpoint has the WAL written back and cut, now and then.
func (m *mixer) checkpoint() {
	db, err := raw(m.DB)
	if err != nil {
		return
	}
	r := rand.New(rand.NewPCG(m.Seed, 99))
	for {
		<-time.After(time.Duration(r.IntN(200)) * time.Millisecond)
		mode := []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"}[r.IntN(4)]
		if _, err := db.Exec("PRAGMA wal_checkpoint(" + mode + ")"); err != nil {
			return // the disk is gone, or busy
		}
	}
}

// untilDone waits until no job is left that could run, redriving what dies.
func (m *mixer) untilDone() error {
	ctx := context.Background()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		counts, err := m.q.Counts(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, c := range counts {
			switch c.State {
			case storage.Done, storage.Cancelled:
			case storage.Dead:
				left++
				if _, err := m.redriveOne(ctx); err != nil {
					return err
				}
			default:
				left++
			}
		}
		if left == 0 {
			return nil
		}
	}
	return nil
}

// redriveOne puts a dead job back, so that nothing dead is left at the end.
func (m *mixer) redriveOne(ctx context.Context) (errand.RedriveResult, error) {
	page, err := m.q.DeadLetters().List(ctx, errand.JobFilter{}, &errand.ListOptions{Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return errand.RedriveResult{}, err
	}
	return m.q.DeadLetters().Redrive(ctx, errand.JobFilter{IDs: []errand.ID{page.Jobs[0].ID}}, nil)
}

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }
