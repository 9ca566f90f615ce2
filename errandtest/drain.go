package errandtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// DrainOptions configure [Drain]. Nil and the zero value mean defaults.
type DrainOptions struct {
	// Scheduled is true if Drain moves the time on to jobs that are due later: retries,
	// snoozes, delays, and jobs that are held until a time. Ticks of schedules are not waited
	// for. It needs a queue of [New] or [NewOn], or a bubble of testing/synctest. If false,
	// such jobs are left.
	Scheduled bool
	// AllowStuck is true if jobs may be left that no time will have run: behind a closed gate,
	// a hold without an end or a dead job of their group. If false, they fail the test.
	AllowStuck bool
	// Max is how many attempts may start before the test fails. If zero, 1,000.
	Max int
	// Timeout is how long an attempt may run, and how long nothing may happen while jobs
	// should run, before the test fails. If zero, 30 s; in a bubble 24 h of its time.
	Timeout time.Duration
}

// Counts are the numbers of attempts by how they ended, and of jobs that ended without one. The
// names are those of the types of [errand.Event]. The zero value says that nothing was done.
type Counts struct {
	Done, Retried, Snoozed, Unavailable, Interrupted, Crashed, Cancelled, Expired, Dead int
	// LeaseLost are attempts whose outcome was refused, as another worker had the job.
	LeaseLost int
	// Attempts are the attempts that have begun. A crash that a worker recovers is one of an
	// attempt before.
	Attempts int
}

// Drain runs w until no job is left that w can do, and stops it. Jobs that jobs enqueue are
// done too, and so are retries without a delay. Jobs of kinds and queues that w does not work
// for are left. w is a worker on q that has not been run: each Drain needs one of its own.
//
// Drain always ends. The test fails, with the reasons of [errand.Queue.Why], if more than Max
// attempts begin, if nothing happens for Timeout, or if jobs of w are stuck. It also fails if
// Run returns an error. Other workers and goroutines of the test may use the queue meanwhile.
// What they do counts too, and Drain ends when it finds nothing left to do.
func Drain(t testing.TB, q *errand.Queue, w *errand.Worker, o *DrainOptions) Counts {
	t.Helper()
	d := &drain{DrainOptions: *cmp.Or(o, &DrainOptions{}), rig: rigOf(q), news: make(chan struct{}, 1)}
	if d.Max < 0 {
		t.Fatal(&errand.FieldError{Field: "max", Value: d.Max, Limit: "must not be negative"})
	}
	d.Max = cmp.Or(d.Max, 1000)
	others, err := shown(q)
	if err != nil {
		t.Fatalf("errandtest: Drain: %v", err)
	}
	d.workers = others + 1
	d.run = begin(t, q, w, errand.EventFilter{}, d.Timeout)
	if d.Scheduled && !d.bubble && (d.rig == nil || d.rig.clock.wall == nil) {
		_ = d.stop(true)
		t.Fatal("errandtest: Drain: Scheduled needs a queue of errandtest.New or NewOn, or a bubble of testing/synctest")
	}
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		d.listen()
	}()
	err = d.work()
	left := ""
	if err != nil {
		left = waiting(q)
	}
	err = errors.Join(err, d.stop(err != nil))
	<-listened
	if missed := d.events.Missed(); missed > 0 {
		err = errors.Join(err, fmt.Errorf("%d events were missed, the counts are wrong", missed))
	}
	if d.counts.Attempts > d.Max {
		err = fmt.Errorf("jobs go on without end: more than %d attempts have begun", d.Max)
	}
	if err != nil {
		t.Fatalf("errandtest: Drain: after %d attempts: %v%s", d.counts.Attempts, err, left)
	}
	if len(d.stuck) > 0 && !d.AllowStuck {
		t.Fatalf("errandtest: Drain: jobs are left that no time will have run:\n\t%s", strings.Join(d.stuck, "\n\t"))
	}
	return d.counts
}

// drain is a run of Drain.
type drain struct {
	DrainOptions
	*run
	rig     *rig // nil: the queue is not of New or NewOn
	workers int  // how many show that they run
	counts  Counts
	news    chan struct{} // holds one if something has happened
	stuck   []string
}

// listen counts what happens until the subscription ends, and stops the worker after too many
// attempts: a bubble in which one job follows another never comes to rest.
func (d *drain) listen() {
	for e := range d.events.Events() {
		if d.count(e); d.counts.Attempts > d.Max {
			d.end()
		}
		if e.Type == errand.EventHeld || e.Type == errand.EventReleased { // by moveTo
			continue
		}
		select {
		case d.news <- struct{}{}:
		default:
		}
	}
}

// work works until nothing is left to do. It looks whenever something has happened, and, as
// not everything is told, every few milliseconds. In a bubble it looks when all wait.
func (d *drain) work() error {
	since, pause := time.Now(), time.Millisecond
	for {
		if d.bubble {
			inBubble()
			pause = 0
		}
		idle, at, err := d.look()
		if err != nil || idle && at.IsZero() {
			return err
		}
		if idle {
			// A throttle goes by the time that passes, and may put a job off again and again. In
			// a bubble that is the same time.
			if err, pause = d.moveTo(at), time.Microsecond; d.bubble {
				since = time.Now()
				continue
			}
		}
		news := false
		if err == nil {
			_, news, err = next(d.run, d.news, since, pause)
		}
		if errors.Is(err, errTimeout) {
			err = fmt.Errorf("nothing has happened for %v", d.timeout)
		}
		if err != nil {
			return err
		}
		if pause = min(2*pause, 20*time.Millisecond); news {
			since, pause = time.Now(), time.Millisecond
		}
	}
}

func (d *drain) count(e errand.Event) {
	c := &d.counts
	if n := map[errand.EventType]*int{
		errand.EventStarted: &c.Attempts, errand.EventDone: &c.Done, errand.EventRetried: &c.Retried, errand.EventSnoozed: &c.Snoozed,
		errand.EventUnavailable: &c.Unavailable, errand.EventInterrupted: &c.Interrupted, errand.EventCrashed: &c.Crashed,
		errand.EventCancelled: &c.Cancelled, errand.EventExpired: &c.Expired, errand.EventDead: &c.Dead, errand.EventLeaseLost: &c.LeaseLost,
	}[e.Type]; n != nil {
		*n++
	}
}

// look reports whether the worker has nothing to do now, and, if Scheduled is set, when it
// will have: zero means never.
func (d *drain) look() (idle bool, at time.Time, err error) {
	ctx := context.Background()
	if n, err := shown(d.queue); err != nil || n < d.workers { // ours has not shown itself yet
		return false, at, err
	}
	counts, err := d.queue.Counts(ctx)
	if err != nil || slices.ContainsFunc(counts, func(c errand.Count) bool { return c.State == errand.Running && c.N > 0 }) {
		return false, at, err
	}
	d.stuck = nil
	for _, c := range counts {
		if c.State != errand.Ready && c.State != errand.Scheduled && c.State != errand.Blocked {
			continue
		}
		busy, next, err := d.lane(&c)
		if err != nil || busy {
			return false, at, err
		}
		if at.IsZero() || !next.IsZero() && next.Before(at) {
			at = next
		}
	}
	if !d.Scheduled {
		at = time.Time{}
	}
	return true, at, nil
}

// shown returns how many workers show what they work for.
func shown(q *errand.Queue) (n int, err error) {
	all, err := q.Workers(context.Background())
	for _, w := range all {
		if !w.Unknown {
			n++
		}
	}
	return n, err
}

// lane looks at the first job of a lane in a state: whether it should start now, or when.
func (d *drain) lane(c *errand.Count) (busy bool, at time.Time, err error) {
	ctx := context.Background()
	page, err := d.queue.Jobs(ctx, errand.JobFilter{States: []errand.State{c.State}, Queue: c.Queue, Kind: c.Kind}, &errand.ListOptions{Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return err == nil, at, err // it has begun meanwhile, or the list goes on
	}
	j := &page.Jobs[0]
	why, err := d.queue.Why(ctx, j.ID)
	if err != nil || why.State != c.State {
		if errors.Is(err, errand.ErrNotFound) {
			err = nil
		}
		return true, at, err
	}
	if j.State == errand.Scheduled { // a ready job is due, also if the clock stands still before its due time
		at = j.DueAt
	}
	for _, r := range why.Reasons {
		switch {
		case r.Code == errand.WhyNoWorker:
			// It is named if it does not show what it works for. Each worker does bulk jobs, and
			// shows that only while it does.
			return r.Worker != "" || c.Queue == bulkQueue, time.Time{}, nil
		case r.Code == errand.WhyBlocked:
			if r.Reason != "" { // behind a dead job
				d.stuck = append(d.stuck, whyText(d.queue, j))
			}
			return false, time.Time{}, nil
		case r.Code == errand.WhyGate, r.Code == errand.WhyHeld && r.Until.IsZero():
			d.stuck = append(d.stuck, whyText(d.queue, j))
			return false, time.Time{}, nil
		case r.Code == errand.WhyHeld && r.Until.After(at):
			at = r.Until
		}
	}
	return !at.After(d.queue.Clock().Now), at, nil
}

// bulkQueue is the queue of [errand.Queue.StartBulk].
const bulkQueue = "errand.bulk"

// tickLane is a lane without jobs.
var tickLane = errand.Lane{Queue: "errandtest"}

// moveTo moves the time on to at, and has the workers look at the clock.
func (d *drain) moveTo(at time.Time) error {
	by := at.Sub(d.queue.Clock().Now)
	if d.bubble {
		time.Sleep(by)
		return nil
	}
	d.rig.clock.moved.Add(int64(max(by, 0)))
	for since := time.Now(); d.queue.Clock().Now.Before(at); { // the clock is asked beside, and may answer late
		if time.Since(since) > d.timeout {
			return fmt.Errorf("the clock of the queue does not move on to %v", at)
		}
		runtime.Gosched()
	}
	// A hold that begins has all workers look for jobs, with the time as it is now.
	ctx := context.Background()
	err := d.queue.Hold(ctx, tickLane, &errand.HoldOptions{By: "errandtest"})
	if err == nil {
		_, err = d.queue.Release(ctx, tickLane, "")
	}
	return err
}
