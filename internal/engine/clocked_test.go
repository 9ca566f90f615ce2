package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/internal/clock"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// serverAhead is by how much the clock of the store is ahead of the bubble's.
const serverAhead = 90*time.Minute + 30*time.Second

// clockedSpy is a spy on a store with a clock of its own.
type clockedSpy struct {
	*spy
	storage.Clocked
}

// clockedRig is a rig on a store with a clock of its own, and a machine whose clock is wrong.
func clockedRig(t *testing.T, db storagetest.Server, app storage.Store, machine *wall) *rig {
	r := newRigOn(t, db.Memory, app)
	own := db.Open()
	r.store.Store = own
	r.cfg.Store = clockedSpy{r.store, own.(storage.Clocked)}
	if _, err := own.Counts(t.Context()); err != nil { // as opening does: there is an answer
		t.Fatal(err)
	}
	r.cfg.Clock = clock.New(clock.Options{Wall: machine.now, Store: own.(storage.Clocked).StoreTime})
	return r
}

// clockedBubble has two machines, one an hour ahead of the other and both wrong.
func clockedBubble(t *testing.T, test func(t *testing.T, a, b *rig, machine *wall)) {
	t.Helper()
	bubble(t, func(t *testing.T, _ *rig) {
		db, machine := storagetest.NewServer(), &wall{}
		db.SetAhead(serverAhead)
		app := db.Memory.Open()
		machine.set(time.Hour)
		test(t, clockedRig(t, db, app, &wall{}), clockedRig(t, db, app, machine), machine)
	})
}

// unshifted checks that no clock was corrected in the store.
func (r *rig) unshifted() {
	r.t.Helper()
	for _, op := range []string{"clock", "step"} {
		if n := len(r.store.of(op, 0)); n > 0 {
			r.t.Errorf("%d calls %q of a store whose clock is followed", n, op)
		}
	}
}

// A job that one machine enqueues starts on the other when it is due by the store's clock, and
// is retried by it. A step of the machine's clock changes nothing.
func TestClocked_DueTimes(t *testing.T) {
	for _, step := range []time.Duration{0, day, -day} {
		t.Run(step.String(), func(t *testing.T) {
			clockedBubble(t, func(t *testing.T, a, b *rig, machine *wall) {
				began := time.Now()
				var at []time.Duration
				b.handle("k", func(context.Context, *storage.Leased) error {
					at = append(at, time.Since(began))
					if len(at) == 1 {
						return errOops
					}
					return nil
				})
				b.start()
				res, err := a.cfg.Store.Enqueue(t.Context(), a.now(), []storage.NewJob{{Queue: "q", Kind: "k", Args: []byte("{}"), Delay: 10 * time.Minute}})
				if err != nil {
					t.Fatal(err)
				}
				id := res[0].ID
				if due := a.job(id).DueAt; !due.Equal(began.Add(serverAhead + 10*time.Minute)) {
					t.Errorf("the job is due at %v", due)
				}
				pass(5 * time.Minute)
				machine.set(step)
				pass(time.Hour)
				want := []time.Duration{10 * time.Minute, 10 * time.Minute, 10*time.Minute + 10*time.Second}
				if len(at) != 2 || at[0] != want[0] || at[1] != want[1] && at[1] != want[2] {
					t.Errorf("the job has started after %v", at)
				}
				rec := b.wantState(id, storage.Done, storage.Counters{Attempt: 2, Retry: 1})
				if len(rec.History) != 1 || !rec.History[0].At.Equal(began.Add(serverAhead+10*time.Minute)) {
					t.Errorf("the failure is in the history as %+v", rec.History)
				}
				b.unshifted()
			})
		})
	}
}

// Ticks come by the store's clock, once each, though the machines disagree.
func TestClocked_Schedules(t *testing.T) {
	clockedBubble(t, func(t *testing.T, a, b *rig, machine *wall) {
		records := []*record{a.record(), b.record()}
		b.declare(storage.Schedule{Name: "s", Spec: "0 * * * *"})
		began := b.now()
		a.start()
		b.start()
		pass(90 * time.Minute)
		machine.set(-3 * day)
		pass(90*time.Minute + time.Second)
		runs := map[time.Time]int{}
		for _, rec := range records {
			for _, run := range rec.take("s") {
				runs[run.tick]++
				if at := run.at.Add(serverAhead); !at.Equal(run.tick) {
					t.Errorf("the tick of %v ran at %v by the store's clock", run.tick, at)
				}
			}
		}
		for tick := began.Truncate(time.Hour).Add(time.Hour); !tick.After(b.now()); tick = tick.Add(time.Hour) {
			if runs[tick.UTC()] != 1 {
				t.Errorf("the tick of %v ran %d times", tick, runs[tick.UTC()])
			}
		}
		if len(runs) != 3 {
			t.Errorf("%d ticks, want 3: %v", len(runs), runs)
		}
		a.unshifted()
		b.unshifted()
	})
}

// The starts of both machines together obey the rate that the file sets.
func TestClocked_Throttle(t *testing.T) {
	clockedBubble(t, func(t *testing.T, a, b *rig, machine *wall) {
		set := storage.Settings{storage.SettingStarts: 1, storage.SettingStartsPer: int64(time.Second / time.Microsecond), storage.SettingStartsBurst: 1}
		if err := a.app.Configure(t.Context(), storage.Lane{Queue: "q"}, set); err != nil {
			t.Fatal(err)
		}
		n := make(chan time.Time, 100)
		for _, r := range []*rig{a, b} {
			r.handle("k", func(context.Context, *storage.Leased) error {
				n <- time.Now()
				return nil
			})
		}
		a.enqueue("k", 50)
		a.start()
		b.start()
		pass(10 * time.Second)
		machine.set(-day)
		pass(20 * time.Second)
		if got := len(n); got < 25 || got > 32 {
			t.Errorf("%d starts in 30 s, want about one a second", got)
		}
	})
}

// The time of another process is no news where all follow one clock.
func TestClocked_HearsNothing(t *testing.T) {
	clockedBubble(t, func(t *testing.T, a, b *rig, _ *wall) {
		a.start()
		if _, err := b.store.Enqueue(t.Context(), b.now().Add(365*day), []storage.NewJob{{Queue: "other", Kind: "k", Args: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		a.unshifted()
		if got := a.logs.with("time to come"); len(got) > 0 {
			t.Errorf("%d lines like %s", len(got), got[0])
		}
	})
}
