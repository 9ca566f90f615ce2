package storagetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// settled checks what must hold while no call is under way. If drained, no job is live.
func (o *overlap) settled(drained bool) {
	if fault := record(o.t, o.db.Invariants); fault != "" {
		o.wrong("invariants %s", fault)
		return
	}
	all := o.all()
	states := map[storage.ID]storage.State{}
	counted := map[storage.Count]int64{}
	members, holders := map[storage.GroupState]int{}, map[string]int{}
	waiting := map[string]int{}
	for id, r := range all {
		states[id] = r.State
		counted[storage.Count{Queue: r.Queue, Kind: r.Kind, State: r.State}]++
		switch live := r.State; live {
		case storage.Scheduled, storage.Ready, storage.Blocked:
			waiting[r.Queue]++
		case storage.Running:
		default:
			continue
		}
		if r.Group != "" && (r.State == storage.Ready || r.State == storage.Running) {
			members[storage.GroupState{Queue: r.Queue, Group: r.Group}]++
		}
		if r.Unique != "" && r.State != storage.Blocked {
			holders[r.Unique]++
		}
	}
	o.w.settled(states)
	for g, n := range members {
		if n > max(o.w.limits[g.Queue], 1) {
			o.wrong("%d members of group %q of %q are ready or running", n, g.Group, g.Queue)
		}
	}
	for key, n := range holders {
		if n > 1 {
			o.wrong("%d jobs hold the key %q", n, key)
		}
	}
	if most := overlapTokens + int64(o.now.Sub(o.start)/time.Second); o.taken.Load() > most {
		o.wrong("%d tokens were taken, of %d", o.taken.Load(), most)
	}
	o.counts(counted)
	o.totals(drained)
	if !drained {
		o.room(waiting[queueCapped])
	}
}

// room checks that the cap is as exact as ever now, and was exceeded by no more than others
// may have inserted.
func (o *overlap) room(waiting int) {
	if !slices.Contains(o.queue, queueCapped) {
		return
	}
	if most := overlapCap + 3*(overlapDesks*overlapCallers-1); waiting > most {
		o.wrong("%d jobs of a queue wait, its cap is %d", waiting, overlapCap)
	}
	jobs := []storage.NewJob{{Queue: queueCapped, Kind: "x", Args: []byte("{}")}}
	began := o.w.begin()
	out, err := o.desks[0].s.Enqueue(context.Background(), o.now, jobs)
	switch full := errors.Is(err, storage.ErrQueueFull); {
	case full != (waiting >= overlapCap) || err != nil && !full:
		o.wrong("%d jobs of a queue wait, its cap is %d, and a call that nothing overlaps returned %v", waiting, overlapCap, err)
	case err == nil:
		o.w.inserted(began, jobs, out)
		o.tell(out)
	}
}

// all returns all jobs that there are.
func (o *overlap) all() map[storage.ID]storage.Record {
	out, s := map[storage.ID]storage.Record{}, o.desks[0].s
	if !o.has["list"] {
		for _, id := range o.known.ids {
			r, err := s.Job(context.Background(), id)
			if err == nil {
				out[id] = r
			} else if !errors.Is(err, storage.ErrNotFound) {
				o.must(err)
			}
		}
		return out
	}
	for after := ""; ; {
		page, err := s.Jobs(context.Background(), storage.Filter{}, after, 100)
		if err != nil {
			o.must(err)
			return out
		}
		for _, r := range page.Jobs {
			if _, twice := out[r.ID]; twice {
				o.wrong("job %d is listed twice", r.Key)
			}
			out[r.ID] = r
		}
		if after = page.Next; after == "" {
			return out
		}
	}
}

// counts compares Counts with what there is.
func (o *overlap) counts(want map[storage.Count]int64) {
	all, err := o.desks[0].s.Counts(context.Background())
	o.must(err)
	got := map[storage.Count]int64{}
	for _, c := range all {
		n := c.N
		c.N = 0
		got[c] = n
	}
	if !maps.Equal(got, want) {
		o.wrong("Counts are %v, and there are %v", got, want)
	}
}

// totals compares the totals of all lanes with what the callers were told. If drained, no
// job is live.
func (o *overlap) totals(drained bool) {
	if !o.has["stats"] {
		return
	}
	lanes, err := o.desks[0].s.Stats(context.Background())
	o.must(err)
	var t storage.Totals
	var evicted, evictedDead int64
	for _, l := range lanes {
		t.Enqueued, t.Done, t.Cancelled = t.Enqueued+l.Total.Enqueued, t.Done+l.Total.Done, t.Cancelled+l.Total.Cancelled
		t.Expired, t.Dead = t.Expired+l.Total.Expired, t.Dead+l.Total.Dead
		evicted, evictedDead = evicted+l.Evicted, evictedDead+l.EvictedDead
	}
	n := &o.w.sums
	got := []int64{t.Enqueued, t.Done, t.Expired, t.Dead, evicted, evictedDead}
	if want := []int64{n.inserted, n.done, n.expired, n.died + n.expiredDead, n.evicted, n.evictedDead}; !slices.Equal(got, want) {
		o.wrong("of enqueued, done, expired, dead and evicted jobs there were %d, and callers were told of %d", got, want)
	}
	if ends := t.Done + t.Cancelled + t.Expired + t.Dead + evicted; drained && t.Enqueued+n.redriven != ends {
		o.wrong("%d jobs were enqueued and %d redriven, and %d have ended: %+v", t.Enqueued, n.redriven, ends, t)
	}
}

// drain runs all that is left, by one caller.
func (o *overlap) drain() {
	o.now = o.now.Add(time.Hour)
	c := &caller{overlap: o, d: o.desks[0], rng: o.rng}
	for _, d := range o.desks[1:] {
		o.w.lapse(d)
		d.gone.Store(true)
		o.db.Kill(d.s)
	}
	for _, d := range o.closed {
		o.db.Kill(d.s)
	}
	o.desks = o.desks[:1]
	o.unlock(c.d)
	for idle := 0; idle < 3 && !o.over.Load(); idle++ {
		happened := c.takeOver(context.Background(), 1000)
		x := storage.Exchange{LeaseDuration: hold, Retention: kept(time.Hour), Wants: []storage.Want{o.want("", 100)}}
		if o.has["run_now"] {
			x.Urgent = 100
		}
		took := c.d.leases
		c.d.leases = nil
		for _, l := range took {
			x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
		if happened+c.trade(context.Background(), x, took, nil) > 0 {
			idle = -1
		}
	}
	o.taken.Store(0)
	if o.settled(true); o.over.Load() {
		return
	}
	for _, r := range o.all() {
		if r.State == storage.Scheduled || r.State == storage.Ready || r.State == storage.Running || r.State == storage.Blocked {
			o.w.wrong(o.w.at(r.ID), "job %d is %s, and was not leased in the end", r.Key, r.State)
		}
	}
}

// unlock takes away all that keeps jobs from being leased.
func (o *overlap) unlock(d *desk) {
	ctx := context.Background()
	if d.offer != nil {
		d.offer.Close()
	}
	if o.has["throttles"] {
		o.must(d.s.Configure(ctx, storage.Lane{Queue: queueSlow}, storage.Settings{storage.SettingStarts: 0}))
	}
	for _, q := range []string{"a", "b"} {
		if lane := (storage.Lane{Queue: q, Kind: "x"}); o.has["holds"] {
			over := o.w.releasing(lane)
			_, err := d.s.Release(ctx, o.now, lane, storage.HoldPaused)
			over()
			o.must(err)
		}
	}
	if o.has["groups"] && o.has["regroup"] {
		o.must(d.s.Configure(ctx, storage.Lane{Queue: queuePairs}, storage.Settings{storage.SettingGroupLimit: 2}))
		for after := ""; ; {
			next, err := d.s.Regroup(ctx, queuePairs, after)
			if o.must(err); err != nil || next == "" {
				break
			}
			after = next
		}
	}
	for _, g := range []string{"g", "h"} {
		for range 1000 { // as many may be dead
			if !o.has["groups"] {
				break
			}
			if _, err := d.s.SkipHead(ctx, queueGroups, g); errors.Is(err, storage.ErrNotFound) {
				break
			} else if err != nil {
				o.must(err)
				break
			}
		}
	}
}
