package storagetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// caller makes calls of an instance, one after the other.
type caller struct {
	*overlap
	d   *desk
	rng *rand.Rand
}

// calls are the calls of a round.
func (c *caller) calls() {
	type call struct {
		weight  int
		feature string
		make    func()
	}
	all := []call{
		{8, "", c.enqueue},
		{14, "", c.exchange},
		{2, "", c.reclaim},
		{2, "", c.look},
		{1, "cancel", c.cancel},
		{1, "holds", c.hold},
		{1, "redrive", c.redrive},
		{1, "run_now", c.runNow},
		{1, "change", c.change},
		{1, "delete", c.delete},
		{1, "purge", c.purge},
		{1, "keys", c.release},
		{1, "regroup", c.regroup},
		{2, "tx", c.transact},
		{1, "checkpoint", c.checkpoint},
		{1, "schedule", c.fire},
		{1, "handoff", c.capacity},
	}
	all = slices.DeleteFunc(all, func(a call) bool { return a.feature != "" && !c.has[a.feature] })
	sum := 0
	for _, a := range all {
		sum += a.weight
	}
	for range overlapCalls {
		n := c.rng.IntN(sum)
		for _, a := range all {
			if n -= a.weight; n < 0 {
				a.make()
				break
			}
		}
		if c.over.Load() {
			return
		}
	}
}

// one reports true once in n times.
func (c *caller) one(n int) bool { return c.rng.IntN(n) == 0 }

// context is for a call. It may end while the call is under way.
func (c *caller) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), overlapWait)
	if c.has["withdraw"] && c.one(8) {
		go cancel()
	}
	return ctx, cancel
}

// fails reports whether a call has returned an error, which is wrong unless its context was
// withdrawn or the error is one of those that are allowed.
func (c *caller) fails(what string, err error, allowed ...error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.Canceled) && c.has["withdraw"] || slices.ContainsFunc(allowed, func(e error) bool { return errors.Is(err, e) }) {
		return true
	}
	c.wrong("%s: unexpected error: %v", what, err)
	return true
}

// any returns a job that somebody was told of.
func (c *caller) any() (storage.ID, bool) {
	c.known.Lock()
	defer c.known.Unlock()
	if len(c.known.ids) == 0 {
		return storage.ID{}, false
	}
	n := len(c.known.ids)
	return c.known.ids[n-1-c.rng.IntN(min(n, 30))], true
}

// tell has others know of new jobs.
func (o *overlap) tell(out []storage.Enqueued) {
	o.known.Lock()
	defer o.known.Unlock()
	for _, e := range out {
		if !e.Duplicate {
			o.known.ids = append(o.known.ids, e.ID)
		}
	}
}

// newJob draws a job.
func (c *caller) newJob() storage.NewJob {
	n := storage.NewJob{Queue: c.queue[c.rng.IntN(len(c.queue))], Kind: []string{"x", "y"}[c.rng.IntN(2)], Args: []byte("{}")}
	plain := n.Queue == "a" || n.Queue == "b"
	switch grouped := n.Queue == queueGroups || n.Queue == queuePairs; {
	case grouped:
		n.Group = []string{"g", "h"}[c.rng.IntN(2)]
	case plain && c.has["keys"] && c.one(3):
		n.Unique = overlapKeys[c.rng.IntN(len(overlapKeys))]
		if c.one(6) {
			n.UniqueScope = storage.UniqueForever // with which nobody combines a Conflict
			break
		}
		if n.Unique == overlapKeys[0] && c.one(2) { // the others are free when their holders end
			n.UniqueFor = time.Second
		}
		if c.has["conflicts"] && c.one(2) {
			n.Conflict = &storage.Conflict{Mode: []storage.ConflictMode{storage.Replace, storage.Debounce, storage.After, storage.Fail}[c.rng.IntN(4)]}
			if n.Conflict.Mode == storage.Debounce {
				n.Conflict.Quiet = time.Second
			}
		}
	}
	debounced := n.Conflict != nil && n.Conflict.Mode == storage.Debounce
	if c.has["delay"] && !debounced && c.one(5) {
		n.Delay = time.Second
	}
	if c.has["priority"] && c.one(4) {
		n.Priority = c.rng.IntN(3)
	}
	if c.has["expiry"] && plain && n.Unique == "" && c.one(6) {
		n.StartWithin = 2 * time.Second
		if n.OnExpire = storage.Expired; c.one(2) {
			n.OnExpire = storage.Dead
		}
	}
	return n
}

// overlapKeys are the unique keys of a history.
var overlapKeys = []string{"k", "l", "m"}

// wantsOver returns the keys that one of jobs may take over from their holders.
func wantsOver(jobs []storage.NewJob) (keys []string) {
	for i := range jobs {
		if jobs[i].Conflict.Replaces() {
			keys = append(keys, jobs[i].Unique)
		}
	}
	return keys
}

func (c *caller) newJobs() []storage.NewJob {
	jobs := make([]storage.NewJob, 1+c.rng.IntN(3))
	for i := range jobs {
		jobs[i] = c.newJob()
	}
	return jobs
}

func (c *caller) enqueue() {
	ctx, cancel := c.context()
	defer cancel()
	jobs := c.newJobs()
	defer c.w.freeing(wantsOver(jobs)...)()
	began := c.w.begin()
	out, err := c.d.s.Enqueue(ctx, c.now, jobs)
	if !c.fails("Enqueue", err, storage.ErrQueueFull, storage.ErrDuplicate) {
		c.w.inserted(began, jobs, out)
		c.tell(out)
	}
}

// finish draws the end of a lease.
func (c *caller) finish(l storage.Leased) storage.Finish {
	f := storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}
	if l.Queue == queueCapped || c.one(2) {
		return f
	}
	f.Outcome = []storage.Outcome{
		storage.OutcomeRetry, storage.OutcomeSnooze, storage.OutcomeReturned, storage.OutcomeInterrupted, storage.OutcomeDead, storage.OutcomeCancelled,
	}[c.rng.IntN(6)]
	switch f.Outcome {
	case storage.OutcomeDead:
		return died(l.Lease, storage.ReasonPermanent, "no")
	case storage.OutcomeRetry, storage.OutcomeSnooze:
		f.DueAt = c.now.Add(time.Duration(c.rng.IntN(2)) * time.Second)
	case storage.OutcomeReturned:
		if l.Queue == queueSlow { // which brings its token back
			c.taken.Add(-1)
		}
	}
	return f
}

func (c *caller) exchange() {
	ctx, cancel := c.context()
	defer cancel()
	x := storage.Exchange{LeaseDuration: hold, Retention: kept(time.Duration(c.rng.IntN(3)) * time.Second)}
	if x.Wants = []storage.Want{c.want("", 1+c.rng.IntN(4))}; c.one(3) {
		x.Wants = []storage.Want{c.want(c.queue[c.rng.IntN(len(c.queue))], 1+c.rng.IntN(3)), c.want("", 1)}
	}
	if c.has["run_now"] {
		x.Urgent = 1
	}
	took, extend := c.d.take(c.rng, c.rng.IntN(4)), c.d.take(c.rng, c.rng.IntN(2))
	extend = slices.DeleteFunc(extend, func(l storage.Leased) bool {
		return slices.ContainsFunc(took, func(o storage.Leased) bool { return o.Lease == l.Lease })
	})
	for _, l := range took {
		x.Finish = append(x.Finish, c.finish(l))
	}
	for _, l := range extend {
		x.Extend = append(x.Extend, l.Lease)
	}
	c.trade(ctx, x, took, extend)
}

// trade makes an Exchange that ends the leases of took and extends those of extend. It
// returns how much has happened.
func (c *caller) trade(ctx context.Context, x storage.Exchange, took, extend []storage.Leased) int {
	var ends []storage.Lease
	for i := range x.Finish {
		ends = append(ends, x.Finish[i].Lease)
	}
	var tries []int
	for _, l := range x.Extend {
		tries = append(tries, c.w.sureOf(l))
	}
	sure := c.w.ending(ends...)
	began := c.w.begin()
	res, err := c.d.s.Exchange(ctx, c.now, x)
	c.d.put(extend...)
	if c.fails("Exchange", err) {
		c.w.withdrawn(sure)
		c.d.put(took...)
		return 0
	}
	if len(res.Finished) != len(x.Finish) || len(res.Extended) != len(x.Extend) || len(res.Leased) > x.Wanted()+x.Urgent {
		c.wrong("Exchange of %+v returned %+v", x, res)
		return 0
	}
	for i, r := range res.Extended {
		c.w.extended(x.Extend[i], "extending it", r, tries[i])
	}
	for i, r := range res.Finished {
		c.w.ended(x.Finish[i], r, x.Retention, sure[ends[i]])
	}
	c.w.expires(res.Expired)
	c.granted(began, c.d, res.Leased)
	return len(res.Finished) + len(res.Expired) + len(res.Leased)
}

func (c *caller) reclaim() {
	ctx, cancel := c.context()
	defer cancel()
	c.takeOver(ctx, 1+c.rng.IntN(5))
}

// takeOver makes a Reclaim, and returns how many leases it has taken.
func (c *caller) takeOver(ctx context.Context, limit int) int {
	began := c.w.begin()
	got, err := c.d.s.Reclaim(ctx, c.now, 0, hold, limit)
	if c.fails("Reclaim", err) {
		return 0
	}
	c.w.reclaimed(began, c.d, got)
	for i := range got {
		c.d.put(got[i].Leased)
	}
	return len(got)
}

// look reads a job and the counts.
func (c *caller) look() {
	ctx, cancel := c.context()
	defer cancel()
	if id, ok := c.any(); ok {
		r, err := c.d.s.Job(ctx, id)
		if !c.fails("Job", err, storage.ErrNotFound) && r.ID != id || errors.Is(err, storage.ErrNotFound) && c.w.sure(id) {
			c.wrong("Job of %d returned job %d, %v", id.Key(), r.Key, err)
		}
	}
	all, err := c.d.s.Counts(ctx)
	if !c.fails("Counts", err) && slices.ContainsFunc(all, func(n storage.Count) bool { return n.N <= 0 }) {
		c.wrong("Counts returned %v", all)
	}
}

// transact enqueues in a transaction, may end a lease there, and may decline.
func (c *caller) transact() {
	s, ok := c.d.s.(storage.TxEnqueuer)
	if !ok {
		return
	}
	ctx, cancel := c.context()
	defer cancel()
	jobs, declines, keep := c.newJobs(), c.one(3), kept(time.Second)
	var took []storage.Leased
	var ends []storage.Lease
	if c.one(2) {
		took = c.d.take(c.rng, 1)
		for _, l := range took {
			ends = append(ends, l.Lease)
		}
	}
	defer c.w.freeing(wantsOver(jobs)...)()
	sure := c.w.ending(ends...)
	began := c.w.begin()
	var out []storage.Enqueued
	var results []storage.ItemResult
	err := s.Tx(ctx, func(tx any) (err error) {
		if out, err = s.EnqueueTx(ctx, tx, c.now, jobs); err != nil {
			return err
		}
		for range c.rng.IntN(20) { // others come meanwhile, or wait
			runtime.Gosched()
		}
		for _, l := range ends {
			r, _, err := finishOneTx(s)(ctx, tx, c.now, storage.Finish{Lease: l, Outcome: storage.OutcomeDone}, keep, nil)
			if err != nil {
				return err
			}
			if results = append(results, r); r != storage.Applied {
				return errDeclined
			}
		}
		if declines {
			return errDeclined
		}
		return nil
	})
	if c.fails("Tx", err, errDeclined, storage.ErrQueueFull, storage.ErrDuplicate) {
		for i, r := range results {
			if r != storage.Applied && r != storage.Cancelling { // its answer counts
				c.w.ended(storage.Finish{Lease: ends[i], Outcome: storage.OutcomeDone}, r, keep, sure[ends[i]])
				sure, took = nil, nil
			}
		}
		c.w.withdrawn(sure)
		c.d.put(took...)
		return
	}
	for i, r := range results {
		c.w.ended(storage.Finish{Lease: ends[i], Outcome: storage.OutcomeDone}, r, keep, sure[ends[i]])
	}
	c.w.inserted(began, jobs, out)
	c.tell(out)
}

func (c *caller) checkpoint() {
	ctx, cancel := c.context()
	defer cancel()
	for _, l := range c.d.take(c.rng, 1) {
		tries := c.w.sureOf(l.Lease)
		r, err := c.d.s.Checkpoint(ctx, storage.Checkpoint{Lease: l.Lease, Data: []byte(`{"n":1}`)})
		c.d.put(l)
		if !c.fails("Checkpoint", err) {
			c.w.extended(l.Lease, "Checkpoint", r, tries)
		}
	}
}

// fire takes a tick of the schedule.
func (c *caller) fire() {
	s, ok := c.d.s.(storage.Scheduler)
	if !ok {
		return
	}
	ctx, cancel := c.context()
	defer cancel()
	r, err := s.Schedule(ctx, "a")
	if c.fails("Schedule", err) {
		return
	}
	n := storage.NewJob{Queue: "a", Kind: "x", Args: []byte("{}")}
	began := c.w.begin()
	out, err := s.Fire(ctx, c.now, []storage.Firing{{
		Name: "a", Revision: r.Revision, Through: c.now, Next: c.now.Add(time.Second),
		Ticks: []storage.NewTick{{At: c.now, Taken: storage.TickFired, Job: &n}},
	}})
	if c.fails("Fire", err) || !out[0].Applied {
		return
	}
	c.w.fire(r.Revision)
	if id := out[0].Ticks[0].ID; !id.IsZero() {
		added := []storage.Enqueued{{ID: id}}
		c.w.inserted(began, []storage.NewJob{n}, added)
		c.tell(added)
	}
}

// capacity has an Offer take more jobs.
func (c *caller) capacity() {
	if c.d.offer != nil {
		c.d.offer.Capacity(1 + c.rng.IntN(2))
	}
}
