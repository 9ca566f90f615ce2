package storagetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

var handoffCases = []testCase{
	{"handoff_leases", `A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of want as ready goes on to lease jobs of want in the same transaction
The jobs are passed to receive, in the order they should start, after the commit and before the call returns`, func(f *fixture) {
		w := f.offer(f.s, usual, 9)
		ids := f.add(
			newJob(lane("other", kind)), newJob(lane(queue, "other")), newJob(), newJob(priority(1)), newJob(dueAt(f.now)),
			newJob(dueAt(f.now.Add(1))), newJob(delay(1)),
		)
		w.took("handed over", pick(ids, 3, 2, 4)...)
		f.is(storage.Ready, ids[:2]...)
		f.is(storage.Running, ids[2:5]...)
		f.is(storage.Scheduled, ids[5:]...)
		f.counts(
			storage.Count{Queue: queue, Kind: "other", State: storage.Ready, N: 1}, count(storage.Running, 3), count(storage.Scheduled, 2),
			storage.Count{Queue: "other", Kind: kind, State: storage.Ready, N: 1},
		)
	}},

	{"handoff_as_leased", `goes on to lease jobs of want
those that an Exchange right after it would lease`, func(f *fixture) {
		fill := func(n *storage.NewJob) {
			n.Priority, n.Timeout, n.DueAt = -7, 1500*time.Millisecond, f.now.Add(-time.Minute)
			n.Headers, n.Policy, n.Args = []byte("h"), []byte(`{"p":1}`), noise(5000)
		}
		for _, change := range []func(*storage.NewJob){fill, func(*storage.NewJob) {}} {
			leased := f.run(f.s, change)
			w := f.offer(f.s, usual, 1)
			handed := w.took("handed over", f.add(newJob(change))...)[0]
			w.Close()
			if handed.Attempt != 1 || !sameLeased(handed, leased) {
				f.Errorf("handed over\n%+v\nby an exchange\n%+v", handed, leased)
			}
		}
	}},

	{"handoff_origin", `Origin is that of the job, as its tags say, see [OriginOf].`, func(f *fixture) {
		want := storage.Origin{Device: "pi", ID: "17"}
		w := f.offer(f.s, usual, 1)
		for _, o := range []storage.Origin{want, {}} {
			w.Capacity(1)
			if l := w.took("handed over", f.add(newJob(tagged(append(storage.FromTags(o), "red")...)))...)[0]; l.Origin != o {
				f.Errorf("the job comes from %v, want %v", l.Origin, o)
			}
		}
	}},

	{"handoff_held", `goes on to lease jobs of want
Offer announces a worker that will lease jobs of want for lease`, func(f *fixture) {
		other := f.db.Open()
		w := f.offer(f.s, usual, 1)
		id := f.add(newJob(unique("key")))[0]
		l := w.took("handed over", id)[0]
		if got := f.lease(other, 1); len(got) != 0 {
			f.Errorf("the job was leased a second time: %v", got)
		}
		if r := f.extend(f.s, l.Lease); r != storage.Applied {
			f.Errorf("extending returned %d, want applied", r)
		}
		if e := f.enqueue(newJob(unique("key")))[0]; !e.Duplicate || e.ID != id {
			f.Errorf("the unique key is not held: %v", e)
		}
		f.cancel(id)
		if r := f.extend(f.s, l.Lease); r != storage.Cancelling {
			f.Errorf("extending what was asked to stop returned %d", r)
		}
		f.finishAll(f.s, l)
		f.is("", id)
		f.counts()
		f.add(newJob(unique("key")))
	}},

	{"handoff_fates", `Unstarted: its process died before the handler was called.
Offer announces a worker that will lease jobs of want for lease`, func(f *fixture) {
		a := f.db.Open()
		w := f.offer(a, usual, 2)
		_, err := a.Enqueue(f.ctx, f.now, times(2, newJob()))
		f.must(err)
		got := w.taken()
		if len(got) != 2 {
			f.Fatalf("handed over %d, want 2", len(got))
		}
		f.begin(a, got[1].Lease)
		f.takesNothing(f.s, 0)
		f.db.Kill(a)
		f.fates(f.s, 0, map[int64]storage.Fate{got[0].Key: storage.Unstarted, got[1].Key: storage.Crashed})
	}},

	{"handoff_lapse", `Offer announces a worker that will lease jobs of want for lease
the longest lease that the holder has asked for`, func(f *fixture) {
		other := f.db.Open()
		l := f.run(f.s)
		var got []storage.Leased
		o := f.offerTo(f.s, usual, 3*hold, func(jobs []storage.Leased, _ time.Time) { got = jobs })
		o.Capacity(1)
		f.add(newJob())
		if len(got) != 1 {
			f.Fatalf("handed over %v, want one", got)
		}
		f.finishAll(f.s, l)
		f.takesNothing(other, 0)
		f.takesNothing(other, 3*hold-1)
		f.takes(other, 3*hold, got[0].Lease, storage.Cut)
	}},

	{"handoff_fire", `A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of want as ready goes on to lease jobs of want in the same transaction`, func(f *fixture) {
		f.put(newSchedule("a", skipOverlap))
		f.put(newSchedule("b"))
		w := f.offer(f.s, usual, 2)
		fired := f.fire(f.s,
			fires("a", f.schedule(f.s, "a").Plan, tick(f.now.Add(-time.Second)), tick(f.now)),
			fires("b", f.schedule(f.s, "b").Plan, tick(f.now), tick(f.now, priority(1)), tick(f.now, delay(time.Second))))
		if taken := fired[0].Ticks[1].Taken; taken != storage.TickOverlap {
			f.Errorf("the tick behind one that was handed over is %s, want %s", taken, storage.TickOverlap)
		}
		w.took("handed over", fired[1].Ticks[1].ID, fired[0].Ticks[0].ID)
		f.is(storage.Ready, fired[1].Ticks[0].ID)
		f.is(storage.Scheduled, fired[1].Ticks[2].ID)
		f.take("a", tick(f.now.Add(time.Second)))
		w.took("a tick without capacity")
	}},

	{"handoff_order", `as many as there is capacity for: those that an Exchange right after it would lease.
The jobs are passed to receive, in the order they should start`, func(f *fixture) {
		w := f.offer(f.s, usual, 2)
		ids := f.add(newJob(), newJob(priority(1)), newJob(dueAt(f.now.Add(-time.Second))), newJob(priority(2)), newJob())
		w.took("of more than there is capacity for", pick(ids, 3, 1)...)
		w.Capacity(1)
		late := f.add(newJob(dueAt(f.now.Add(-time.Minute))))
		w.took("the one that is due first", late...)
		w.Capacity(2)
		last := f.add(newJob())
		w.took("those that waited before", pick(ids, 2, 0)...)
		f.finishAll(f.s, f.lease(f.s, 1)...)
		f.is("", ids[4])
		f.is(storage.Ready, last...)
	}},

	{"handoff_due", `those that an Exchange right after it would lease.`, func(f *fixture) {
		ids := f.add(newJob(delay(time.Second)), newJob(delay(time.Minute)), newJob(delay(time.Second), lane("other", kind)))
		w := f.offer(f.s, usual, 9)
		f.later(time.Second)
		more := f.add(newJob())
		w.took("one that has become due, and the one inserted", ids[0], more[0])
		f.is(storage.Scheduled, ids[1])
		f.later(time.Minute)
		f.add(newJob(lane("other", kind)))
		w.took("of a call that inserted nothing of the source")
		f.add(newJob(delay(time.Second)))
		w.took("of a call that inserted nothing ready")
		w.took("and then", ids[1], f.add(newJob())[0])
	}},

	{"handoff_paused", `those that an Exchange right after it would lease.`, func(f *fixture) {
		w := f.offer(f.s, storage.Want{Queues: []string{queue, "other"}, Kinds: []string{kind}}, 9)
		f.pause(queue, true)
		ids := f.add(newJob(), newJob(lane("other", kind)))
		w.took("handed over beside a paused queue", ids[1])
		f.add(newJob())
		w.took("of a paused queue")
		f.pause(queue, false)
		w.took("of one that was resumed")
		f.add(newJob())
		if n := len(w.taken()); n != 3 {
			f.Errorf("handed over %d after the pause, want 3", n)
		}
	}},

	{"handoff_capacity", `as long as it has capacity: for want.N jobs at first, then for what [Offer.Capacity] says.
Capacity sets for how many jobs there is capacity from now on.
and then no more: receive has to set how much capacity they leave.`, func(f *fixture) {
		w := &receiver{f: f}
		w.Offer = f.offerTo(f.s, usual, hold, func(jobs []storage.Leased, _ time.Time) { w.jobs = append(w.jobs, jobs...) })
		f.finishAll(f.s, f.run(f.s))
		w.took("at first")
		w.Capacity(2)
		w.took("without a call")
		w.took("one of two", f.add(newJob())...)
		w.took("two of two, where nothing else was said", f.add(times(2, newJob())...)...)
		ids := f.add(times(3, newJob())...)
		w.took("two of three", ids[:2]...)
		w.Capacity(3)
		w.Capacity(1)
		f.add(newJob())
		w.took("one, as was said last", ids[2])
		w.Capacity(0)
		f.add(newJob())
		w.took("none again")
	}},

	{"handoff_capacity_in_receive", `receive has to set how much capacity they leave.
It does not wait for receive.`, func(f *fixture) {
		w := f.offer(f.s, usual, 3)
		w.took("one of three", f.add(newJob())...)
		f.add(newJob(delay(time.Hour)), newJob(lane("other", kind)))
		f.add(newJob(unique("key"), lane("other", kind)))
		if e := f.enqueue(newJob(unique("key")))[0]; !e.Duplicate {
			f.Errorf("the duplicate was inserted: %v", e)
		}
		w.took("of those that need no capacity")
		ids := f.add(times(3, newJob())...)
		w.took("two of three", ids[:2]...)
		f.add(newJob())
		w.took("none of three")
	}},

	{"handoff_under_way", `Leased jobs count until receive has returned`, func(f *fixture) {
		var o storage.Offer
		var handed atomic.Int64
		var wg sync.WaitGroup
		o = f.offerTo(f.s, usual, hold, func(jobs []storage.Leased, _ time.Time) {
			if handed.Add(int64(len(jobs))) > 1 {
				return
			}
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				if _, err := f.s.Enqueue(f.ctx, f.now, times(1, newJob())); err != nil {
					f.Errorf("unexpected error: %v", err)
				}
			})
			select {
			case <-done:
			case <-time.After(20 * time.Millisecond): // it may wait for receive
			}
			o.Capacity(0)
		})
		o.Capacity(1)
		f.add(newJob())
		wg.Wait()
		if n := handed.Load(); n != 1 {
			f.Errorf("handed over %d, want 1: there was capacity for one, and then for none", n)
		}
	}},

	{"handoff_turns", `Offers are served in the order they were made; an offer gets nothing if the inserted jobs were leased to those before it.`, func(f *fixture) {
		both := storage.Want{Queues: []string{queue}, Kinds: []string{kind, "other"}}
		f.add(newJob(lane(queue, "other")))
		a, b, c := f.offer(f.s, usual, 1), f.offer(f.s, both, 2), f.offer(f.s, usual, 1)
		ids := f.add(newJob())
		a.took("the first", ids...)
		b.took("the second, of what the first has taken")
		ids = f.add(newJob(), newJob(priority(1)), newJob())
		a.took("the first, without capacity")
		if got := b.taken(); len(got) != 2 || got[0].ID != ids[1] || got[1].Kind != "other" {
			f.Errorf("the second has %v, want %v and the one that waited", keysOf(leasedIDs(got)), ids[1])
		}
		c.took("the third", ids[0])
		f.is(storage.Ready, ids[2])
	}},

	{"handoff_turns_kept", `Offers are served in the order they were made
Min and Wait of want count as in an Exchange`, func(f *fixture) {
		two := storage.Want{Queues: []string{queue}, Kinds: []string{kind}, Min: 2, Wait: time.Second}
		a, b := f.offer(f.s, two, 2), f.offer(f.s, usual, 2)
		a.took("the first, whose wait is over", f.add(newJob(dueAt(f.now.Add(-time.Second))))...)
		b.took("the second, of what the first has taken")
		ids := f.add(newJob())
		a.took("the first, which waits")
		b.took("the second, of what the first leaves", ids...)
	}},

	{"handoff_instances", `A call of Enqueue, PublishMessages or Fire on this Store`, func(f *fixture) {
		other := f.db.Open()
		w := f.offer(f.s, usual, 2)
		e, err := other.Enqueue(f.ctx, f.now, times(1, newJob()))
		f.must(err)
		w.took("by another instance")
		f.is(storage.Ready, e[0].ID)
		w.took("with the next of its own", e[0].ID, f.add(newJob())[0])
	}},

	{"handoff_began", `began is a reading of time.Now before the leases began.`, func(f *fixture) {
		var began time.Time
		o := f.offerTo(f.s, usual, hold, func(_ []storage.Leased, at time.Time) { began = at })
		o.Capacity(1)
		before := time.Now()
		f.add(newJob())
		if began.Before(before) || time.Now().Before(began) {
			f.Errorf("began is %v after the call", began.Sub(before))
		}
	}},

	{"handoff_keeps", `the jobs are its to keep.
Slices passed in belong to the caller again when the call returns`, func(f *fixture) {
		src := storage.Want{Queues: []string{queue}, Kinds: []string{kind}}
		w := f.offer(f.s, src, 2)
		src.Queues[0] = "another"
		n := newJob(func(n *storage.NewJob) { n.Headers, n.Policy = []byte("headers"), []byte("policy") })
		ids := f.add(n, n)
		for _, b := range [][]byte{n.Args, n.Headers, n.Policy} {
			clear(b)
		}
		got := w.took("handed over", ids...)
		for _, l := range got {
			if string(l.Args) != string(newJob().Args) || string(l.Headers) != "headers" || string(l.Policy) != "policy" {
				f.Errorf("the job has changed with the slices of its caller: %+v", l)
			}
			clear(l.Args)
			clear(l.Headers)
			clear(l.Policy)
		}
		if r := f.record(ids[0]); string(r.Args) != string(newJob().Args) || string(r.Headers) != "headers" || string(r.Policy) != "policy" {
			f.Errorf("the record has changed with what was handed over: %+v", r)
		}
	}},

	{"handoff_close", `Close withdraws the offer. When it returns, receive has returned from its last call.`, func(f *fixture) {
		a, b := f.offer(f.s, usual, 1), f.offer(f.s, usual, 1)
		a.Close()
		a.Close()
		a.Capacity(5)
		ids := f.add(newJob(), newJob())
		a.took("after Close")
		b.took("another offer", ids[0])
		f.is(storage.Ready, ids[1])
	}},

	{"handoff_close_waits", `When it returns, receive has returned from its last call.`, func(f *fixture) {
		called, goOn, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		o := f.offerTo(f.s, usual, hold, func([]storage.Leased, time.Time) {
			close(called)
			<-goOn // longer than a worker may
		})
		o.Capacity(1)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := f.s.Enqueue(f.ctx, f.now, times(1, newJob())); err != nil {
				f.Errorf("unexpected error: %v", err)
			}
		})
		<-called
		wg.Go(func() {
			o.Close()
			close(closed)
		})
		select {
		case <-closed:
			f.Errorf("Close returned while receive was being called")
		case <-time.After(20 * time.Millisecond): // it can take its time to err
		}
		close(goOn)
		wg.Wait()
	}},

	{"handoff_concurrent", `also if its caller has given up.
When it returns, receive has returned from its last call.
It is safe for concurrent use.`, func(f *fixture) {
		total := 0
		for round := range 40 {
			w := f.offer(f.s, usual, 3)
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() {
					ctx, cancel := context.WithCancel(f.ctx)
					defer cancel()
					if c == round%4 {
						go cancel()
					}
					if _, err := f.s.Enqueue(ctx, f.now, times(1+c%2, newJob())); err != nil && ctx.Err() == nil {
						f.Errorf("unexpected error: %v", err)
					}
				})
			}
			if round%2 == 0 {
				wg.Wait()
			}
			w.Close()
			got := w.taken()
			wg.Wait()
			if late := w.taken(); len(late) != 0 || len(got) > 3 {
				f.Errorf("%d jobs were handed over, and %d after Close", len(got), len(late))
			}
			f.finishAll(f.s, append(got, f.lease(f.s, 9)...)...)
			total += len(got)
		}
		if total == 0 {
			f.Errorf("nothing was ever handed over")
		}
		f.counts() // none was leased without anybody knowing
	}},
}
