package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Two processes race for each of thousands of ticks.
//
//errand:shows [race] | | two instances race for each of 2,000 ticks; Relaxed
func TestFire_Race(t *testing.T) {
	const ticks = 2000
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	stores := []*sqlite.Store{d.open(), d.open()}
	sched := newSchedule("a")
	plan := put(t, stores[0], sched)
	end := plan.Next.Add(ticks * time.Second)
	type result struct {
		fired, late int
		err         error
	}
	results := make(chan result, len(stores))
	for _, s := range stores {
		go func() {
			var r result
			for p := plan; p.Next.Before(end) && r.err == nil; {
				var out []storage.Fired
				if out, r.err = s.Fire(context.Background(), p.Next, []storage.Firing{firing("a", p, &sched.Job)}); r.err != nil {
					break
				}
				if p = out[0].Plan; out[0].Applied {
					r.fired++
				} else {
					r.late++
				}
			}
			results <- r
		}()
	}
	fired, late := 0, 0
	for range stores {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		fired, late = fired+r.fired, late+r.late
	}
	if late == 0 {
		t.Error("nobody was ever late: there was no race")
	}
	jobs := d.number("SELECT COUNT(*) FROM errand_job")
	if fired != ticks || jobs != ticks {
		t.Errorf("%d firings, %d jobs: want %d", fired, jobs, ticks)
	}
	if n := d.number("SELECT MAX(n) FROM errand_tick"); n != ticks {
		t.Errorf("%d entries were made, want %d", n, ticks)
	}
	d.Invariants(t)
}

// Who comes too late does not even wait for somebody who writes.
func TestFire_LateTakesNoWriteLock(t *testing.T) {
	d := newDB(t, &sqlite.Options{BusyTimeout: 30 * time.Millisecond})
	s := d.open()
	sched := newSchedule("a")
	old := put(t, s, sched)
	now := fire(t, s, firing("a", old, &sched.Job)).Plan
	rivalDB := d.raw()
	defer rivalDB.Close()
	rival, err := rivalDB.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer rival.Rollback()
	late := []storage.Firing{firing("a", old, &sched.Job), firing("none", old, &sched.Job)}
	out, err := s.Fire(context.Background(), t0, late)
	if err != nil || out[0].Applied || out[0].Plan != now || out[0].Ticks != nil || out[1].Plan != (storage.Plan{}) {
		t.Errorf("late: %+v, %v; want it not applied, with the plan as it is", out, err)
	}
	_, err = s.Fire(context.Background(), t0, append(late, firing("a", now, &sched.Job)))
	if !errors.Is(err, storage.ErrBusy) {
		t.Errorf("in time: error %v, want ErrBusy", err)
	}
}

// Wherever a firing fails, job, plan and history stay together.
func TestFire_FailsAsAWhole(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	sched := newSchedule("a")
	sched.Job.Unique, sched.Job.UniqueScope = "one tick", storage.UniqueForever
	plan := put(t, s, sched)
	for _, table := range []string{"INSERT ON errand_job", "INSERT ON errand_tick", "UPDATE ON errand_schedule", "INSERT ON errand_unique"} {
		d.exec("CREATE TRIGGER fail AFTER " + table + " BEGIN SELECT RAISE(ABORT, 'no'); END")
		if _, err := s.Fire(context.Background(), t0, []storage.Firing{firing("a", plan, &sched.Job)}); err == nil {
			t.Fatalf("%s: the trigger did not fire", table)
		}
		d.exec("DROP TRIGGER fail")
		all, err := s.Schedules(context.Background())
		if err != nil || all[0].Plan != plan {
			t.Errorf("%s: the plan is %+v, %v; want it unchanged: %+v", table, all[0].Plan, err, plan)
		}
		if n := d.number("SELECT (SELECT COUNT(*) FROM errand_job) + (SELECT COUNT(*) FROM errand_tick)"); n != 0 {
			t.Errorf("%s: %d jobs and ticks", table, n)
		}
	}
	if got := fire(t, s, firing("a", plan, &sched.Job)); !got.Applied || got.Ticks[0].Taken != storage.TickFired {
		t.Errorf("got %+v, want it fired: no key is held by a job that never was", got)
	}
	d.Invariants(t)
}

// More ticks at once than the history keeps, as after a long downtime.
func TestFire_FloodOfTicks(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	sched := newSchedule("a")
	f := firing("a", put(t, s, sched), &sched.Job)
	for i := range 120 {
		f.Ticks = append(f.Ticks, storage.NewTick{At: t0.Add(time.Duration(i+1) * time.Second), Taken: storage.TickFired, Job: &sched.Job})
	}
	got := fire(t, s, f)
	kept, err := s.Ticks(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Ticks) != 121 || len(kept) != storage.TickLimit || kept[0] != got.Ticks[120] || kept[49] != got.Ticks[71] {
		t.Errorf("%d ticks, of which %d are kept: want 121, and of them the last 50", len(got.Ticks), len(kept))
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 121 {
		t.Errorf("%d jobs, want 121", n)
	}
	d.Invariants(t)
}

// BenchmarkFire moves a schedule on by a tick, with a job or without.
func BenchmarkFire(b *testing.B) {
	for _, size := range []int{100, 100 << 10} {
		for _, skip := range []bool{true, false} {
			name := fmt.Sprintf("args-%d/job", size)
			if skip {
				name = fmt.Sprintf("args-%d/skipped", size)
			}
			b.Run(name, func(b *testing.B) {
				s := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed}).open()
				sched := newSchedule("a")
				sched.Job.Args = make([]byte, size)
				plan := put(b, s, sched)
				job := &sched.Job
				if skip {
					job = nil
				}
				for b.Loop() {
					plan = fire(b, s, firing("a", plan, job)).Plan
				}
			})
		}
	}
}
