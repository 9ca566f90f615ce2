package apitest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

const (
	day = 24 * time.Hour
	// clockPatience is how long a clock that is set back must stay so.
	clockPatience = 10 * time.Minute
	// plausibly is how far ahead of a bubble's time a wall clock must be not to
	// be before the program was built.
	plausibly = 40 * 365 * day
)

func TestQueue_Clock(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		var log bytes.Buffer
		a.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a.restart(0)
		want := func(ahead time.Duration, plausible bool, jumps int64) {
			t.Helper()
			got := a.Clock()
			if time.Until(got.Now) != ahead || got.Plausible != plausible || got.Jumps != jumps {
				t.Errorf("%v ahead: %+v: want %v, %v, %d", time.Until(got.Now), got, ahead, plausible, jumps)
			}
		}
		want(0, false, 0)
		a.wall.set(plausibly)
		want(plausibly, true, 1)
		time.Sleep(time.Hour)
		want(plausibly, true, 1)
		a.wall.set(plausibly - 5*time.Second) // no jump
		want(plausibly, true, 1)
		time.Sleep(time.Minute)
		want(plausibly-5*time.Second, true, 1)
		a.wall.set(plausibly - time.Hour)
		want(plausibly-5*time.Second, true, 2)
		enqueue(t, a.Queue, note{}, nil) // so that the time is written
		time.Sleep(10 * time.Minute)
		want(plausibly-time.Hour, true, 2) // it is the wall clock that is right
		synctest.Wait()                    // for the log
		for _, text := range []string{
			`level=WARN msg="errand: the wall clock has jumped" by_s=1.26144e+09`, `level=WARN msg="errand: the wall clock has jumped" by_s=-3595`,
			`level=WARN msg="errand: the queue's time goes back to the wall clock" by_s=-3595`,
		} {
			if n := strings.Count(log.String(), text); n != 1 {
				t.Errorf("%d times in the log, want once: %s\n%s", n, text, log.String())
			}
		}
		// A board that is switched off and on.
		a.wall.set(-20 * 365 * day)
		a.restart(time.Hour)
		synctest.Wait()
		if !strings.Contains(log.String(), `level=WARN msg="errand: the wall clock is behind what the database has seen"`) {
			t.Errorf("the log does not say where the wall clock begins:\n%s", log.String())
		}
		if got := a.Clock(); got.Plausible || got.Jumps != 0 || got.Now.Before(time.Now().Add(plausibly-2*time.Hour)) {
			t.Errorf("begins with %+v: want no sooner than it was", got)
		}
	})
}

// timeless is a store that cannot tell how late it was.
type timeless struct {
	storage.Store
	storage.Timekeeper
}

func (timeless) Clock(context.Context) (time.Time, bool, error) {
	return time.Time{}, false, errand.ErrCorrupt
}

func TestNew_WithoutTheTime(t *testing.T) {
	if q, err := errand.New(t.Context(), timeless{Store: storagetest.NewMemory().Open()}, nil); !errors.Is(err, errand.ErrCorrupt) {
		t.Errorf("New gave %v, %v", q, err)
	}
}

// asker is a handler of logs that wants to know the time.
type asker struct {
	slog.Handler
	q *errand.Queue
}

func (h *asker) Handle(context.Context, slog.Record) error {
	h.q.Clock()
	return nil
}

func TestQueue_Clock_AskedByTheLogger(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		h := &asker{Handler: slog.NewTextHandler(t.Output(), nil), q: a.Queue}
		a.opts.Logger = slog.New(h)
		a.restart(0)
		h.q = a.Queue
		a.wall.set(day)
		if got := a.Clock().Jumps; got != 1 {
			t.Errorf("%d jumps, want 1", got)
		}
	})
}

// A schedule that is declared while nobody knows the time begins once it is known.
func TestOptions_WaitForClock(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.opts.WaitForClock = true
		a.restart(0)
		a.declare(errand.Schedule{Name: "new", Spec: "@hourly", Missed: errand.MissedAll(100)})
		a.work(nil)
		time.Sleep(150 * time.Minute)
		a.wall.set(plausibly)
		time.Sleep(time.Minute)
		if got := a.took(); len(got) > 0 {
			t.Errorf("ran %v, want nothing yet", got)
		}
		time.Sleep(time.Hour)
		if got := a.ticks("new"); len(got) != 1 {
			t.Errorf("ran %v, want one", got)
		}
	})
}

// So it does whichever reading of the clock is the last wrong one.
func TestOptions_WaitForClock_anyReading(t *testing.T) {
	for n := 1; n <= 60; n++ {
		onMemory(t, func(t *testing.T, a *agenda) {
			a.opts.WaitForClock = true
			a.restart(0)
			a.wall.setAfter(n, plausibly)
			a.declare(errand.Schedule{Name: "new", Spec: "@hourly", Missed: errand.MissedAll(100)})
			a.work(nil)
			time.Sleep(90 * time.Minute)
			a.wall.set(plausibly)
			time.Sleep(time.Hour)
			if got := len(a.ticks("new")); got < 1 || got > 3 {
				t.Errorf("set right after %d readings: ran %d, want one an hour at most", n, got)
			}
		})
	}
}

// wrongClock is a test in which the clock is set wrong. Times in it are counted
// from its start, at midnight.
type wrongClock struct {
	*agenda
	start time.Time
	all   []ran
}

// The jobs of the test, told by note.N.
const (
	aLong = iota + 1
	aRetry
	aDelayed
	aDated
	anHourly
	aNine
)

const (
	retryDelay = 20 * time.Minute
	noticed    = 15 * time.Second // after a jump
)

// until lets the time pass and then sets the clock, that much off. It is off by
// whole days, so that the time of day is always right.
func (c *wrongClock) until(at, off time.Duration) {
	time.Sleep(time.Until(c.start.Add(at)))
	synctest.Wait()
	c.all = append(c.all, c.took()...)
	c.wall.set(plausibly + off)
}

// ran returns when jobs ran, after one time and until another.
func (c *wrongClock) ran(n int, after, until time.Duration) (all []time.Duration) {
	for _, r := range c.all {
		if at := r.at.Sub(c.start); r.n == n && at > after && at <= until {
			all = append(all, at)
		}
	}
	return all
}

// each returns the times of day of a span.
func each(step, after, until time.Duration, first time.Duration) (all []time.Duration) {
	for at := first; at <= until; at += step {
		if at > after {
			all = append(all, at)
		}
	}
	return all
}

//errand:shows [jump] | | the clock is set back three days, forward thirty, and right again
func TestSchedule_ClockSetWrong(t *testing.T) {
	bubbled(t, onDisk(t), func(t *testing.T, a *agenda) {
		a.wall.set(plausibly)
		a.restart(0)
		a.lease = 12 * time.Hour
		c := &wrongClock{agenda: a, start: time.Now()}
		release, long := make(chan struct{}), make(chan error, 2)
		a.work(func(ctx context.Context, job *errand.Job[note]) error {
			switch job.Args.N {
			case aLong:
				select {
				case <-release:
				case <-ctx.Done():
				}
				long <- context.Cause(ctx)
			case aRetry:
				return errors.New("not yet")
			}
			return nil
		})
		a.declare(errand.Schedule{Name: "hourly", Spec: "30 * * * *", Args: note{N: anHourly}})
		a.declare(errand.Schedule{Name: "nine", Spec: "0 9 * * *", Args: note{N: aNine}})
		running := enqueue(t, a.Queue, note{N: aLong}, nil)
		retry := policy.Policy{MinDelay: retryDelay, MaxDelay: retryDelay, Retries: 1000, Jitter: policy.NoJitter}
		enqueue(t, a.Queue, note{N: aRetry}, &errand.JobOptions{Policy: &retry})
		enqueue(t, a.Queue, note{N: aDelayed}, &errand.JobOptions{Delay: 10 * time.Hour})
		dated := enqueue(t, a.Queue, note{N: aDated}, &errand.JobOptions{DueAt: a.Clock().Now.Add(60 * day)})

		const back, forward, right, end = 6 * time.Hour, 20 * time.Hour, 30 * time.Hour, 60 * time.Hour
		c.until(back, -3*day)
		c.until(forward, 27*day)
		c.until(right, 0)
		c.until(end, 0)

		for _, span := range []struct {
			name         string
			after, until time.Duration
		}{
			{"before", 0, back}, {"set back", back, forward},
			{"set forward", forward + noticed, right}, {"right again", right, end},
		} {
			for _, s := range []struct {
				n           int
				step, first time.Duration
			}{{anHourly, time.Hour, 30 * time.Minute}, {aNine, day, 9 * time.Hour}} {
				if got, want := c.ran(s.n, span.after, span.until), each(s.step, span.after, span.until, s.first); !slices.Equal(got, want) {
					t.Errorf("%s: schedule %d ran at %v, want %v", span.name, s.n, got, want)
				}
			}
		}
		// What was missed in thirty days that were none.
		for _, n := range []int{anHourly, aNine} {
			if got := c.ran(n, forward, forward+noticed); len(got) != 1 {
				t.Errorf("set forward: schedule %d ran at %v, want once", n, got)
			}
		}
		// Delays go by time that passes. They may begin anew when the clock is set
		// back, once it is believed after ten minutes.
		const believed = 10*time.Minute + noticed
		last := time.Duration(0)
		for _, at := range append(c.ran(aRetry, 0, end), end) {
			if at-last > 2*retryDelay || last > right && at-last > retryDelay+noticed && at-right > believed+retryDelay {
				t.Errorf("no retry from %v to %v", last, at)
			}
			last = at
		}
		if got := c.ran(aRetry, right, right+believed+retryDelay); len(got) == 0 {
			t.Errorf("no retry until %v after the clock was right again", believed+retryDelay)
		}
		if got := c.ran(aDelayed, 10*time.Hour-1, back+believed+10*time.Hour); len(got) != 1 || len(c.ran(aDelayed, 0, end)) != 1 {
			t.Errorf("what was delayed by ten hours ran at %v", c.ran(aDelayed, 0, end))
		}
		if got := lookUp(t, a.Queue, dated); got.State != errand.Scheduled || !got.DueAt.Equal(c.start.Add(plausibly+60*day)) {
			t.Errorf("what has a date is %s for %v", got.State, got.DueAt)
		}
		if j := lookUp(t, a.Queue, running); j.State != errand.Running || j.Attempt != 1 {
			t.Errorf("the running job is %s in attempt %d", j.State, j.Attempt)
		}
		close(release)
		if err := <-long; err != nil {
			t.Errorf("the context of the running job ended: %v", err)
		}
		if got := a.Clock(); got.Jumps != 3 || !got.Now.Equal(a.wall.now()) {
			t.Errorf("in the end %+v: want three jumps, and the true time", got)
		}
	})
}

// another returns a queue of another process on the same database.
func (a *agenda) another() *agenda {
	a.t.Helper()
	b := &agenda{t: a.t, open: a.open, opts: a.opts}
	b.start()
	a.t.Cleanup(func() {
		if err := b.Close(); err != nil {
			a.t.Error(err)
		}
	})
	return b
}

func TestQueue_Clock_CatchesUpWithOtherProcesses(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.wall.set(plausibly)
		a.restart(0)
		enqueue(t, a.Queue, note{}, nil)
		a.wall.set(0)
		a.restart(0)
		time.Sleep(time.Hour)
		b := a.another() // begins where the database was an hour ago
		if lag := a.Clock().Now.Sub(b.Clock().Now); lag != time.Hour {
			t.Fatalf("it is %v behind", lag)
		}
		b.work(nil)
		enqueue(t, a.Queue, note{}, nil)
		synctest.Wait()
		if lag := a.Clock().Now.Sub(b.Clock().Now); lag != 0 {
			t.Errorf("it is %v behind", lag)
		}
	})
}

func TestSchedule_DoubtfulClockMakesUpForNothing(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.wall.set(plausibly + 30*day)
		a.restart(0)
		a.declare(errand.Schedule{Name: "minutely", Spec: "* * * * *", Missed: errand.MissedAll(100)})
		a.work(nil)
		time.Sleep(150 * time.Minute)
		a.wall.set(plausibly)
		time.Sleep(clockPatience - time.Minute + 7*time.Second) // between two ticks
		b := a.another()
		b.work(nil)
		time.Sleep(2*time.Minute + 23*time.Second) // between two ticks
		// b began at the time that the database had seen last, seconds ago.
		if ahead := b.Clock().Now.Sub(a.Clock().Now).Round(time.Minute); ahead != 30*day {
			t.Fatalf("one has found out, and the other is %v ahead", ahead)
		}
		a.took()
		b.took()
		time.Sleep(30 * time.Minute)
		if n := len(a.took()) + len(b.took()); n != 30 {
			t.Errorf("%d jobs of 30 ticks", n)
		}
	})
}

// A process without workers, on a board that no clock tells the time.
//
//errand:shows [catch-up] | | two processes without a clock: one began behind the other
func TestQueue_CatchesUpWithoutWorkers(t *testing.T) {
	onMemory(t, func(t *testing.T, a *agenda) {
		a.wall.set(plausibly)
		a.restart(0)
		enqueue(t, a.Queue, note{}, nil)
		a.wall.set(0)
		a.restart(0)
		time.Sleep(18 * time.Hour)
		b := a.another() // begins where the database was 18 hours ago
		a.work(nil)
		enqueue(t, a.Queue, note{}, nil)
		time.Sleep(time.Minute)
		a.took()
		enqueue(t, b.Queue, note{}, &errand.JobOptions{Delay: time.Hour})
		b.declare(errand.Schedule{Name: "hourly", Spec: "@hourly"})
		time.Sleep(time.Minute)
		if got := a.took(); len(got) > 0 {
			t.Errorf("ran %v: none is due", got)
		}
		time.Sleep(time.Hour)
		if got := a.took(); len(got) != 2 {
			t.Errorf("ran %v: want both", got)
		}
	})
}

// vague is a store that cannot tell the time when it is asked again, after
// having thought about it.
type vague struct {
	storage.Store
	storage.Timekeeper
	asked int
	given time.Time
}

func (v *vague) Clock(context.Context) (time.Time, bool, error) {
	if v.asked++; v.asked == 1 {
		return time.Now().Add(time.Hour), false, nil
	}
	time.Sleep(3 * time.Second)
	return time.Time{}, false, storage.ErrBusy
}

func (v *vague) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	v.given = now
	return v.Store.Enqueue(ctx, now, jobs)
}

// Found by the simulation: times are to be no older than the call.
func TestClock_IsLookedAtAgainAfterAStoreThatFailsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storagetest.NewMemory().Open()
		v := &vague{Store: m, Timekeeper: m.(storage.Timekeeper)}
		want := time.Now().Add(time.Hour + 3*time.Second)
		q, err := errand.New(t.Context(), v, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		if _, err := q.Enqueue(t.Context(), note{}, nil); err != nil {
			t.Fatal(err)
		}
		if !v.given.Equal(want) {
			t.Errorf("enqueued at %v, want %v", v.given, want)
		}
	})
}

// The time of a hold that began at a time that cannot be right begins anew when the
// clock is corrected: the hold is not over by the correction.
func TestQueue_Hold_ClockCorrected(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		holds := func(what string, want int) {
			t.Helper()
			if got, err := a.Holds(t.Context()); err != nil || len(got) != want {
				t.Errorf("%s: holds %+v, %v; want %d", what, got, err, want)
			}
		}
		hold := func(queue string) {
			t.Helper()
			if err := a.Hold(t.Context(), errand.Lane{Queue: queue}, &errand.HoldOptions{For: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		hold("doubtful")
		holds("held", 1)
		a.wall.set(plausibly)
		holds("after the clock was corrected", 1)
		hold("believed")
		holds("held both", 2)
		time.Sleep(time.Hour)
		a.wall.set(plausibly + day)
		got, err := a.Holds(t.Context())
		if err != nil || slices.ContainsFunc(got, func(h errand.HoldState) bool { return h.Queue == "believed" }) {
			t.Errorf("an hour later: holds %+v, %v", got, err)
		}
	})
}
