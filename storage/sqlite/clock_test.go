package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func clockOf(t testing.TB, s *sqlite.Store) (time.Time, bool) {
	t.Helper()
	latest, shifting, err := s.Clock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return latest, shifting
}

// What is written has its time in the file with it, whether the store or the
// application commits it.
//
//errand:shows the order of jobs on a board without a clock | | the latest time that a write was given is in the file with that write
func TestClock_NeverLags(t *testing.T) {
	app, s, _ := appStore(t, nil)
	ctx := context.Background()
	jobs := []storage.NewJob{newJob("default", "a")}
	ways := []struct {
		name    string
		enqueue func(now time.Time) error
	}{
		{"Enqueue", func(now time.Time) error {
			_, err := s.Enqueue(ctx, now, jobs)
			return err
		}},
		{"Tx", func(now time.Time) error {
			return inTx(ctx, s, func(tx *sql.Tx) error {
				_, err := s.EnqueueTx(ctx, tx, now, jobs)
				return err
			})
		}},
		{"a transaction of the application", func(now time.Time) error {
			tx, err := app.Begin()
			if err != nil {
				return err
			}
			_, err = s.EnqueueTx(ctx, tx, now, jobs)
			return errors.Join(err, tx.Commit())
		}},
	}
	base := time.Duration(0)
	for _, w := range ways {
		for _, step := range []struct{ at, want time.Duration }{
			{0, 0}, {time.Microsecond, time.Microsecond}, {999 * time.Millisecond, 999 * time.Millisecond},
			{time.Minute, time.Minute}, {time.Second, time.Minute},
		} {
			if err := w.enqueue(t0.Add(base + step.at)); err != nil {
				t.Fatal(err)
			}
			if got, _ := clockOf(t, s); !got.Equal(t0.Add(base + step.want)) {
				t.Errorf("%s: after a write at %v the clock is %v on, want %v", w.name, step.at, got.Sub(t0)-base, step.want)
			}
		}
		base += time.Minute + 300*time.Millisecond
	}
}

// A job that is deleted as it is done leaves nothing behind that has a time. What it needs
// is one page less than the clock would take. The first one writes when its lane last had
// such a job, which is noted once a second.
func TestClock_OfAJobThatIsGone(t *testing.T) {
	s := newDB(t, nil).open()
	ctx := context.Background()
	enqueue(t, s, "a", 2)
	r, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(2, "a")})
	if err != nil || len(r.Leased) != 2 {
		t.Fatalf("%d leased, %v", len(r.Leased), err)
	}
	for i, l := range r.Leased {
		at := t0.Add(time.Duration(i+1) * time.Millisecond)
		finish := []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeDone}}
		if _, err := s.Exchange(ctx, at, storage.Exchange{Finish: finish}); err != nil {
			t.Fatal(err)
		}
		if got, _ := clockOf(t, s); !got.Equal(t0.Add(time.Millisecond)) {
			t.Errorf("after job %d the clock is %v on, want that of the first, 1ms", i+1, got.Sub(t0))
		}
	}
	if c := counts(t, s); len(c) > 0 {
		t.Errorf("counts %v, want no job", c)
	}
}

// What changes nothing is not written for the sake of the clock, but once a second.
// Close writes what is left, unless the clock was stepped back since.
func TestClock_OfWhatChangesNothing(t *testing.T) {
	for _, stepped := range []bool{false, true} {
		d := newDB(t, nil)
		s, other := d.open(), d.open()
		ctx := context.Background()
		job := newJob("default", "a")
		job.Unique = "k"
		id := storage.ID{}
		raw := d.raw()
		defer raw.Close()
		raw.SetMaxOpenConns(1)
		version := func() (n int64) { // changes with each commit that others write
			if err := raw.QueryRow("PRAGMA data_version").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		commits := func(at time.Duration) bool {
			t.Helper()
			was := version()
			out, err := s.Enqueue(ctx, t0.Add(at), []storage.NewJob{job})
			if err != nil {
				t.Fatal(err)
			}
			id = out[0].ID
			err = inTx(ctx, s, func(tx *sql.Tx) error {
				if _, err := s.CancelTx(ctx, tx, t0.Add(at), storage.NewID(t0, 1, 99), storage.Retention{}); !errors.Is(err, storage.ErrNotFound) {
					return fmt.Errorf("CancelTx: %w", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return version() != was
		}
		for _, step := range []struct {
			at   time.Duration
			want bool
		}{{0, true}, {0, false}, {999_999 * time.Microsecond, false}, {time.Second, true}, {1900 * time.Millisecond, false}} {
			if got := commits(step.at); got != step.want {
				t.Errorf("at %v a commit was written: %t, want %t", step.at, got, step.want)
			}
		}
		want := t0.Add(1900 * time.Millisecond)
		if stepped {
			want = t0.Add(-time.Hour)
			if _, err := other.StepClock(ctx, want, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := clockOf(t, other); !got.Equal(want) {
			t.Errorf("stepped %t: after Close the clock is %v on, want %v", stepped, got.Sub(t0), want.Sub(t0))
		}
		if j, err := other.Job(ctx, id); err != nil || j.State != storage.Ready {
			t.Errorf("the job: %v, %v", j, err)
		}
	}
}

func TestClock_NotOfATransactionThatVanishes(t *testing.T) {
	app, s, _ := appStore(t, nil)
	enqueue(t, s, "a", 1)
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(context.Background(), tx, t0.AddDate(1, 0, 0), []storage.NewJob{newJob("default", "a")}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if got, _ := clockOf(t, s); !got.Equal(t0) {
		t.Errorf("the clock is %v, want %v", got, t0)
	}
}

// Another process is told how far the clock of this one is; what it has written
// itself is no news.
func TestClock_OthersAreTold(t *testing.T) {
	d := newDB(t, nil)
	s, other := d.open(), d.open()
	rings := bell(t, other)
	first := func(wanted func(storage.Event) bool) storage.Event {
		t.Helper()
		for {
			select {
			case e := <-rings:
				if wanted(e) || !e.Clock.IsZero() {
					return e
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("it was not told")
			}
		}
	}
	if _, err := other.Enqueue(context.Background(), t0.Add(time.Minute), []storage.NewJob{newJob("default", "a")}); err != nil {
		t.Fatal(err)
	}
	sched := newSchedule("a")
	for range 4 { // one or two it would be told of anyway
		sched.Plan = put(t, s, sched)
		if e := first(func(e storage.Event) bool { return e.Schedules }); !e.Clock.IsZero() {
			t.Fatalf("it was told of its own %v", e.Clock)
		}
	}
	ahead := t0.AddDate(0, 1, 0)
	if _, err := s.Enqueue(context.Background(), ahead, []storage.NewJob{newJob("default", "a")}); err != nil {
		t.Fatal(err)
	}
	if e := first(func(storage.Event) bool { return false }); !e.Clock.Equal(ahead) {
		t.Errorf("it was told of %v, want %v", e.Clock, ahead)
	}
}

// wrongMonth fills a store with n live jobs and n dead ones, all of them
// written a month late.
func wrongMonth(t testing.TB, d *db, s *sqlite.Store, n int) (late time.Time) {
	t.Helper()
	ctx := context.Background()
	late = t0.AddDate(0, 1, 0)
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
		if i%3 > 0 {
			jobs[i].Delay = time.Duration(i) * time.Second
		}
	}
	if _, err := s.Enqueue(ctx, late, jobs); err != nil {
		t.Fatal(err)
	}
	doomed := make([]storage.NewJob, n)
	for i := range doomed {
		doomed[i] = newJob("default", "doomed")
	}
	if _, err := s.Enqueue(ctx, late, doomed); err != nil {
		t.Fatal(err)
	}
	r, err := s.Exchange(ctx, late, storage.Exchange{LeaseDuration: time.Minute, Wants: want(n, "doomed")})
	if err != nil {
		t.Fatal(err)
	}
	x := storage.Exchange{LeaseDuration: time.Minute}
	for _, l := range r.Leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent})
	}
	if _, err := s.Exchange(ctx, late, x); err != nil {
		t.Fatal(err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_dead"); n != int64(len(jobs)) {
		t.Fatalf("%d dead jobs, want %d", n, len(jobs))
	}
	return late
}

// A pass goes in steps that each do so much and no more, and outlives the
// process that began it.
func TestStepClock_BoundedSteps(t *testing.T) {
	const n = 2500
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	late := wrongMonth(t, d, s, n)
	wrong := func() (live, dead int64) {
		at := t0.UnixMicro()
		return d.number("SELECT COUNT(*) FROM errand_job WHERE state = 2 AND due_at > ?1 OR due_at - delay > ?1", at),
			d.number("SELECT COUNT(*) FROM errand_dead WHERE ended_at > ?1", at)
	}
	if latest, shifting := clockOf(t, s); !latest.Equal(late) || shifting {
		t.Fatalf("the clock is %v, shifting %t", latest, shifting)
	}
	step := func(after int64) int64 {
		t.Helper()
		live, dead := wrong()
		next, err := s.StepClock(context.Background(), t0, after)
		if err != nil {
			t.Fatal(err)
		}
		if next != 0 && next <= after {
			t.Fatalf("after %d comes %d", after, next)
		}
		liveNow, deadNow := wrong()
		if live-liveNow > 1000 || dead-deadNow > 500 {
			t.Errorf("one step has shifted %d live and %d dead jobs", live-liveNow, dead-deadNow)
		}
		if latest, shifting := clockOf(t, s); !latest.Equal(t0) || shifting != (next != 0) {
			t.Errorf("the clock is %v, shifting %t, next %d", latest, shifting, next)
		}
		return next
	}
	step(step(0))
	s.Kill()
	s = d.open()
	if latest, shifting := clockOf(t, s); !latest.Equal(t0) || !shifting {
		t.Errorf("after a kill in the midst of it the clock is %v, shifting %t", latest, shifting)
	}
	steps := 0
	for after := step(0); after != 0; after = step(after) {
		steps++
	}
	if live, dead := wrong(); live != 0 || dead != 0 || steps > 10 {
		t.Errorf("%d live and %d dead jobs stayed as they were in %d steps", live, dead, steps)
	}
	due := d.number("SELECT COUNT(*) FROM errand_job WHERE state = 1 AND due_at - delay = ?1", t0.UnixMicro())
	if want := d.number("SELECT COUNT(*) FROM errand_job WHERE state = 1"); due != want || due < n/2 {
		t.Errorf("%d jobs of %d are due their delay after the step", due, want)
	}
	d.Invariants(t)
}

// Workers wait for the earliest due time they know of; a step brings earlier ones.
func TestStepClock_WorkersAreTold(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	j := newJob("default", "a")
	j.Delay = time.Hour
	if _, err := s.Enqueue(context.Background(), t0.AddDate(0, 1, 0), []storage.NewJob{j}); err != nil {
		t.Fatal(err)
	}
	events := make(chan storage.Event, 100)
	defer s.Notify(func(e storage.Event) { events <- e })()
	if _, err := s.StepClock(context.Background(), t0, 0); err != nil {
		t.Fatal(err)
	}
	for len(events) > 0 { // rung before StepClock returns
		if (<-events).Due.Equal(t0.Add(time.Hour)) {
			return
		}
	}
	t.Error("they were not told")
}

// BenchmarkStepClock is one step in which every job is shifted.
func BenchmarkStepClock(b *testing.B) {
	d := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	late := wrongMonth(b, d, s, 1000)
	for b.Loop() {
		late = late.Add(-time.Second)
		if _, err := s.StepClock(context.Background(), late, 0); err != nil {
			b.Fatal(err)
		}
	}
}
