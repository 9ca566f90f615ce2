package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// runNow makes one job urgent, in another process.
func (r *rig) runNow(id storage.ID) {
	r.t.Helper()
	if _, err := r.app.RunNow(r.t.Context(), r.now(), storage.Selection{IDs: []storage.ID{id}}, storage.Waiting{}); err != nil {
		r.t.Fatal(err)
	}
}

// An urgent job starts at once, whatever holds its lane; the others stay.
//
//errand:shows jobs that are run now | | it starts past holds, gates, limits and throttles, before the others, if a runner is free
func TestUrgent_PassesWhatHoldsItsLane(t *testing.T) {
	for name, hold := range map[string]func(r *rig){
		"pause": func(r *rig) {
			if err := r.app.Hold(r.t.Context(), r.now(), storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: storage.HoldPaused}); err != nil {
				r.t.Fatal(err)
			}
		},
		"gate":  func(r *rig) { r.gate("k", &latch{closed: "no"}) },
		"limit": func(r *rig) { r.limit("k", 1) },
		"throttle": func(r *rig) {
			r.cfg.Settings = map[string]engine.QueueSettings{"q": {Throttle: engine.NewThrottle(1)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				end := make(chan struct{})
				r.handle("k", untilClosed(end))
				hold(r)
				ids := r.enqueue("k", 5)
				late := r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: r.now().Add(time.Hour)})[0]
				r.start()
				pass(50 * time.Millisecond)
				before := r.states(ids...)[storage.Running]
				r.runNow(late)
				pass(10 * time.Millisecond)
				if s := r.job(late).State; s != storage.Running {
					t.Errorf("the urgent job is %s", s)
				}
				if n := r.states(ids...)[storage.Running]; n != before {
					t.Errorf("%d of the others run, %d did before", n, before)
				}
				if n := len(r.logs.with("urgent job starts")); n != 1 {
					t.Errorf("%d lines tell of it", n)
				}
				close(end)
				pass(time.Millisecond)
				r.wantState(late, storage.Done, storage.Counters{Attempt: 1})
			})
		})
	}
}

// The runners are a limit for an urgent job too. It comes before those that wait.
//
//errand:shows jobs that are run now
func TestUrgent_WaitsForARunner(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 1
		var order []storage.ID
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			order = append(order, job.ID)
			time.Sleep(time.Second)
			return nil
		})
		ids := r.enqueue("k", 10)
		r.start()
		pass(500 * time.Millisecond)
		r.runNow(ids[9])
		pass(time.Second)
		r.wantState(ids[9], storage.Running, storage.Counters{Attempt: 1})
		pass(time.Minute)
		if len(order) != 10 || order[1] != ids[9] {
			t.Errorf("ran in the order %v", order)
		}
	})
}

// What became urgent while no worker was there starts with the next one.
//
//errand:shows jobs that are run now
func TestUrgent_AtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", work(time.Millisecond))
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Gate: &latch{closed: "no"}}}
		ids := r.enqueue("k", 2)
		r.runNow(ids[1])
		r.start()
		pass(time.Second)
		r.wantState(ids[0], storage.Ready, storage.Counters{})
		r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 1})
	})
}
