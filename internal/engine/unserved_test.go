package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

const notServed = "no worker here serves"

// mistyped adds a job to a queue that r does not work for.
func (r *rig) mistyped() storage.ID { return r.add(storage.NewJob{Queue: "typo", Kind: "k"})[0] }

//errand:shows mistyped queues | | a worker warns of jobs that nobody has taken for a minute in a queue that no worker of its process is for; queues of other processes, and held lanes, raise no alarm
func TestUnserved_QueueIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.handle("k", work(0))
		r.start()
		r.mistyped()
		pass(30 * time.Second)
		r.mistyped()
		if lines := r.logs.with("typo"); len(lines) > 0 {
			t.Errorf("after 30 s the log says %q", lines)
		}
		pass(time.Minute)
		r.wantLine(notServed, "level=WARN", "queue=typo", "kind=k", "jobs=2", "worker=q")
		n := r.store.count()
		pass(time.Hour)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("then %d calls of the store in an hour, first %q", len(calls), calls[0].op)
		}
		r.mistyped()
		pass(time.Hour)
		r.wantLine(notServed, "jobs=2")
	})
}

// All runners are busy: that is no reason for not looking.
//
//errand:shows mistyped queues
func TestUnserved_BesideABusyWorker(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", work(time.Hour))
		r.enqueue("k", 100)
		r.start()
		pass(time.Minute)
		r.mistyped()
		r.enqueue("foreign", 1)
		pass(3 * time.Minute)
		r.wantLine(notServed, "queue=typo")
		r.wantLine("does not have", "queue=q", "kind=foreign")
	})
}

//errand:shows mistyped queues
func TestUnserved_ManyLanesInFewLines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 100 {
			r.add(storage.NewJob{Queue: "typo", Kind: string(rune('a'+i/10)) + string(rune('a'+i%10))})
		}
		r.start()
		pass(time.Hour)
		if lines := r.logs.with("jobs wait"); len(lines) != 6 {
			t.Errorf("the log says %q", lines)
		}
		r.wantLine("suppressed=", "suppressed=95")
	})
}

// visits has another process do, each so often, what waits in the queue.
func (r *rig) visits(every, keep time.Duration) {
	store := r.db.Open()
	exchange := func(x storage.Exchange) []storage.Leased {
		x.LeaseDuration = lease
		res, err := store.Exchange(context.Background(), time.Now(), x)
		if err != nil {
			r.t.Error(err)
		}
		return res.Leased
	}
	go func() {
		time.Sleep(every - 6*time.Second)
		for range 400 / int(every.Seconds()) {
			x := storage.Exchange{Retention: storage.Retention{Default: keep}}
			for _, j := range exchange(storage.Exchange{Wants: []storage.Want{{Queues: []string{"typo"}, Kinds: []string{"k"}, N: 100}}}) {
				x.Finish = append(x.Finish, storage.Finish{Lease: j.Lease, Outcome: storage.OutcomeDone})
			}
			exchange(x)
			time.Sleep(every)
		}
	}()
}

// What others work for is no concern of a worker, and that they are slow, or
// may not, neither.
//
//errand:shows mistyped queues
func TestUnserved_NoFalseAlarm(t *testing.T) {
	for name, c := range map[string]func(r *rig){
		"another process, long jobs": func(r *rig) {
			other := r.another()
			other.cfg.Queues, other.cfg.Concurrency = []string{"typo"}, 1
			other.handle("k", work(90*time.Second))
			other.start()
		},
		"another process, short jobs": func(r *rig) {
			other := r.another()
			other.cfg.Queues, other.cfg.Concurrency = []string{"typo"}, 1
			other.handle("k", work(time.Millisecond))
			other.start()
		},
		"another process, another kind": func(r *rig) {
			other := r.another()
			other.cfg.Queues, other.cfg.Concurrency = []string{"typo"}, 1
			other.handle("other", work(10*time.Minute))
			other.handle("k", work(time.Millisecond))
			r.add(storage.NewJob{Queue: "typo", Kind: "other", Priority: 1})
			other.start()
		},
		"another process, in step with the looks": func(r *rig) { r.visits(20*time.Second, time.Hour) },
		"another process, that keeps nothing":     func(r *rig) { r.visits(30*time.Second, 0) },
		"this process": func(r *rig) {
			other := r.another()
			other.cfg.Queues, other.cfg.Concurrency = []string{"x", "typo"}, 1
			other.cfg.Lanes = r.cfg.Lanes
			other.handle("k", work(time.Millisecond))
			other.handle("other", work(10*time.Minute))
			r.add(storage.NewJob{Queue: "x", Kind: "other", Priority: 1})
			other.start()
		},
		"another process, a kind of ours": func(r *rig) {
			r.visits(30*time.Second, 0)
			other := r.another()
			other.cfg.Concurrency = 1
			other.handle("foreign", work(90*time.Second))
			r.enqueue("foreign", 50)
			other.start()
		},
		"paused": func(r *rig) {
			if err := r.app.Hold(context.Background(), r.now(), storage.Hold{Lane: storage.Lane{Queue: "typo"}, Reason: storage.HoldPaused}); err != nil {
				r.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Lanes = new(engine.Lanes)
				r.handle("k", work(0))
				c(r)
				r.start()
				pass(time.Second) // out of step with the looks
				for range 85 {
					r.mistyped()
					pass(5 * time.Second)
				}
				if lines := r.logs.with("jobs wait"); len(lines) > 0 {
					t.Errorf("the log says %q", lines)
				}
			})
		})
	}
}

const ofNoUse = "settings are of queues that have no jobs and no worker here"

// Settings of a queue that nobody here works for are told once, unless it has jobs.
func TestUnserved_Settings(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Lanes = new(engine.Lanes)
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {}, "mial": {}, "late": {}, "of-others": {}}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			r.cfg.Settings[name] = engine.QueueSettings{}
		}
		r.add(storage.NewJob{Queue: "of-others", Kind: "k"})
		r.handle("k", work(0))
		r.start()
		pass(30 * time.Second)
		late := r.another()
		late.cfg.Queues, late.cfg.Lanes, late.cfg.Settings = []string{"late"}, r.cfg.Lanes, r.cfg.Settings
		late.handle("k", work(0))
		late.start()
		pass(29 * time.Second)
		late.cancel()
		if lines := r.logs.with(ofNoUse); len(lines) > 0 {
			t.Errorf("before a minute has passed the log says %q", lines)
		}
		pass(time.Hour)
		r.wantLine(ofNoUse, "level=INFO", `queues="a1 a2 a3 a4 mial"`, "total=5", "worker=q")
		third := r.another()
		third.cfg.Lanes, third.cfg.Settings = r.cfg.Lanes, r.cfg.Settings
		third.start()
		pass(time.Hour)
		if lines := third.logs.with(ofNoUse); len(lines) > 0 {
			t.Errorf("another worker says it again: %q", lines)
		}
		n := r.store.count()
		pass(time.Hour)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("then %d calls of the store in an hour, first %q", len(calls), calls[0].op)
		}
	})
}

// Nothing but the settings makes the worker look.
func TestUnserved_SettingsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Settings = map[string]engine.QueueSettings{"mial": {}}
		r.start()
		pass(61 * time.Second)
		r.wantLine(ofNoUse, "queues=mial", "total=1")
	})
}

// Without such settings the store is not asked for more than before.
func TestUnserved_SettingsInUse(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {}}
		r.handle("k", work(0))
		r.start()
		pass(time.Second)
		n := r.store.count()
		pass(time.Hour)
		if calls := r.store.since(n); len(calls) > 0 || len(r.logs.with(ofNoUse)) > 0 {
			t.Errorf("%d calls of the store in an hour, and the log says %q", len(calls), r.logs.with(ofNoUse))
		}
	})
}
