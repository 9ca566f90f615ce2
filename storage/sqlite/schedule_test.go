package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// newSchedule is a schedule of one tick a second, from t0 on.
func newSchedule(name string) storage.Schedule {
	return storage.Schedule{
		Name: name, Spec: "@every 1s", Zone: "UTC", Missed: "one", Job: newJob("default", "a"),
		Plan: storage.Plan{Next: t0, Through: t0},
	}
}

// put adds or replaces a schedule and gives its plan.
func put(t testing.TB, s *sqlite.Store, sched storage.Schedule) storage.Plan {
	t.Helper()
	revision, err := s.PutSchedule(context.Background(), t0, sched)
	if err != nil || revision == 0 {
		t.Fatalf("PutSchedule: revision %d, %v", revision, err)
	}
	sched.Revision = revision
	return sched.Plan
}

// firing takes the next tick of a plan and moves it on by a second. A nil job
// skips it.
func firing(name string, p storage.Plan, job *storage.NewJob) storage.Firing {
	tick := storage.NewTick{At: p.Next, Taken: storage.TickFired, Job: job}
	if job == nil {
		tick.Taken = storage.TickMissed
	}
	p.Through, p.Next = p.Next, p.Next.Add(time.Second)
	return storage.Firing{Name: name, Revision: p.Revision, Next: p.Next, Through: p.Through, Ticks: []storage.NewTick{tick}}
}

func fire(t testing.TB, s *sqlite.Store, f storage.Firing) storage.Fired {
	t.Helper()
	out, err := s.Fire(context.Background(), f.Through, []storage.Firing{f})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// Everything is there after a kill, whichever way each field is filled.
func TestSchedules_Reopen(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	full := newSchedule("full")
	full.SkipOverlap, full.Jitter, full.Paused = true, time.Minute, true
	full.Job = storage.NewJob{
		Queue: "other", Kind: "b", Priority: -3, Args: []byte(strings.Repeat("x", 256<<10)), Headers: []byte(`{"a":"b"}`),
		Policy: []byte(`{"numRetries":1}`), Timeout: time.Second, Unique: "b 1", UniqueScope: storage.UniqueForever,
	}
	put(t, s, full)
	empty := newSchedule("empty")
	empty.Job.Args = []byte{}
	empty.Plan = storage.Plan{}
	put(t, s, empty)
	fired := newSchedule("fired")
	plan := put(t, s, fired)
	plan = fire(t, s, firing("fired", plan, &fired.Job)).Plan
	plan = fire(t, s, firing("fired", plan, nil)).Plan
	read := func(s *sqlite.Store) ([]storage.ScheduleRecord, []storage.Tick) {
		schedules, err := s.Schedules(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ticks, err := s.Ticks(context.Background(), "fired")
		if err != nil {
			t.Fatal(err)
		}
		return schedules, ticks
	}
	schedules, ticks := read(s)
	if len(schedules) != 3 || len(ticks) != 2 || schedules[1].Plan != plan || schedules[1].LastJob != ticks[1].ID {
		t.Fatalf("%v, ticks %v: want three schedules and two ticks, the latest first", schedules, ticks)
	}
	full.Revision = schedules[2].Revision
	if !reflect.DeepEqual(schedules[2].Schedule, full) {
		t.Errorf("got %+v\nwant %+v", schedules[2], full)
	}
	if args := schedules[0].Job.Args; args == nil || len(args) != 0 {
		t.Errorf("args %v: want none, but not nil", args)
	}
	s.Kill()
	s = d.open()
	again, ticksAgain := read(s)
	if !reflect.DeepEqual(again, schedules) || !reflect.DeepEqual(ticksAgain, ticks) {
		t.Errorf("after reopening %v, ticks %v\nbefore %v, ticks %v", again, ticksAgain, schedules, ticks)
	}
	if got := fire(t, s, firing("fired", again[1].Plan, &fired.Job)); !got.Applied {
		t.Error("the revision that was read does not fire")
	}
	if err := s.DropSchedule(context.Background(), t0, "fired"); err != nil {
		t.Fatal(err)
	}
	d.Invariants(t)
}

// NULL tells that there is none.
func TestSchedules_NoTimes(t *testing.T) {
	d := newDB(t, nil)
	bare := newSchedule("bare")
	bare.Plan = storage.Plan{}
	put(t, d.open(), bare)
	n := d.number(`SELECT COUNT(*) FROM errand_schedule s JOIN errand_schedule_job USING (schedule) WHERE next_tick IS NULL
AND through IS NULL AND last_tick IS NULL AND last_job IS NULL AND policy IS NULL AND unique_key IS NULL AND headers IS NULL`)
	if n != 1 {
		t.Error("what is not set is not NULL")
	}
}

// Another process reads schedules again when it is told to, and it is told of
// each change but Fire.
func TestSchedules_OthersAreTold(t *testing.T) {
	d := newDB(t, nil)
	s, other := d.open(), d.open()
	rings := bell(t, other)
	lease(t, other, 1, "a") // it is registered
	control := func(change string) {
		t.Helper()
		for {
			select {
			case e := <-rings:
				if e.Schedules {
					return
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("not told of ", change)
			}
		}
	}
	sched := newSchedule("a")
	sched.Plan = put(t, s, sched)
	control("a new schedule")
	sched.Paused = true
	sched.Plan = put(t, s, sched)
	control("a pause")
	if err := s.DropSchedule(context.Background(), t0, "a"); err != nil {
		t.Fatal(err)
	}
	control("its end")
}

// A process that was started before an upgrade must not write what it does not
// know, nor believe what it reads.
func TestSchedules_NewerSchema(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	ctx := context.Background()
	sched := newSchedule("a")
	sched.Plan = put(t, s, sched)
	d.exec("UPDATE errand_number SET n = ?1 WHERE id = 0", sqlite.SchemaVersion()+1)
	_, putting := s.PutSchedule(ctx, t0, sched)
	_, inTime := s.Fire(ctx, t0, []storage.Firing{firing("a", sched.Plan, &sched.Job)})
	_, late := s.Fire(ctx, t0, []storage.Firing{firing("a", storage.Plan{Revision: 1 << 40}, &sched.Job)})
	_, stepping := s.StepClock(ctx, t0, 0)
	for what, err := range map[string]error{
		"PutSchedule": putting, "Fire": inTime, "Fire, too late": late, "StepClock": stepping, "DropSchedule": s.DropSchedule(ctx, t0, "a"),
	} {
		if !errors.Is(err, storage.ErrTooNew) {
			t.Errorf("%s: error %v, want ErrTooNew", what, err)
		}
	}
	if n := d.number("SELECT COUNT(*) FROM errand_job") + d.number("SELECT COUNT(*) FROM errand_tick"); n != 0 {
		t.Errorf("%d jobs and ticks were written", n)
	}
}

// Firing must not write the args of the schedule again.
func TestFire_LeavesArgsAlone(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s := d.open()
	pages := map[int]int{}
	for _, size := range []int{100, 256 << 10} {
		sched := newSchedule(strings.Repeat("a", 1+len(pages)))
		sched.Job.Args = bytes.Repeat([]byte("x"), size)
		plan := put(t, s, sched)
		plan = fire(t, s, firing(sched.Name, plan, nil)).Plan // so that no column is filled for the first time
		before, _ := d.log()
		for range 20 {
			plan = fire(t, s, firing(sched.Name, plan, nil)).Plan
		}
		after, _ := d.log()
		pages[size] = after - before
	}
	if small, large := pages[100], pages[256<<10]; small == 0 || large > small+20 {
		t.Errorf("20 firings wrote %d pages with 256 KiB of args, %d with 100 bytes: want about the same", large, small)
	}
}
