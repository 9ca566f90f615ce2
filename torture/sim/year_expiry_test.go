//go:build !race

package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage/sqlite"
)

// settled is how long after its clock has changed a device has noticed.
const settled = 2 * time.Minute

// display is a device of which most jobs have to start within a time, and whose clock is
// often wrong.
type display struct {
	t    *testing.T
	dice *rand.Rand
	path string
	wall wall
	gate *errand.Switch

	queue *errand.Queue
	stop  func()

	mu     sync.Mutex
	jobs   []*showing
	named  map[errand.ID]*showing
	off    time.Duration // of the queue's clock: how far it is ahead
	known  bool          // what the clock shows is believed
	counts struct{ started, expired, anew, excused int }
}

// show is what a job of a display is to do.
type show struct{ N int }

func (show) Kind() string { return "show" }

// showing is what is known of a job.
type showing struct {
	within   time.Duration // zero: has no window
	at       time.Time     // when it was enqueued
	changed  bool          // the clock was changed since
	anew     bool          // its window has begun anew, or will
	off      time.Duration // of the clock that the window counts on
	doubtful bool          // that clock was not believed
	excused  bool          // a clock that was believed has jumped ahead since

	startBy, started time.Time // on the queue's clock
	over             bool
}

// A year in which the clock of a device is wrong a third of the time: it boots in 1970,
// and it visits a year ahead and a year back. No job expires before its window has passed
// in elapsed time, but for those that wait while a clock that is believed jumps ahead; none
// starts late on the queue's clock; and while the clock is left alone none outlives its
// window.
func TestYear_Windows(t *testing.T) {
	for _, seed := range yearsOf() {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { (&display{}).run(t, seed, *yearDays) })
	}
}

func (d *display) run(t *testing.T, seed uint64, days int) {
	empty()                                            // outside of the bubble
	dir, err := os.MkdirTemp(tmpfs(t), "errand-year-") //nolint:usetesting // not on a disk, if that can be had
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		d.t, d.dice, d.path, d.named, d.gate = t, rand.New(rand.NewPCG(seed, 1)), filepath.Join(dir, "jobs.db"), map[errand.ID]*showing{}, new(errand.Switch)
		d.gate.Close("dark")
		if err := os.WriteFile(d.path, empty(), 0o600); err != nil {
			t.Fatal(err)
		}
		d.wall.off.Store(int64(in1970()))
		d.boot()
		defer func() { d.halt() }()
		began := time.Now()
		for _, e := range d.plan(days) {
			time.Sleep(time.Until(began.Add(e.at)))
			e.do()
			synctest.Wait()
			d.inTime()
		}
		time.Sleep(4 * day) // longer than any window
		d.gate.Open()
		time.Sleep(time.Hour)
		synctest.Wait()
		d.inTime()
		d.end()
	})
	c := d.counts
	t.Logf("%d days in %v: %d jobs, %d started and %d expired in time, %d of them with a window that began anew; %d excused",
		days, time.Since(real).Round(time.Millisecond), len(d.jobs), c.started, c.expired, c.anew, c.excused)
	if c.started == 0 || c.expired == 0 || c.anew == 0 {
		t.Error("the test shows nothing")
	}
}

// in1970 returns how far a clock is off that shows the year 1970.
func in1970() time.Duration { return -time.Since(time.Unix(0, 0)) - right }

// plan returns what happens within so many days.
func (d *display) plan(days int) (all []event) {
	add := func(at time.Duration, do func()) { all = append(all, event{at, do}) }
	within := func(t time.Duration) time.Duration { return time.Duration(d.dice.Int64N(int64(t))) }
	add(10*time.Hour, func() { d.set(0) }) // for the first time
	for n := range days {
		from := time.Duration(n) * day
		for range 30 {
			add(from+within(day), d.enqueue)
		}
		for _, open := range []time.Duration{time.Hour, 10 * time.Minute, 10 * time.Minute} {
			at := from + within(day)
			add(at, d.gate.Open)
			add(at+open, func() { d.gate.Close("dark") })
		}
		at := from + within(day)
		right := at + 10*time.Hour + within(10*time.Hour)
		far := []time.Duration{day, 365 * day}[d.dice.IntN(2)]
		switch n % 6 {
		case 1:
			off := within(8 * time.Hour)
			add(at, func() { d.reboot(off, in1970) })
		case 3:
			add(at, func() { d.set(far) })
		case 5:
			if d.dice.IntN(2) == 0 {
				add(at, func() { d.set(-far) })
			} else {
				add(at, func() { d.reboot(time.Hour, func() time.Duration { return -far }) })
			}
		default:
			continue
		}
		add(right, func() { d.set(0) })
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return all
}

// enqueue enqueues a job. One of four has no window.
func (d *display) enqueue() {
	j := &showing{at: time.Now()}
	switch d.dice.IntN(4) {
	case 0:
	case 1:
		j.within = 15*time.Minute + time.Duration(d.dice.Int64N(int64(3*day)))
	default:
		j.within = 15*time.Minute + time.Duration(d.dice.Int64N(int64(6*time.Hour)))
	}
	d.mu.Lock() // so that it is known before it starts
	defer d.mu.Unlock()
	j.off, j.doubtful, j.anew = d.off, !d.known, !d.known
	n := len(d.jobs)
	d.jobs = append(d.jobs, j)
	e, err := d.queue.Enqueue(context.Background(), show{N: n}, &errand.JobOptions{StartWithin: j.within})
	if err != nil {
		d.t.Fatal(err)
	}
	d.named[e.ID] = j
}

// set sets the wall clock, and returns once that is believed, if it can be.
func (d *display) set(off time.Duration) {
	d.wall.off.Store(int64(off))
	d.changed(off)
}

// changed is called as the wall clock has changed.
func (d *display) changed(off time.Duration) {
	d.mu.Lock()
	for _, j := range d.jobs {
		j.changed = true
	}
	wait := settled
	switch {
	case d.wall.now().Before(clock.Built):
		d.known = false
		d.mu.Unlock()
		return
	case off < d.off: // the queue's clock was ahead, unless this one is wrong
		wait += clock.Patience
	}
	for _, j := range d.jobs {
		switch {
		case j.over || j.within == 0:
		case j.doubtful || j.off > off:
			j.anew, j.off, j.doubtful = true, off, false
		case off > j.off:
			j.excused = true
		}
	}
	d.off, d.known = off, true
	d.mu.Unlock()
	time.Sleep(wait)
	synctest.Wait()
}

// reboot has the device off for a time, and its clock be wrong then.
func (d *display) reboot(off time.Duration, wrong func() time.Duration) {
	d.halt()
	time.Sleep(off)
	d.mu.Lock()
	d.off -= off
	d.mu.Unlock()
	d.wall.off.Store(int64(wrong()))
	d.boot()
	d.changed(wrong())
}

func (d *display) boot() {
	store, err := sqlite.Open(d.path, &sqlite.Options{SingleProcess: true, Ballast: -1, Logger: quiet})
	if err != nil {
		d.t.Fatal(err)
	}
	d.queue, err = errand.New(context.Background(), store, &errand.Options{
		Clock: d.wall.now, Logger: quiet, Retention: -1, Queues: map[string]errand.QueueOptions{"default": {Gate: d.gate}},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	events, err := d.queue.Subscribe(context.Background(), errand.EventFilter{
		Types: []errand.EventType{errand.EventStarted, errand.EventExpired},
	}, 10_000)
	if err != nil {
		d.t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for e := range events.Events() {
			d.happened(&e)
		}
	})
	// A worker all of whose gates are closed leases nothing, and so ends nothing.
	q, w := d.queue, errand.NewWorker(d.queue, &errand.WorkerOptions{Queues: []string{"default", "open"}})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[show]) error {
		info, err := q.Job(ctx, job.ID)
		d.mu.Lock()
		d.jobs[job.Args.N].startBy = info.StartBy
		d.mu.Unlock()
		return err
	})
	jitter := rand.New(rand.NewPCG(d.dice.Uint64(), 0))
	ctx, cancel := context.WithCancel(engine.WithRand(context.Background(), jitter.Float64))
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			d.t.Error(err)
		}
		events.Close()
	})
	d.stop = func() {
		cancel()
		running.Wait()
	}
}

func (d *display) halt() {
	d.stop()
	if err := d.queue.Close(); err != nil {
		d.t.Error(err)
	}
}

// happened checks the start of a job or its end.
func (d *display) happened(e *errand.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.named[e.ID]
	if j == nil || j.over {
		d.t.Errorf("job %v %s, known %t", e.ID, e.Type, j != nil)
		return
	}
	j.over = true
	if e.Type == errand.EventStarted {
		d.counts.started++
		j.started = e.At
	} else {
		d.counts.expired++
	}
	passed := time.Since(j.at)
	if j.anew && e.Type == errand.EventExpired {
		d.counts.anew++
	}
	switch early := e.Type == errand.EventExpired && passed < j.within; {
	case early && j.excused:
		d.counts.excused++
	case early:
		d.t.Errorf("a job expired %v after its enqueue, and has %v", passed, j.within)
	case j.within == 0 || j.changed || j.anew:
	case e.Type == errand.EventStarted && passed >= j.within, passed > j.within+settled:
		d.t.Errorf("a job %s %v after its enqueue, and has %v", e.Type, passed, j.within)
	}
}

// inTime checks that what has started was not late on the queue's clock.
func (d *display) inTime() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, j := range d.jobs {
		if j.within == 0 || j.started.IsZero() || j.startBy.IsZero() {
			continue
		}
		if !j.started.Before(j.startBy) {
			d.t.Errorf("job %d has started at %v, and had to before %v", i, j.started, j.startBy)
		}
		j.started = time.Time{} // once is enough
	}
}

// end checks that each job has started or expired.
func (d *display) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []error
	for i, j := range d.jobs {
		if !j.over {
			left = append(left, fmt.Errorf("job %d waits, it has %v", i, j.within))
		}
	}
	if err := errors.Join(left...); err != nil {
		d.t.Error(err)
	}
}
