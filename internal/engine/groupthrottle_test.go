package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// groupStarts notes which jobs start of which group, and when.
type groupStarts struct {
	mu  sync.Mutex
	ids map[string][]storage.ID
	at  map[string][]time.Time
}

func (s *groupStarts) run(_ context.Context, job *storage.Leased) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.ids, s.at = map[string][]storage.ID{}, map[string][]time.Time{}
	}
	s.ids[job.Group], s.at[job.Group] = append(s.ids[job.Group], job.ID), append(s.at[job.Group], time.Now())
	return nil
}

// runAll is run for a batch handler.
func (s *groupStarts) runAll(ctx context.Context, items []engine.Item) {
	for _, i := range items {
		_ = s.run(ctx, i.Job)
	}
}

// wants checks that a group has started n jobs, one an interval, but for a burst before.
// It returns them.
func (s *groupStarts) wants(t *testing.T, group string, began time.Time, n int, interval time.Duration, burst int) []storage.ID {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.at[group]) != n {
		t.Fatalf("%d of group %q were started, want %d", len(s.at[group]), group, n)
	}
	for i, at := range s.at[group] {
		want := time.Duration(max(i-burst+1, 0)) * interval
		if got := at.Sub(began); got < want-time.Millisecond || got > want+5*time.Millisecond {
			t.Errorf("start %d of group %q after %v, want %v", i, group, got, want)
		}
	}
	return s.ids[group]
}

// groupRate has queue q let so many of a group start in a time, and so many run.
func (r *rig) groupRate(starts int, per time.Duration, burst int, limit int64) {
	r.t.Helper()
	s := r.cfg.Settings["q"]
	s.Groups = engine.NewGroupThrottle(engine.GroupRate{Starts: starts, Per: per, Burst: burst})
	r.cfg.Settings = map[string]engine.QueueSettings{"q": s}
	err := r.app.Configure(r.t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: limit})
	if err != nil {
		r.t.Fatal(err)
	}
}

func ofGroup(group string, n int) []storage.NewJob {
	return slices.Repeat([]storage.NewJob{{Queue: "q", Kind: "k", Group: group}}, n)
}

// The rate is kept, nothing is used up by what goes back, and nobody is leased in vain more
// often than once. With a limit of 1 the order stays.
func TestGroupThrottle_KeepsTheRate(t *testing.T) {
	for _, c := range []struct {
		starts int
		per    time.Duration
		burst  int
		limit  int64
		jobs   int
		batch  int
	}{
		{starts: 2, per: time.Second, burst: 1, limit: 1, jobs: 9},
		{starts: 5, per: time.Minute, burst: 3, limit: 1, jobs: 9},
		{starts: 1000, per: time.Second, burst: 1, limit: 1, jobs: 50},
		{starts: 7, per: time.Second, burst: 1, limit: 1, jobs: 20}, // which is not a number of microseconds
		{starts: 2, per: time.Second, burst: 1, limit: 3, jobs: 30},
		{starts: 1, per: time.Second, burst: 4, limit: 3, jobs: 30},
		{starts: 2, per: time.Second, burst: 2, limit: 4, jobs: 30, batch: 4},
		{starts: 6, per: time.Hour, burst: 1, limit: 1, jobs: 3},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = true
				var s groupStarts
				r.handle("k", s.run)
				if c.batch > 0 {
					r.many("k", engine.Batch{Max: c.batch}, s.runAll)
				}
				r.groupRate(c.starts, c.per, c.burst, c.limit)
				ids := r.add(ofGroup("g", c.jobs)...)
				began := time.Now()
				r.start()
				if n := r.count(storage.Scheduled); n != int(c.limit) {
					t.Errorf("%d of the group wait for their turn, want %d, as many as may run", n, c.limit)
				}
				interval := c.per / time.Duration(c.starts)
				pass(time.Duration(c.jobs+1) * interval)
				got := s.wants(t, "g", began, c.jobs, interval, c.burst)
				if c.limit == 1 && !slices.Equal(got, ids) {
					t.Errorf("started in the order %v, want %v", got, ids)
				}
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
				}
				if n := r.store.returned(); n == 0 || n > c.jobs {
					t.Errorf("%d leases of %d jobs were given back", n, c.jobs)
				}
				calls := r.store.count()
				pass(time.Hour)
				if all := r.store.of("exchange", calls); len(all) > 0 {
					t.Errorf("%d exchanges in an hour of rest: %v", len(all), all[0])
				}
			})
		})
	}
}

// Groups do not wait for each other, and jobs of none wait for nobody. A bucket fills up
// while a group rests.
func TestGroupThrottle_OfEachGroup(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const groups, each = 100, 4
		var s groupStarts
		r.handle("k", s.run)
		r.groupRate(1, 10*time.Second, 2, 1)
		var jobs []storage.NewJob
		for i := range groups * each {
			jobs = append(jobs, ofGroup(fmt.Sprint(i%groups), 1)...)
		}
		r.add(append(jobs, ofGroup("", 50)...)...)
		began := time.Now()
		r.start()
		s.wants(t, "", began, 50, 0, 50)
		pass(20 * time.Second)
		for i := range groups {
			s.wants(t, fmt.Sprint(i), began, each, 10*time.Second, 2)
		}
		pass(10 * time.Second)
		again := time.Now()
		s = groupStarts{}
		r.add(ofGroup("0", 2)...)
		pass(10 * time.Second)
		s.wants(t, "0", again, 2, 10*time.Second, 1)
		pass(20 * time.Second)
		again = time.Now()
		s = groupStarts{}
		r.add(ofGroup("0", 3)...)
		pass(10 * time.Second)
		s.wants(t, "0", again, 3, 10*time.Second, 2)
	})
}

// The workers of a process share the buckets.
func TestGroupThrottle_IsSharedByEngines(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var s groupStarts
		r.groupRate(1, time.Second, 1, 5)
		other := r.another()
		other.cfg.Settings = r.cfg.Settings
		r.add(ofGroup("g", 20)...)
		began := time.Now()
		for _, r := range []*rig{r, other} {
			r.handle("k", s.run)
			r.start()
		}
		pass(20 * time.Second)
		s.wants(t, "g", began, 20, time.Second, 1)
	})
}

// An urgent job starts at once, and takes nothing from the others.
func TestGroupThrottle_Urgent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var s groupStarts
		r.handle("k", s.run)
		r.groupRate(1, time.Minute, 1, 1)
		ids := r.add(ofGroup("g", 3)...)
		began := time.Now()
		r.start()
		pass(time.Second)
		r.wantState(ids[1], storage.Scheduled, storage.Counters{})
		r.wantState(ids[2], storage.Blocked, storage.Counters{})
		r.runNow(ids[1])
		synctest.Wait()
		r.wantState(ids[1], storage.Done, storage.Counters{Attempt: 1})
		pass(time.Minute - time.Second)
		r.wantState(ids[2], storage.Scheduled, storage.Counters{}) // its turn is after the one that was urgent
		pass(time.Minute)
		r.wantState(ids[2], storage.Done, storage.Counters{Attempt: 1})
		if n := len(s.at["g"]); n != 3 || s.at["g"][1].Sub(began) != time.Second {
			t.Errorf("%d started, at %v", n, s.at["g"])
		}
	})
}

// What is told to come back is not for those that are gone: nobody waits for more than a
// minute, or for the next token, on behalf of them.
func TestGroupThrottle_PromisesAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var s groupStarts
		r.handle("k", s.run)
		r.groupRate(1, 10*time.Second, 1, 1)
		ids := r.add(ofGroup("g", 50)...)
		began := time.Now()
		r.start()
		for _, id := range ids[1:49] {
			if _, err := r.app.Cancel(t.Context(), time.Now(), id, storage.Retention{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		pass(time.Minute)
		if n := len(s.at["g"]); n != 2 {
			t.Errorf("%d started in %v, want 2", n, time.Since(began))
		}
	})
}

// An attempt whose handler is not called costs no token.
func TestGroupThrottle_Refunds(t *testing.T) {
	const hour = time.Hour
	t.Run("start that cannot be noted", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			var s groupStarts
			r.handle("k", s.run)
			r.groupRate(1, hour, 1, 1)
			broken := true
			r.store.failing(func(op string) error {
				if op == "started" && broken {
					broken = false
					return storage.ErrIO
				}
				return nil
			})
			id := r.add(ofGroup("g", 1)...)[0]
			r.start()
			pass(10 * time.Second)
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		})
	})
	t.Run("hold", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			var s groupStarts
			r.handle("k", s.run)
			r.groupRate(1, hour, 1, 1)
			r.store.failing(func(op string) error {
				if op == "started" {
					r.store.fail = nil
					r.hold(pause)
				}
				return nil
			})
			id := r.add(ofGroup("g", 1)...)[0]
			r.start()
			pass(time.Minute)
			r.wantState(id, storage.Ready, storage.Counters{})
			r.release(pause)
			synctest.Wait()
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		})
	})
	t.Run("budget", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			r.cfg.Policy = atOnce(1)
			r.cfg.Settings = map[string]engine.QueueSettings{"q": {Budget: single(1. / 20)}}
			r.groupRate(1, hour, 2, 2)
			r.handle("spends", func(context.Context, *storage.Leased) error { return errOops })
			r.handle("k", func(_ context.Context, job *storage.Leased) error {
				if job.Retry == 0 && job.Priority > 0 {
					return errOops
				}
				return nil
			})
			r.enqueue("spends", 1)
			r.start()
			jobs := ofGroup("g", 2)
			jobs[0].Priority = 1
			first := r.add(jobs[0])[0] // the second token is for its retry, which has to wait
			r.wantState(first, storage.Scheduled, storage.Counters{Attempt: 1, Retry: 1})
			second := r.add(jobs[1])[0]
			r.wantState(second, storage.Done, storage.Counters{Attempt: 1})
			pass(30 * time.Second)
			if rec := r.wantState(first, storage.Scheduled, storage.Counters{Attempt: 1, Retry: 1}); rec.DueAt.Before(time.Now()) {
				t.Errorf("due at %v, with no token left", rec.DueAt)
			}
		})
	})
}

// A throttle of the queue loses nothing by jobs that go back for their group.
func TestGroupThrottle_LeavesTheRateToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		q := throttled(10)
		q.Policy.Retry = &policy.Policy{}
		r.cfg.Settings = map[string]engine.QueueSettings{"q": q}
		r.groupRate(1, time.Hour, 1, 20)
		var s groupStarts
		r.handle("k", s.run)
		r.add(append(ofGroup("g", 20), ofGroup("", 40)...)...)
		began := time.Now()
		r.start()
		pass(3 * time.Second)
		if n := len(s.at[""]); n < 29 {
			t.Errorf("%d started in 3 s (%d of the group), want 30", n, len(s.at["g"]))
		}
		s.wants(t, "g", began, 1, time.Hour, 1)
	})
}

// The clock of due times is a little faster than that of the buckets. Whoever comes too early
// by that much starts, and does not lose its turn.
func TestGroupThrottle_AnotherClock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		began := time.Now()
		r.cfg.Clock = engine.Wall(func() time.Time {
			d := time.Since(began)
			return began.Add(d + d/20_000)
		})
		var s groupStarts
		r.handle("k", s.run)
		r.groupRate(1, 10*time.Second, 1, 1)
		r.add(ofGroup("g", 2)...)
		r.start()
		pass(10*time.Second - 200*time.Microsecond)
		r.add(ofGroup("", 1)...)
		s.wants(t, "g", began, 2, 10*time.Second, 1)
	})
}
