package storagetest

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// exact is what holds whatever overlaps.
const exact = "These are exact whatever overlaps: holders of unique keys, limits of groups, tokens, and one lease a job."

// inTurns is what all cases of this file come back to: what has overlapped leaves nothing
// behind.
const inTurns = "Calls that do not overlap in time get the answers that one after the other gives."

// crowd is callers of two instances, as a watch sees them.
type crowd struct {
	*fixture
	w     *watch
	desks [2]*desk
}

func newCrowd(f *fixture) *crowd {
	return &crowd{f, newWatch(f.Errorf), [2]*desk{{s: f.s}, {s: f.db.Open()}}}
}

// call has n callers make calls at the same time.
func (c *crowd) call(n int, calls func(i int, d *desk)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { calls(i, c.desks[i%2]) })
	}
	wg.Wait()
}

// put enqueues jobs. There may be no room for them.
func (c *crowd) put(d *desk, jobs ...storage.NewJob) {
	began := c.w.begin()
	out, err := d.s.Enqueue(c.ctx, c.now, jobs)
	switch {
	case err == nil:
		c.w.inserted(began, jobs, out)
	case !errors.Is(err, storage.ErrQueueFull):
		c.Errorf("Enqueue: unexpected error: %v", err)
	}
}

// round ends leases, and leases at most n jobs.
func (c *crowd) round(d *desk, n int, outcome storage.Outcome, leased []storage.Leased) []storage.Leased {
	x := storage.Exchange{LeaseDuration: hold, Wants: wants(n), Retention: kept(keep)}
	var ends []storage.Lease
	for _, l := range leased {
		ends = append(ends, l.Lease)
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: outcome})
	}
	sure := c.w.ending(ends...)
	began := c.w.begin()
	res, err := d.s.Exchange(c.ctx, c.now, x)
	if err != nil || len(res.Finished) != len(ends) {
		c.Errorf("Exchange returned %+v, %v", res, err)
		return nil
	}
	for i, r := range res.Finished {
		c.w.ended(x.Finish[i], r, x.Retention, sure[ends[i]])
	}
	c.w.leased(began, d, res.Leased...)
	return res.Leased
}

// members has callers enqueue members of two groups, while others run them.
func (c *crowd) members(limit int) {
	c.w.limits[queue] = limit
	const each = 12
	c.call(8, func(i int, d *desk) {
		var leased []storage.Leased
		for k := range each {
			if i < 4 {
				c.put(d, newJob(grouped([]string{"g", "h"}[k%2])))
				continue
			}
			leased = c.round(d, 2, storage.OutcomeDone, leased)
		}
		c.round(d, 0, storage.OutcomeDone, leased)
	})
	for range 4*each + 1 { // each exchange has a member of each group at least
		c.round(c.desks[0], 0, storage.OutcomeDone, c.round(c.desks[0], 9, 0, nil))
	}
	c.counts(count(storage.Done, 4*each))
	all, err := c.s.Stats(c.ctx)
	if c.must(err); len(all) != 1 || all[0].Total != (storage.Totals{Enqueued: 4 * each, Done: 4 * each}) {
		c.Errorf("Stats are %+v; %d jobs have come and are done", all, 4*each)
	}
}

var concurrentCases = []testCase{
	{"concurrent_lease", exact + `
a lease may pass over jobs that another call is deciding about
` + inTurns, func(f *fixture) {
		c := newCrowd(f)
		c.put(c.desks[0], times(6, newJob())...)
		c.call(6, func(_ int, d *desk) {
			var leased []storage.Leased
			for range 20 {
				leased = c.round(d, 2, storage.OutcomeRetry, leased)
			}
			c.round(d, 0, storage.OutcomeReturned, leased)
		})
		f.counts(count(storage.Ready, 6))
		if got := f.lease(f.s, 9); len(got) != 6 {
			f.Errorf("%d jobs are leased in the end, want 6: what was passed over is there", len(got))
		}
	}},

	{"concurrent_finish", exact, func(f *fixture) {
		l := f.run(f.s)
		c := newCrowd(f)
		results := make([]storage.ItemResult, 6)
		c.call(len(results), func(i int, _ *desk) {
			end := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
			res, err := f.s.Exchange(f.ctx, f.now, storage.Exchange{LeaseDuration: hold, Finish: []storage.Finish{end}, Retention: kept(keep)})
			if err != nil || len(res.Finished) != 1 {
				f.Errorf("Exchange returned %+v, %v", res, err)
				return
			}
			results[i] = res.Finished[0]
		})
		slices.Sort(results)
		if want := append([]storage.ItemResult{storage.Applied}, slices.Repeat([]storage.ItemResult{storage.Lost}, 5)...); !slices.Equal(results, want) {
			f.Errorf("ending one lease by many returned %v, want %v", results, want)
		}
		f.counts(count(storage.Done, 1))
	}},

	{"concurrent_key", exact + "\n" + inTurns, func(f *fixture) {
		c := newCrowd(f)
		for range 20 {
			c.call(6, func(_ int, d *desk) { c.put(d, newJob(unique("a")), newJob(unique("b"))) })
			again := f.enqueue(newJob(unique("a")), newJob(unique("b")))
			got := c.round(c.desks[0], 9, 0, nil)
			if len(got) != 2 || !again[0].Duplicate || !again[1].Duplicate {
				f.Fatalf("%d jobs with two keys are ready, and the next answers are %+v", len(got), again)
			}
			c.round(c.desks[1], 0, storage.OutcomeDone, got)
		}
		f.counts(count(storage.Done, 40))
	}},

	{"concurrent_group", `The order of a group is that of commits
Total is how many of its jobs have come and ended, ever.
` + exact + "\n" + inTurns, func(f *fixture) { newCrowd(f).members(1) }},

	{"concurrent_group_limit", exact, func(f *fixture) {
		f.groupLimit(2, storage.BlockDead)
		newCrowd(f).members(2)
	}},

	{"concurrent_group_tx", `A call in a transaction of the application lasts until that ends.
a member from a transaction of the application may be blocked until the next Exchange.`, func(f *fixture) {
		f.transacts(f.s)
		c := newCrowd(f)
		const each = 6
		c.call(6, func(i int, d *desk) {
			s, _ := d.s.(storage.TxEnqueuer)
			var leased []storage.Leased
			for range each {
				if i >= 3 {
					leased = c.round(d, 1, storage.OutcomeDone, leased)
					continue
				}
				began, jobs := c.w.begin(), times(1, newJob(grouped("g")))
				var out []storage.Enqueued
				err := s.Tx(f.ctx, func(tx any) (err error) {
					out, err = s.EnqueueTx(f.ctx, tx, f.now, jobs)
					return err
				})
				if err != nil {
					f.Errorf("Tx: unexpected error: %v", err)
					return
				}
				c.w.inserted(began, jobs, out)
			}
			c.round(d, 0, storage.OutcomeDone, leased)
		})
		for range 2 * 3 * each {
			c.round(c.desks[0], 0, storage.OutcomeDone, c.round(c.desks[0], 1, 0, nil))
		}
		f.counts(count(storage.Done, 3*each))
	}},

	{"concurrent_tokens", exact + "\n" + inTurns, func(f *fixture) {
		const burst = 7
		f.throttle(wholeQueue, 1, time.Second, burst)
		c := newCrowd(f)
		c.put(c.desks[0], times(30, newJob())...)
		var mu sync.Mutex
		taken := 0
		c.call(6, func(i int, d *desk) {
			for range 5 {
				got := c.round(d, 1+i%2, 0, nil)
				mu.Lock()
				taken += len(got)
				mu.Unlock()
			}
		})
		if taken > burst {
			f.Errorf("%d tokens were taken, and there were %d", taken, burst)
		}
		if last := f.lease(f.s, 99); taken+len(last) != burst {
			f.Errorf("%d tokens were taken, and %d were left; there were %d", taken, len(last), burst)
		}
	}},

	{"concurrent_cap", `a cap may be exceeded by what the others insert.
` + inTurns, func(f *fixture) {
		const most, callers = 5, 6
		f.caps(wholeQueue, most, 0, storage.Refuse)
		c := newCrowd(f)
		c.call(callers, func(_ int, d *desk) {
			for range 4 {
				c.put(d, newJob())
			}
		})
		n, size := len(c.w.jobs), int64(len(newJob().Args)+storage.JobOverhead)
		if n < most || n > most+callers-1 {
			f.Errorf("%d jobs wait, want %d, and at most %d more", n, most, callers-1)
		}
		f.refused("after the others", f.s, &storage.QueueFullError{Queue: queue, MaxJobs: most, Jobs: int64(n), Bytes: int64(n) * size}, newJob())
	}},
}
