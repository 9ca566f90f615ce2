package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

func TestSchedule_FiresEachTickWhenItComes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		rec := r.record()
		s := storage.Schedule{Name: "minutely", Zone: "Asia/Kolkata"}
		s.Job.Headers = []byte(`{"trace":"1","errand-tick":"never"}`)
		r.declare(s)
		began := time.Now()
		r.start()
		pass(time.Hour + time.Second)
		runs := rec.take("minutely")
		wantEvery(t, runs, time.Minute, 60, began.Add(time.Minute))
		want := map[string]string{"trace": "1", "errand-schedule": "minutely", "errand-tick": "2000-01-01T05:31:00+05:30"}
		if !maps.Equal(runs[0].headers, want) {
			t.Errorf("headers %v, want %v", runs[0].headers, want)
		}
		if n := len(r.store.of("fire", 0)); n != 60 {
			t.Errorf("%d calls of Fire for 60 ticks", n)
		}
		if n := len(r.store.of("schedules", 0)); n != 1 {
			t.Errorf("schedules were read %d times", n)
		}
		if p := r.schedule("minutely"); !p.Next.Equal(began.Add(61*time.Minute)) || !p.LastTick.Equal(began.Add(time.Hour)) {
			t.Errorf("plan %+v", p)
		}
	})
}

func TestSchedule_IsOneJobPerTickHoweverManyEngines(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				rec := r.record()
				rigs := []*rig{r}
				for range 3 {
					o := r.another()
					o.cfg.Handlers = r.cfg.Handlers
					o.cfg.Queues = []string{"elsewhere"} // all fire what is due, whatever they work for
					if shared {
						o.store = r.store
						o.cfg.Store = r.store
					}
					rigs = append(rigs, o)
				}
				r.declare(storage.Schedule{Name: "secondly", Spec: "@every 1s"})
				began := time.Now()
				for _, r := range rigs {
					r.start()
				}
				pass(60*time.Second + time.Second/2)
				runs := rec.take("secondly")
				slices.SortFunc(runs, func(a, b run) int { return a.tick.Compare(b.tick) })
				wantEvery(t, runs, time.Second, 60, began.Add(time.Second))
				fired := 0
				for _, o := range rigs[1:] {
					fired += len(o.store.of("fire", 0))
				}
				if fired == 0 {
					t.Error("only one engine has tried")
				}
				for i, h := range r.history("secondly") {
					if h.Taken != storage.TickFired || !h.At.Equal(began.Add(time.Duration(i+11)*time.Second)) {
						t.Errorf("entry %d of the history: %+v", i, h)
					}
				}
			})
		})
	}
}

func TestSchedule_Control(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		r.store.alone = true
		r.start()
		pass(time.Hour)
		began := time.Now()
		r.declare(storage.Schedule{Name: "s"}) // while it is running
		pass(2*time.Minute + time.Second)
		wantEvery(t, rec.take("s"), time.Minute, 2, began.Add(time.Minute))

		s := r.schedule("s").Schedule
		s.Paused = true
		r.put(s)
		pass(10 * time.Minute)
		if runs := rec.take("s"); len(runs) > 0 {
			t.Errorf("paused schedule ran for %v", runs)
		}

		s = r.schedule("s").Schedule
		s.Paused, s.Through, s.Next = false, time.Now(), began.Add(13*time.Minute)
		r.put(s)
		pass(time.Minute)
		wantEvery(t, rec.take("s"), time.Minute, 1, began.Add(13*time.Minute))

		s = r.schedule("s").Schedule
		s.Spec = "@every 10s"
		r.declare(s)
		if runs := rec.take("s"); len(runs) > 0 {
			t.Errorf("the change of the spec fired %v", runs)
		}
		pass(30 * time.Second)
		wantEvery(t, rec.take("s"), 10*time.Second, 3, began.Add(13*time.Minute+10*time.Second))

		if err := r.app.(storage.Scheduler).DropSchedule(t.Context(), time.Now(), "s"); err != nil {
			t.Fatal(err)
		}
		n := r.store.count()
		pass(10 * time.Minute)
		if len(rec.take("s")) > 0 || len(r.store.of("fire", n)) > 0 {
			t.Error("a schedule that was removed is fired")
		}
	})
}

// What was changed behind the engine's back is never fired as it was: what
// Fire answers is not enough to go on.
func TestSchedule_ChangeThatNobodyToldOf(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		r.cfg.Store = deaf{r.store}
		began := time.Now()
		r.declare(storage.Schedule{Name: "changed"})
		r.declare(storage.Schedule{Name: "dropped"})
		r.start()
		s := r.schedule("changed").Schedule
		s.Spec = "30 * * * *"
		r.declare(s)
		if err := r.app.(storage.Scheduler).DropSchedule(t.Context(), time.Now(), "dropped"); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		wantEvery(t, rec.take("changed"), time.Hour, 1, began.Add(30*time.Minute))
		if n := len(r.store.of("fire", 0)); n != 2 {
			t.Errorf("%d calls of Fire, want one that fails and one that does not", n)
		}
	})
}

// deaf hears of jobs, but not of what is controlled.
type deaf struct{ *spy }

func (d deaf) Notify(f func(storage.Event)) func() {
	return d.spy.Notify(func(e storage.Event) {
		if !e.Schedules {
			f(e)
		}
	})
}

// Without Notifier and Timekeeper schedules are looked for each second.
type mute struct {
	storage.Store
	storage.Scheduler
}

func TestSchedule_WithoutNotifier(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		r.cfg.Store = mute{r.store.Store, r.store}
		r.start()
		pass(time.Hour)
		began := time.Now()
		r.declare(storage.Schedule{Name: "s", Spec: "@every 10s"})
		pass(35 * time.Second)
		runs := rec.take("s")
		if len(runs) != 3 {
			t.Errorf("%d runs", len(runs))
		}
		for i, run := range runs {
			if want := began.Add(time.Duration(i+1) * 10 * time.Second); !run.tick.Equal(want) || run.at.Sub(want) > time.Second {
				t.Errorf("run %d is of %v, at %v", i, run.tick, run.at)
			}
		}
	})
}

// A store that keeps no schedules has none.
func TestSchedule_WithoutScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.record()
		r.declare(storage.Schedule{Name: "s"})
		r.cfg.Store = silent{r.store}
		r.start()
		pass(time.Hour)
		r.wantHistory("s")
		if n := len(r.store.of("schedules", 0)) + len(r.store.of("clock", 0)); n > 0 {
			t.Errorf("%d calls of what the store does not have", n)
		}
	})
}

func TestSchedule_ThatCannotBeReadIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		r.declare(storage.Schedule{Name: "good"})
		for name, s := range map[string]storage.Schedule{
			"spec": {Spec: "@lunar"}, "zone": {Zone: "Mars/Olympus"}, "missed": {Missed: "half"},
			"headers": {Job: storage.NewJob{Headers: []byte("?")}},
		} {
			s.Name = name
			r.declare(s)
		}
		r.start()
		for range 10 { // each read anew
			s := r.schedule("good").Schedule
			r.declare(s)
			pass(time.Minute)
		}
		if n := len(rec.take("good")); n != 10 {
			t.Errorf("the good one ran %d times", n)
		}
		for _, name := range []string{"spec", "zone", "missed", "headers"} {
			if lines := r.logs.with("schedule=" + name); len(lines) != 1 {
				t.Errorf("%q was logged %d times: %q", name, len(lines), lines)
			}
			r.wantHistory(name)
		}
		s := r.schedule("zone").Schedule
		s.Zone = "Asia/Tokyo"
		r.declare(s)
		pass(time.Minute)
		if n := len(rec.take("zone")); n != 1 {
			t.Errorf("mended, it ran %d times", n)
		}
	})
}

// Whoever changes schedules has them read, but not each time.
func TestSchedule_IsReadTenTimesASecondAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.start()
		n := r.store.count()
		s := storage.Schedule{Name: "a", Spec: "@yearly"}
		for range 1000 {
			s = r.declare(s)
			pass(time.Millisecond)
		}
		if reads := len(r.store.of("schedules", n)); reads < 1 || reads > 11 {
			t.Errorf("%d reads in a second", reads)
		}
	})
}

// The plan is moved on if it is not what the spec says: the database of zones
// may have changed.
func TestSchedule_IsPlannedAnew(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		rec := r.record()
		began := time.Now()
		s := r.declare(storage.Schedule{Name: "s", Spec: "0 9 * * *"})
		s.Next = began.Add(9*time.Hour + 42*time.Minute)
		r.put(s)
		r.store.alone = true
		r.start()
		if got := r.schedule("s"); !got.Next.Equal(began.Add(9*time.Hour)) || !got.Through.Equal(began) {
			t.Errorf("plan %+v", got.Plan)
		}
		r.wantHistory("s")
		pass(24 * time.Hour)
		wantEvery(t, rec.take("s"), 24*time.Hour, 1, began.Add(9*time.Hour))
	})
}
