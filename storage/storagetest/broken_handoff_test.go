package storagetest

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// faultyOffer is an offer with some of its methods replaced.
type faultyOffer struct {
	*offer
	setCapacity func(n int)
	withdraw    func()
}

func (o *faultyOffer) Capacity(n int) {
	if o.setCapacity != nil {
		o.setCapacity(n)
		return
	}
	o.offer.Capacity(n)
}

func (o *faultyOffer) Close() {
	if o.withdraw != nil {
		o.withdraw()
		return
	}
	o.offer.Close()
}

// offering has f change each offer when it is made.
func offering(f func(o *faultyOffer)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.offer = func(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
			o := &faultyOffer{offer: in.Offer(want, lease, receive).(*offer)}
			f(o)
			return o
		}
		return h
	}
}

// taking has f take the jobs, and pass them on as it likes.
func taking(f func(o *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time))) func(in *instance) storage.Store {
	return offering(func(o *faultyOffer) {
		pass := o.receive
		o.receive = func(jobs []storage.Leased, began time.Time) {
			f(o.offer, jobs, func(jobs []storage.Leased, _ time.Time) { pass(jobs, began) })
		}
	})
}

// inserting has f surround each Enqueue: the function it returns is called after it.
func inserting(f func(in *instance, now time.Time) func()) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var undo func()
			in.m.locked(func() { undo = f(in, now) })
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(undo)
			return out, err
		}
		return h
	}
}

var handoffFaults = []fault{
	{"what is handed over is not leased", "handoff_leases", taking(func(o *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		o.in.m.locked(func() {
			for _, l := range jobs {
				j := o.in.m.jobs[l.Key]
				j.State, j.lease = storage.Ready, lease{}
			}
		})
		pass(jobs, time.Time{})
	})},
	{"what is leased is not passed on", "handoff_leases", taking(func(*offer, []storage.Leased, func([]storage.Leased, time.Time)) {})},
	{"what is leased is passed on twice", "handoff_leases", taking(func(_ *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		pass(jobs, time.Time{})
		pass(jobs, time.Time{})
	})},
	{"what is leased is passed on with the next call", "handoff_leases", func(in *instance) storage.Store {
		var late []storage.Leased
		return taking(func(_ *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
			jobs, late = late, jobs
			pass(jobs, time.Time{})
		})(in)
	}},
	{"an attempt that is handed over does not count", "handoff_as_leased", taking(func(o *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		o.in.m.locked(func() {
			for i := range jobs {
				o.in.m.jobs[jobs[i].Key].Attempt--
				jobs[i].Attempt--
			}
		})
		pass(jobs, time.Time{})
	})},
	{"an attempt that is handed over counts as started", "handoff_fates", taking(func(o *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		for _, l := range jobs {
			_ = o.in.Started(l.Lease, time.Now())
		}
		pass(jobs, time.Time{})
	})},
	{"jobs are handed over in the order they were enqueued", "handoff_order", taking(func(_ *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		slices.SortFunc(jobs, func(a, b storage.Leased) int { return cmp.Compare(a.Key, b.Key) })
		pass(jobs, time.Time{})
	})},
	{"what is handed over is the record's", "handoff_keeps", taking(func(o *offer, jobs []storage.Leased, pass func([]storage.Leased, time.Time)) {
		o.in.m.locked(func() {
			for _, l := range jobs {
				o.in.m.jobs[l.Key].Args = l.Args
			}
		})
		pass(jobs, time.Time{})
	})},
	{"began is not told", "handoff_began", offering(func(o *faultyOffer) {
		take := o.receive
		o.receive = func(jobs []storage.Leased, _ time.Time) { take(jobs, time.Time{}) }
	})},
	{"jobs are leased for any length", "handoff_lapse", offering(func(o *faultyOffer) { o.lease = hold })},
	{"the want is not copied", "handoff_keeps", func(in *instance) storage.Store {
		h := sound(in)
		h.offer = func(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
			o := in.Offer(want, lease, receive).(*offer)
			o.want = want
			return o
		}
		return h
	}},
	{"there is no capacity at first", "handoff_leases", offering(func(o *faultyOffer) { o.capacity = 0 })},
	{"there is capacity at first", "handoff_capacity", offering(func(o *faultyOffer) { o.capacity = max(o.capacity, 1) })},
	{"capacity is used up before receive has a say", "handoff_capacity_in_receive", offering(func(o *faultyOffer) {
		take := o.receive
		o.receive = func(jobs []storage.Leased, began time.Time) {
			take(jobs, began)
			o.in.m.locked(func() { o.capacity -= len(jobs) })
		}
	})},
	{"capacity adds up", "handoff_capacity", offering(func(o *faultyOffer) {
		o.setCapacity = func(n int) { o.in.m.locked(func() { o.capacity += n }) }
	})},
	{"capacity does not end", "handoff_capacity", offering(func(o *faultyOffer) {
		o.setCapacity = func(n int) { o.in.m.locked(func() { o.capacity = max(o.capacity, n) }) }
	})},
	{"what receive sets is forgotten", "handoff_capacity_in_receive", offering(func(o *faultyOffer) {
		take := o.receive
		o.receive = func(jobs []storage.Leased, began time.Time) {
			var was int
			o.in.m.locked(func() { was = o.capacity })
			take(jobs, began)
			o.in.m.locked(func() { o.capacity = was })
		}
	})},
	{"what is under way does not count", "handoff_under_way", offering(func(o *faultyOffer) {
		take := o.receive
		o.receive = func(jobs []storage.Leased, began time.Time) {
			n := len(jobs)
			o.in.m.locked(func() { o.coming -= n })
			take(jobs, began)
			o.in.m.locked(func() { o.coming += n })
		}
	})},
	{"Close does not withdraw", "handoff_close", offering(func(o *faultyOffer) { o.withdraw = func() {} })},
	{"Close does not wait", "handoff_close_waits", offering(func(o *faultyOffer) {
		o.withdraw = func() {
			o.in.m.locked(func() {
				o.in.offers = slices.DeleteFunc(o.in.offers, func(x *offer) bool { return x == o.offer })
			})
		}
	})},
	{"an offer that may keep jobs back comes last", "handoff_turns_kept", offering(func(o *faultyOffer) {
		o.in.m.locked(func() {
			slices.SortStableFunc(o.in.offers, func(a, b *offer) int { return cmp.Compare(a.want.Min, b.want.Min) })
		})
	})},
	{"offers are served in the order of the last", "handoff_turns", offering(func(o *faultyOffer) {
		o.in.m.locked(func() { slices.Reverse(o.in.offers) })
	})},
	{"offers of other instances are served", "handoff_instances", inserting(func(in *instance, _ time.Time) func() {
		own := in.offers
		in.offers = nil
		for _, other := range in.m.instances {
			if other != in {
				in.offers = append(in.offers, other.offers...)
			}
		}
		in.offers = append(in.offers, own...)
		return func() { in.offers = own }
	})},
	{"offers are served without a cause", "handoff_turns", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			var pass func()
			in.m.locked(func() { pass = in.handOver(now, in.m.where(func(*job) bool { return true }, byKey)) })
			pass()
			return out, err
		}
		return h
	}},
	{"each job of a call is handed over by itself", "handoff_order", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
			for i := range jobs {
				e, err := in.Enqueue(ctx, now, jobs[i:i+1])
				if err != nil {
					return nil, err
				}
				out = append(out, e...)
			}
			return out, nil
		}
		return h
	}},
	{"only what was just inserted is handed over", "handoff_order", inserting(func(in *instance, _ time.Time) func() {
		before := in.m.where(func(j *job) bool { return j.State == storage.Ready }, byKey)
		for _, j := range before {
			j.Queue += " before"
		}
		return func() {
			for _, j := range before {
				j.Queue = j.Queue[:len(j.Queue)-len(" before")]
			}
		}
	})},
	{"what has become due is passed over", "handoff_due", inserting(func(in *instance, now time.Time) func() {
		due := in.m.where(func(j *job) bool { return j.State == storage.Scheduled && !j.DueAt.After(now) }, byKey)
		for _, j := range due {
			j.DueAt = j.DueAt.Add(month)
		}
		return func() {
			for _, j := range due {
				j.DueAt = j.DueAt.Add(-month)
			}
		}
	})},
	{"jobs of held lanes are handed over", "handoff_paused", inserting(func(in *instance, _ time.Time) func() {
		was := in.m.holds
		in.m.holds = nil
		return func() { in.m.holds = was }
	})},
	{"what is fired is not handed over", "handoff_fire", func(in *instance) storage.Store {
		h := sound(in)
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			was := in.offers
			in.m.locked(func() { in.offers = nil })
			defer in.m.locked(func() { in.offers = was })
			return in.Fire(ctx, now, firings)
		}
		return h
	}},
}
