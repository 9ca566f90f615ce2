package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

var leaseFaults = []fault{
	{"no fence in finish", "fence_finished", before(func(m *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			current(m, &x.Finish[i].Lease)
		}
	})},
	{"a redriven job has no origin", "lease_origin", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i := range res.Leased {
			if l := &res.Leased[i]; l.Redriven {
				l.Origin = storage.Origin{}
			}
		}
	})},
	{"the tag of a device is taken for an origin", "lease_origin", after(func(m *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i := range res.Leased {
			l := &res.Leased[i]
			if j := m.jobs[l.Key]; l.Origin.ID == "" && slices.Contains(j.Tags, "errand.from:pi") {
				l.Origin.Device = "pi"
			}
		}
	})},
	{"fewer due jobs are made ready than the bound", "lease_promotion", bounding(func(b *Bounds) { b.Promoted = 3 })},
	{"NextDue passes due jobs by", "lease_promotion", after(func(_ *Memory, now time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		if !res.NextDue.After(now) {
			res.NextDue = time.Time{}
		}
	})},
	{"follower of a death enqueued whatever the outcome", "outcome_dead_then", following(func(f *storage.Finish) bool { return f.Outcome != storage.OutcomeDead })},
	{"follower of a death forgotten", "outcome_dead_then", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			x.Finish[i].Then = nil
		}
	})},
	{"follower of a done job forgotten", "outcome_done_then", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			x.Finish[i].Then = nil
		}
	})},
	{"followers of a done job in another order", "outcome_done_then", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			slices.Reverse(x.Finish[i].Then)
		}
	})},
	{"a follower that is refused names no other follower", "outcome_done_then", after(func(_ *Memory, _ time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		for i, answers := range res.Then {
			for k := range answers {
				n := &x.Finish[i].Then[k]
				if n.Conflict != nil && n.Conflict.Mode == storage.Fail && answers[k].ID == answers[0].ID {
					answers[k].ID = storage.ID{}
				}
			}
		}
	})},
	{"answers about followers forgotten", "outcome_done_then", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			res.Then = nil
			return res, err
		}
		return h
	}},
	{"follower enqueued before its job has ended", "outcome_done_then", following(func(f *storage.Finish) bool { return f.Outcome == storage.OutcomeDone })},
	{"follower of a spent retry forgotten", "outcome_dead_then", before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			if s := x.Finish[i].Spent; s != nil {
				s.Then = nil
			}
		}
	})},
	{"follower of a death enqueued for a late holder", "outcome_dead_then", following(func(f *storage.Finish) bool { return f.Outcome == storage.OutcomeDead })},
	{"no fence in extend", "fence_finished", before(func(m *Memory, x *storage.Exchange) {
		for i := range x.Extend {
			current(m, &x.Extend[i])
		}
	})},
	{"outcome of a late holder accepted after a reclaim", "fate_held_by_reclaimer", before(func(m *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && j.lease.fate != 0 {
				current(m, &x.Finish[i].Lease)
			}
		}
	})},
	{"token reused after everything was deleted", "fence_emptied", before(func(m *Memory, _ *storage.Exchange) {
		if !slices.ContainsFunc(slices.Collect(maps.Values(m.jobs)), func(j *job) bool { return j.Attempt > 0 }) {
			m.lastToken = 0
		}
	})},
	{"key reused after everything was deleted", "fence_emptied", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			in.m.locked(func() {
				if len(in.m.jobs) == 0 {
					in.m.lastKey = 0
				}
			})
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"< instead of <= for what is due when enqueued", "enqueue_due", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() {
				for i, n := range jobs {
					if err == nil && !out[i].Duplicate && n.DueAt.Equal(now) {
						in.m.find(out[i].ID).State = storage.Scheduled
					}
				}
			})
			return out, err
		}
		return h
	}},
	{"< instead of <= for what becomes due", "lease_due_boundary", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var late []*job
			in.m.locked(func() {
				late = in.m.where(func(j *job) bool { return j.State == storage.Scheduled && j.DueAt.Equal(now) }, byDue)
				for _, j := range late {
					j.DueAt = now.Add(time.Microsecond)
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for _, j := range late {
					j.DueAt = now
				}
			})
			return res, err
		}
		return h
	}},
	{"due at once rounded up", "enqueue_microseconds", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				if jobs[i].DueAt.IsZero() {
					jobs[i].DueAt = now
				}
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"due times rounded down", "enqueue_microseconds", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			jobs = slices.Clone(jobs)
			for i := range jobs {
				jobs[i].DueAt = floor(jobs[i].DueAt)
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"priority ignored", "lease_priority", leasing(func(j *job) { j.Priority = 0 }, func(j *job, was storage.Record) { j.Priority = was.Priority })},
	{"order by due time ignored", "lease_due", leasing(func(j *job) { j.DueAt = time.Unix(0, 0) }, func(j *job, was storage.Record) { j.DueAt = was.DueAt })},
	{"holds ignored", "lease_others", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var holds []*held
			in.m.locked(func() { holds, in.m.holds = in.m.holds, nil })
			defer in.m.locked(func() { in.m.holds = holds })
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"leases of any weight", "lease_bytes", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			for n := 1; err == nil && n > 0 && len(res.Leased) < x.Wanted(); {
				var more storage.ExchangeResult
				more, err = in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Wants: wants(x.Wanted()-len(res.Leased), x.Wants[0])})
				n = len(more.Leased)
				res.Leased = append(res.Leased, more.Leased...)
			}
			return res, err
		}
		return h
	}},
	{"wants are leased one after the other", "lease_wants", eachWant(func(all []storage.Want) [][]storage.Want {
		var out [][]storage.Want
		for i := range all {
			out = append(out, all[i:i+1])
		}
		return out
	})},
	{"only the sum of the wants counts", "lease_wants", eachWant(func(all []storage.Want) [][]storage.Want {
		x := storage.Exchange{Wants: all}
		var out [][]storage.Want
		for range x.Wanted() { // one job each, for any of them
			one := slices.Clone(all)
			for i := range one {
				one[i].N = 0
				if i == 0 {
					one[i].N = 1
				}
			}
			for i := 1; i < len(one); i++ {
				one[0].Queues = slices.Concat(one[0].Queues, one[i].Queues)
				one[0].Kinds = slices.Concat(one[0].Kinds, one[i].Kinds)
			}
			out = append(out, one[:1])
		}
		return out
	})},
	{"a job counts for the last want that it matches", "lease_wants", before(func(_ *Memory, x *storage.Exchange) {
		x.Wants = slices.Clone(x.Wants)
		slices.Reverse(x.Wants)
	})},
	{"leases in no order", "lease_lanes", after(func(_ *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		slices.Reverse(res.Leased)
	})},
	{"counts off by one", "job_counts", func(in *instance) storage.Store {
		h := sound(in)
		h.counts = func(ctx context.Context) ([]storage.Count, error) {
			out, err := in.Counts(ctx)
			for i := range out {
				if out[i].State == storage.Running {
					out[i].N++
				}
			}
			return out, err
		}
		return h
	}},
	{"counts with rows for zero", "job_counts", func(in *instance) storage.Store {
		h := sound(in)
		h.counts = func(ctx context.Context) ([]storage.Count, error) {
			out, err := in.Counts(ctx)
			return append(out, storage.Count{Queue: "z", Kind: "z", State: storage.Done}), err
		}
		return h
	}},
}

// eachWant has f divide what is wanted, and leases for one part after the other.
func eachWant(f func([]storage.Want) [][]storage.Want) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			parts := f(x.Wants)
			x.Wants = nil
			res, err := in.Exchange(ctx, now, x)
			for _, part := range parts {
				more, err := in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Wants: part})
				if err != nil {
					return res, err
				}
				res.Leased, res.NextDue = append(res.Leased, more.Leased...), more.NextDue
			}
			return res, err
		}
		return h
	}
}

var reclaimFaults = []fault{
	{"reclaim that trusts the wall clock", "lapse_wall_clock", reclaiming(func(in *instance, now time.Time) {
		for key, j := range in.m.jobs {
			if j.State == storage.Running && now.After(j.lease.until) {
				in.seen[key] = sighting{j.lease.token, j.lease.until, -1 << 62}
			}
		}
	})},
	{"reclaim that needs no full lease", "lapse_full_lease", func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			if len(in.seen) > 0 {
				mono += hold / 4
			}
			return in.Reclaim(ctx, now, mono, lease, limit)
		}
		return h
	}},
	{"reclaim that overlooks extensions", "lapse_extension", reclaiming(func(in *instance, _ time.Time) {
		for key, s := range in.seen {
			if j := in.m.jobs[key]; j != nil && j.lease.token == s.token {
				in.seen[key] = sighting{s.token, j.lease.until, s.since}
			}
		}
	})},
	{"reclaim that overlooks pulses", "lapse_pulse", func(in *instance) storage.Store { return &pulseless{sound(in)} }},
	{"reclaim that overlooks tokens", "lapse_leased_again", reclaiming(func(in *instance, _ time.Time) {
		for key, s := range in.seen {
			if j := in.m.jobs[key]; j != nil {
				in.seen[key] = sighting{j.lease.token, s.until, s.since}
			}
		}
	})},
	{"reclaim of own leases", "lapse_own_leases", func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			out, err := in.Reclaim(ctx, now, mono, lease, limit)
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					if err == nil && j.lease.holder == in && j.lease.fate == 0 && now.After(j.lease.until) {
						out = append(out, in.reclaim(now, j, lease))
					}
				}
			})
			return out, err
		}
		return h
	}},
	{"reclaim without a limit", "lapse_limit", func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, _ int) ([]storage.Reclaimed, error) {
			return in.Reclaim(ctx, now, mono, lease, 1<<30)
		}
		return h
	}},
	{"fate forgotten when the reclaimer dies", "fate_survives", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			if j.lease.holder != nil && j.lease.holder.gone {
				j.lease.fate = 0
			}
		}
	})},
	{"a reboot is taken for a crash", "fate_rebooted", reclaiming(func(in *instance, _ time.Time) {
		for _, other := range in.m.instances {
			other.notesLost = false
		}
	})},
	{"a handler that had returned is taken for a crash", "fate_killed", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			j.lease.ended = false
		}
	})},
	{"a handler that was called in the end is taken for one that had returned", "fate_started_again", func(in *instance) storage.Store {
		return &startedOnce{sound(in), map[int64]bool{}}
	}},
	{"one that was being stopped is taken for a crash", "fate_stopping", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			j.lease.stopping = false
		}
	})},
	{"an attempt of which nothing is known never began", "fate_unmarked", func(in *instance) storage.Store { return bare{in} }},
	{"a list of jobs that began when they were due", "record_started_at", func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
			page, err := in.Jobs(ctx, f, after, limit)
			for i := range page.Jobs {
				if r := &page.Jobs[i]; r.State == storage.Running {
					r.StartedAt = r.DueAt
				}
			}
			return page, err
		}
		return h
	}},
	{"always alone", "fate_alone", func(in *instance) storage.Store { return &loner{sound(in), func(bool) bool { return true }} }},
	{"never alone again", "fate_alone", func(in *instance) storage.Store {
		var met bool
		return &loner{sound(in), func(alone bool) bool {
			met = met || !alone
			return !met
		}}
	}},
	{"a neighbour is taken for a crash", "fate_killed", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			j.lease.started = true
		}
	})},
	{"nothing handed back by Close", "close_hands_back", func(in *instance) storage.Store {
		h := sound(in)
		h.closing = func() error {
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.lease.started, j.lease.ended = true, false
				}
			})
			return in.Close()
		}
		return h
	}},
	{"registration kept after the last handler", "close_last_ends", reclaiming(func(in *instance, _ time.Time) {
		for _, other := range in.m.instances {
			if other.closed && len(in.m.jobs) == 2 { // as in that case
				other.gone = false
			}
		}
	})},
	{"registration dropped by Close in spite of leases", "close_with_lease", func(in *instance) storage.Store {
		h := sound(in)
		h.closing = func() error {
			defer in.m.locked(func() { in.gone = true })
			return in.Close()
		}
		return h
	}},
}

// loner has its own idea of whether it is alone.
type loner struct {
	*hooks
	alone func(bool) bool
}

func (l *loner) Alone() bool { return l.alone(l.hooks.Alone()) }

// pulseless has a pulse that nobody feels.
type pulseless struct{ *hooks }

func (p *pulseless) Pulse() error { return nil }

// following enqueues, once more, what follows the death of jobs for some outcomes.
func following(which func(f *storage.Finish) bool) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			for i := range x.Finish {
				if f := &x.Finish[i]; f.Then != nil && which(f) {
					if _, err := in.Enqueue(ctx, now, f.Then); err != nil {
						return storage.ExchangeResult{}, err
					}
				}
			}
			return in.Exchange(ctx, now, x)
		}
		return h
	}
}

// startedOnce takes the first end of a handler for the last.
type startedOnce struct {
	*hooks
	ended map[int64]bool // by token
}

func (s *startedOnce) Started(l storage.Lease, now time.Time) error {
	if s.ended[l.Token] {
		return nil
	}
	return s.hooks.Started(l, now)
}

func (s *startedOnce) Ended(l storage.Lease) error {
	s.ended[l.Token] = true
	return s.hooks.Ended(l)
}
