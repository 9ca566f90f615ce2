package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/sqlite/internal/host"
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

// starting is a firing of a schedule as an instance starts.
func starting(t *testing.T, s *sqlite.Store, sched storage.Schedule) storage.Firing {
	t.Helper()
	found, err := s.Schedule(t.Context(), sched.Name)
	if err != nil {
		t.Fatal(err)
	}
	f := firing(sched.Name, found.Plan, &sched.Job)
	f.Start = true
	return f
}

// Many start at a time, again and again: each time one of them fires the schedule.
func TestFire_StartRace(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	sched := newSchedule("a")
	put(t, d.open(), sched)
	for round := range 20 {
		var stores []*sqlite.Store
		for range 4 {
			stores = append(stores, d.open())
		}
		applied := make(chan bool, len(stores))
		for _, s := range stores {
			f := starting(t, s, sched)
			go func() {
				for { // another may have come first, and raised the revision
					out, err := s.Fire(context.Background(), t0, []storage.Firing{f})
					if err != nil {
						t.Error(err)
					}
					if err != nil || out[0].Applied || out[0].Plan.Revision == f.Revision {
						applied <- err == nil && out[0].Applied
						return
					}
					f.Revision = out[0].Plan.Revision
				}
			}()
		}
		n := 0
		for range stores {
			if <-applied {
				n++
			}
		}
		if n != 1 {
			t.Errorf("round %d: %d starts took effect, want 1", round, n)
		}
		for i, s := range stores {
			if i%2 == 0 {
				s.Kill()
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if n := d.number("SELECT COUNT(*) FROM errand_start"); n != 4 {
		t.Errorf("%d starts are noted, want those of the last round", n)
	}
}

// Another process that looks at an instance which is gone is not taken for it: workers look all
// the time.
func TestFire_StartWhileOthersLook(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	sched := newSchedule("a")
	put(t, a, sched)
	if !fire(t, a, starting(t, a, sched)).Applied {
		t.Fatal("the first start took no effect")
	}
	look, err := os.OpenFile(d.instanceFile(a), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	a.Kill()
	if free, err := host.TryShared(look); !free || err != nil {
		t.Fatalf("the lock of an instance that is gone: %v, %v", free, err)
	}
	if !fire(t, b, starting(t, b, sched)).Applied {
		t.Error("a start took no effect beside one who looks")
	}
}

// One that lives has started the schedule also when it is registered anew, see
// TestInstance_RegistersAnew, and when its file is gone.
func TestFire_StartOfOneRegisteredAnew(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	sched := newSchedule("a")
	put(t, a, sched)
	if !fire(t, a, starting(t, a, sched)).Applied {
		t.Fatal("the first start took no effect")
	}
	was := a.InstanceNumber()
	if err := os.Remove(d.instanceFile(a)); err != nil {
		t.Fatal(err)
	}
	if fire(t, b, starting(t, b, sched)).Applied {
		t.Error("a start took effect beside a process that may live")
	}
	d.exec("DELETE FROM errand_instance WHERE instance = ?1", was)
	d.exec("UPDATE errand_number SET n = n + 1 WHERE id = 4")
	enqueue(t, a, "a", 1)
	lease(t, a, 1, "a")
	if a.InstanceNumber() == was {
		t.Fatal("it is not registered anew")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := d.open()
	if fire(t, c, starting(t, c, sched)).Applied || fire(t, a, starting(t, a, sched)).Applied {
		t.Error("a start took effect beside an instance that is registered anew")
	}
}

// A start that comes to nothing writes nothing, the second time.
func TestFire_StartedWritesNothing(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	sched := newSchedule("a")
	put(t, a, sched)
	fire(t, a, starting(t, a, sched))
	fire(t, b, starting(t, b, sched))
	before, _ := d.log()
	for _, s := range []*sqlite.Store{a, b} {
		if fire(t, s, starting(t, s, sched)).Applied {
			t.Error("a second start took effect")
		}
	}
	if after, _ := d.log(); after != before {
		t.Errorf("%d pages of the log, and %d before", after, before)
	}
}

// A file of a build that knew of no starts is opened, and has them then.
func TestFire_StartInAnOldFile(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	sched := newSchedule("a")
	put(t, s, sched)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.exec("DROP TABLE errand_start; DROP TABLE errand_kept; DROP INDEX errand_option_rest; DROP TABLE errand_origin; DROP TABLE errand_sample; DROP TABLE errand_audit; ALTER TABLE errand_cause DROP COLUMN first; ALTER TABLE errand_schedule DROP COLUMN wall; ALTER TABLE errand_unique DROP COLUMN since; UPDATE errand_number SET n = 1 WHERE id = 0; DELETE FROM errand_migration WHERE version > 1")
	if s, err := sqlite.Open(d.path, &sqlite.Options{ReadOnly: true}); !errors.Is(err, storage.ErrUnsupportedDB) {
		t.Errorf("opened for reading alone: %v, %v", s, err)
	}
	found, err := sqlite.Examine(context.Background(), d.path, true, t0)
	if err != nil || slices.ContainsFunc(found, sqlite.Finding.Bad) {
		t.Errorf("examined: %v, %v", found, err)
	}
	s = d.open()
	if !fire(t, s, starting(t, s, sched)).Applied {
		t.Error("the first start took no effect")
	}
}

// Of the jobs in a file of a build that knew only of the last one of a schedule that one is known,
// also if it is dead and redriven.
func TestFire_OverlapInAnOldFile(t *testing.T) {
	for _, ends := range []storage.Outcome{0, storage.OutcomeDead} {
		d := newDB(t, nil)
		s := d.open()
		ctx := context.Background()
		var plans []storage.Plan
		for i := range 20 { // keys of two digits
			sched := newSchedule(fmt.Sprint("s", i))
			sched.SkipOverlap = true
			plans = append(plans, fire(t, s, firing(sched.Name, put(t, s, sched), &sched.Job)).Plan)
		}
		last, next := lease(t, s, 20, "a")[19], newJob("default", "a")
		if ends != 0 {
			x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: last.Lease, Outcome: ends, Reason: storage.ReasonPermanent}}}
			if _, err := s.Exchange(ctx, t0, x); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		d.exec(`DROP INDEX errand_option_rest; DROP TABLE errand_origin; DROP TABLE errand_sample; DROP TABLE errand_audit; ALTER TABLE errand_cause DROP COLUMN first; ALTER TABLE errand_schedule DROP COLUMN wall; ALTER TABLE errand_unique DROP COLUMN since; UPDATE errand_job SET options = 0; UPDATE errand_dead SET options = 0;
UPDATE errand_number SET n = 3 WHERE id = 0; DELETE FROM errand_migration WHERE version > 3`)
		s = d.open()
		d.Invariants(t)
		takes := func(want storage.TickOutcome) {
			t.Helper()
			fired := fire(t, s, firing("s19", plans[19], &next))
			if len(fired.Ticks) != 1 || fired.Ticks[0].Taken != want {
				t.Fatalf("outcome %d: the tick was taken as %+v, want %s", ends, fired.Ticks, want)
			}
			plans[19] = fired.Plan
		}
		if ends != 0 {
			if step, err := s.Redrive(ctx, t0, storage.Selection{IDs: []storage.ID{last.ID}}, ""); err != nil || step.N != 1 {
				t.Fatalf("redriven %+v, %v", step, err)
			}
		}
		takes(storage.TickOverlap)
		if _, err := s.Cancel(ctx, t0, last.ID, storage.Retention{}); err != nil {
			t.Fatal(err)
		}
		if ends == 0 {
			x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{Lease: last.Lease, Outcome: storage.OutcomeDone}}}
			if _, err := s.Exchange(ctx, t0, x); err != nil {
				t.Fatal(err)
			}
		}
		takes(storage.TickFired)
	}
}
