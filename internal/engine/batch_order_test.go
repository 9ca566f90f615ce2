package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// keys returns the places of the jobs of a call in ids.
func keys(items []engine.Item, ids []storage.ID) (all []int) {
	for _, i := range items {
		all = append(all, slices.Index(ids, i.Job.ID))
	}
	return all
}

func (r *rig) member(group string) storage.NewJob {
	return storage.NewJob{Queue: "q", Kind: "k", Group: group}
}

// What becomes of the others of a call in order if one of them is not done.
func TestBatch_InOrder(t *testing.T) {
	no := errors.New("no")
	once := storage.Counters{Attempt: 1, Retry: 1}
	for name, c := range map[string]struct {
		errs   [4]error
		states [4]storage.State
		counts [4]storage.Counters
		then   []int // the next call
	}{
		"all done":  {[4]error{}, [4]storage.State{storage.Done, storage.Done, storage.Done, storage.Done}, [4]storage.Counters{}, nil},
		"all fail":  {[4]error{no, no, no, no}, [4]storage.State{storage.Scheduled, storage.Blocked, storage.Blocked, storage.Blocked}, [4]storage.Counters{once}, []int{0, 1, 2, 3}},
		"one fails": {[4]error{1: no}, [4]storage.State{storage.Done, storage.Scheduled, storage.Done, storage.Done}, [4]storage.Counters{1: once}, []int{1}},
		"done behind it": {
			[4]error{1: no, 3: no}, [4]storage.State{storage.Done, storage.Scheduled, storage.Done, storage.Blocked}, [4]storage.Counters{1: once}, []int{1, 3},
		},
		"snoozed": {
			[4]error{0: &engine.SnoozeError{For: time.Second}, 1: no, 2: &engine.PermanentError{Err: no}},
			[4]storage.State{storage.Scheduled, storage.Blocked, storage.Blocked, storage.Done}, [4]storage.Counters{{Attempt: 1, Snoozes: 1}}, []int{0, 1, 2},
		},
		"cancelled": {[4]error{0: &engine.CancelError{Err: no}, 2: no}, [4]storage.State{storage.Cancelled, storage.Done, storage.Scheduled, storage.Done}, [4]storage.Counters{2: once}, []int{2}},
		"dead":      {[4]error{1: &engine.PermanentError{Err: no}, 2: no}, [4]storage.State{storage.Done, storage.Dead, storage.Blocked, storage.Done}, [4]storage.Counters{1: {Attempt: 1}}, nil},
		"dead, passes": {
			[4]error{1: engine.Passed(&engine.PermanentError{Err: no}), 2: engine.Passed(&engine.PermanentError{Err: no})},
			[4]storage.State{storage.Done, storage.Dead, storage.Dead, storage.Done}, [4]storage.Counters{1: {Attempt: 1}, 2: {Attempt: 1}}, nil,
		},
		"passes behind one that fails": {
			[4]error{1: no, 2: engine.Passed(&engine.PermanentError{Err: no})}, [4]storage.State{storage.Done, storage.Scheduled, storage.Blocked, storage.Done},
			[4]storage.Counters{1: once}, []int{1, 2},
		},
		"not called": {[4]error{1: no, 2: engine.ErrUntouched, 3: engine.ErrUntouched}, [4]storage.State{storage.Done, storage.Scheduled, storage.Blocked, storage.Blocked}, [4]storage.Counters{1: once}, []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = policy.Policy{Retries: 3, MinDelayRetries: 3, MinDelay: time.Second, MaxDelay: time.Second, Jitter: policy.NoJitter}.Delivery()
				var ids []storage.ID
				var calls [][]int
				r.many("k", engine.Batch{Max: 9, ByGroup: true}, func(_ context.Context, items []engine.Item) {
					if calls = append(calls, keys(items, ids)); len(calls) > 1 {
						return
					}
					for i := range items {
						items[i].Err = c.errs[i]
					}
				})
				ids = r.add(r.member("g"), r.member("g"), r.member("g"), r.member("g"))
				r.start()
				pass(10 * time.Millisecond)
				for i, id := range ids {
					got := r.job(id)
					counts := c.counts[i]
					if c.states[i] == storage.Done || c.states[i] == storage.Cancelled {
						counts.Attempt = 1
					}
					if got.State != c.states[i] || got.Counters != counts {
						t.Errorf("job %d is %s with %+v, want %s with %+v", i, got.State, got.Counters, c.states[i], counts)
					}
				}
				pass(2 * time.Second)
				want := [][]int{{0, 1, 2, 3}}
				if c.then != nil {
					want = append(want, c.then)
				}
				if !slices.EqualFunc(calls, want, slices.Equal) {
					t.Errorf("calls of %v, want %v", calls, want)
				}
			})
		})
	}
}

// A call has one group, one after the other, and those that crash run alone.
func TestBatch_ByGroup(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 1
		var ids []storage.ID
		var calls [][]int
		r.many("k", engine.Batch{Max: 3, ByGroup: true}, func(_ context.Context, items []engine.Item) {
			calls = append(calls, keys(items, ids))
		})
		ids = r.add(r.member("g"), r.member("h"), r.member("g"), r.member("g"), r.member("g"), r.member("h"), r.member(""), r.member(""))
		other := r.db.Open()
		{
			w := storage.Want{Queues: []string{"q"}, Kinds: []string{"k"}, N: 1}
			x, err := other.Exchange(t.Context(), r.now(), storage.Exchange{LeaseDuration: lease, Wants: []storage.Want{w}})
			if err != nil || len(x.Leased) != 1 || x.Leased[0].ID != ids[0] {
				t.Fatalf("leased %v, %v", x.Leased, err)
			}
			f := storage.Finish{Lease: x.Leased[0].Lease, Outcome: storage.OutcomeCrashed}
			if _, err := other.Exchange(t.Context(), r.now(), storage.Exchange{Finish: []storage.Finish{f}}); err != nil {
				t.Fatal(err)
			}
		}
		r.start()
		pass(10 * time.Second)
		var g [][]int
		for _, c := range calls {
			if c[0] != 1 && c[0] < 6 {
				g = append(g, c)
			}
		}
		if want := [][]int{{0}, {2, 3, 4}}; !slices.EqualFunc(g, want, slices.Equal) || len(calls) != 4 {
			t.Errorf("calls of %v, of group g %v, want %v", calls, g, want)
		}
	})
}

// A job whose lease is lost has not ended: those behind it that are done stay so, and the
// others wait for it.
func TestBatch_InOrderLost(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ids []storage.ID
		var calls [][]int
		r.many("k", engine.Batch{Max: 9, ByGroup: true}, func(_ context.Context, items []engine.Item) {
			if calls = append(calls, keys(items, ids)); len(calls) == 1 {
				<-items[0].Ctx.Done()
				items[2].Err = errors.New("no")
			}
		})
		ids = r.add(r.member("g"), r.member("g"), r.member("g"), r.member("g"))
		r.start()
		var taken []storage.Reclaimed
		for _, mono := range []time.Duration{0, lease} {
			var err error
			if taken, err = r.app.Reclaim(t.Context(), r.now(), mono, lease, 1); err != nil {
				t.Fatal(err)
			}
		}
		if len(taken) != 1 || taken[0].ID != ids[0] {
			t.Fatalf("taken were %+v, want the first", taken)
		}
		pass(lease / 3)
		for i, want := range []storage.State{storage.Running, storage.Done, storage.Blocked, storage.Done} {
			if got := r.job(ids[i]); got.State != want || want == storage.Blocked && got.Counters != (storage.Counters{}) {
				t.Errorf("job %d is %s with %+v, want %s", i, got.State, got.Counters, want)
			}
		}
		back := storage.Finish{Lease: taken[0].Lease, Outcome: storage.OutcomeRetry, DueAt: r.now()}
		if _, err := r.app.Exchange(t.Context(), r.now(), storage.Exchange{Finish: []storage.Finish{back}}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if want := [][]int{{0, 1, 2, 3}, {0, 2}}; !slices.EqualFunc(calls, want, slices.Equal) {
			t.Errorf("calls of %v, want %v", calls, want)
		}
	})
}
