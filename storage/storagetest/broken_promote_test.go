package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// narrowHooks is a [storage.Promoter] with some of its methods replaced or surrounded.
type narrowHooks struct {
	*hooks
	promote func(context.Context, time.Time, storage.Promotion) (storage.Promoted, error)
}

func (n *narrowHooks) Promote(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
	return n.promote(ctx, now, p)
}

// soundNarrow returns a [storage.Promoter] without a fault.
func soundNarrow(in *instance) *narrowHooks {
	in.narrow = true
	return &narrowHooks{hooks: sound(in), promote: narrow{in}.Promote}
}

// promoting has f do what Promote should, given what does.
func promoting(f func(in *instance, now time.Time, p storage.Promotion, does func(time.Time, storage.Promotion) (storage.Promoted, error)) (storage.Promoted, error)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		n := soundNarrow(in)
		n.promote = func(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
			return f(in, now, p, func(now time.Time, p storage.Promotion) (storage.Promoted, error) {
				return narrow{in}.Promote(ctx, now, p)
			})
		}
		return n
	}
}

// promotingAs has f change how Promote is called.
func promotingAs(f func(in *instance, now *time.Time, p *storage.Promotion)) func(in *instance) storage.Store {
	return promoting(func(in *instance, now time.Time, p storage.Promotion, does func(time.Time, storage.Promotion) (storage.Promoted, error)) (storage.Promoted, error) {
		f(in, &now, &p)
		return does(now, p)
	})
}

// promoted has f change what Promote has done and answers.
func promoted(f func(in *instance, now time.Time, out *storage.Promoted)) func(in *instance) storage.Store {
	return promoting(func(in *instance, now time.Time, p storage.Promotion, does func(time.Time, storage.Promotion) (storage.Promoted, error)) (storage.Promoted, error) {
		out, err := does(now, p)
		in.m.locked(func() { f(in, now, &out) })
		return out, err
	})
}

// hiding takes the jobs that match out of the database for the time of a Promote.
func hiding(match func(*job) bool) func(in *instance) storage.Store {
	return promoting(func(in *instance, now time.Time, p storage.Promotion, does func(time.Time, storage.Promotion) (storage.Promoted, error)) (storage.Promoted, error) {
		hidden := map[int64]*job{}
		in.m.locked(func() {
			for _, j := range in.m.where(match, byKey) {
				hidden[j.Key] = j
				delete(in.m.jobs, j.Key)
			}
		})
		out, err := does(now, p)
		in.m.locked(func() {
			for _, j := range hidden {
				in.m.put(j)
			}
		})
		return out, err
	})
}

var promoteFaults = []fault{
	{"an exchange makes not even its own lanes due", "promote_own_lanes", func(in *instance) storage.Store {
		n := soundNarrow(in)
		n.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			var due []*job
			in.m.locked(func() {
				due = in.m.where(func(j *job) bool { return j.State == storage.Scheduled && !j.DueAt.After(now) }, byKey)
				for _, j := range due {
					j.State = storage.Blocked
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for _, j := range due {
					j.State = storage.Scheduled
				}
			})
			return res, err
		}
		return n
	}},
	{"an exchange ends not even what is late in its own lanes", "promote_own_lanes", func(in *instance) storage.Store {
		n := soundNarrow(in)
		s := sparing(func(*job, *storage.Exchange) bool { return true })(in)
		n.exchange = s.Exchange
		return n
	}},
	{"NextDue leaves out its own lanes", "promote_next_due_of_own_lanes", func(in *instance) storage.Store {
		n := soundNarrow(in)
		n.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			res.NextDue = time.Time{}
			return res, err
		}
		return n
	}},
	{"Promote leaves jobs of a queue", "promote_all_lanes", hiding(func(j *job) bool { return j.Queue == "other" })},
	{"Promote leaves jobs of a kind", "promote_all_lanes", hiding(func(j *job) bool { return j.Kind == "other" })},
	{"Promote leaves what is due", "promote_all_lanes", hiding(func(j *job) bool { return j.State == storage.Scheduled })},
	{"Promote leaves what is late", "promote_all_lanes", hiding(func(j *job) bool { return j.windows.start+j.windows.finish > 0 })},
	{"Promote forgets Follow", "promote_follow", promotingAs(func(_ *instance, _ *time.Time, p *storage.Promotion) { p.Follow = nil })},
	{"Promote forgets Retention", "promote_all_lanes", promotingAs(func(_ *instance, _ *time.Time, p *storage.Promotion) { p.Retention = storage.Retention{} })},
	{"Promote is too early", "promote_all_lanes", promotingAs(func(_ *instance, now *time.Time, _ *storage.Promotion) { *now = now.Add(time.Microsecond) })},
	{"Promote is too late", "promote_all_lanes", promotingAs(func(_ *instance, now *time.Time, _ *storage.Promotion) { *now = now.Add(-time.Microsecond) })},
	{"Promote doubts no time", "promote_in_doubt", promotingAs(func(_ *instance, _ *time.Time, p *storage.Promotion) { p.Doubtful = false })},
	{"Promote doubts all times", "promote_in_doubt", promotingAs(func(_ *instance, _ *time.Time, p *storage.Promotion) { p.Doubtful = true })},
	{"Promote leases", "promote_all_lanes", promoted(func(in *instance, now time.Time, _ *storage.Promoted) {
		for _, j := range in.m.where(func(j *job) bool { return j.State == storage.Ready }, byDue) {
			in.m.take(j, in, now, hold)
		}
	})},
	{"Promote tells nothing of what has ended", "promote_all_lanes", promoted(func(_ *instance, _ time.Time, out *storage.Promoted) { out.Expired = nil })},
	{"Promote tells of no time", "promote_next", promoted(func(_ *instance, _ time.Time, out *storage.Promoted) { out.Next = time.Time{} })},
	{"Promote tells of a time that is too late", "promote_next", promoted(func(_ *instance, _ time.Time, out *storage.Promoted) {
		if !out.Next.IsZero() {
			out.Next = out.Next.Add(time.Microsecond)
		}
	})},
	{"Promote tells of no StartBy", "promote_next", promoted(func(in *instance, now time.Time, out *storage.Promoted) {
		out.Next = time.Time{}
		for _, j := range in.m.where(func(j *job) bool { return j.State == storage.Scheduled }, byDue) {
			out.Next = earlier(out.Next, later(j.DueAt, now))
		}
	})},
	{"Promote asks for no further step", "promote_step", promoted(func(_ *instance, now time.Time, out *storage.Promoted) {
		if out.Next.Equal(now) {
			out.Next = time.Time{}
		}
	})},
	{"nobody is told of what follows", "promote_follow_notified", func(in *instance) storage.Store {
		n := soundNarrow(in)
		n.promote = func(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
			var all map[int]func(storage.Event)
			in.m.locked(func() { all, in.listeners = in.listeners, nil })
			out, err := narrow{in}.Promote(ctx, now, p)
			in.m.locked(func() { in.listeners = all })
			return out, err
		}
		return n
	}},
	{"nobody is let in for what has ended", "promote_lets_in", promoted(func(in *instance, _ time.Time, out *storage.Promoted) {
		for _, j := range in.m.where(func(j *job) bool { return len(out.Expired) > 0 && j.State == storage.Ready && j.Group != "" }, byKey) {
			j.State, j.placed = storage.Blocked, false
		}
	})},
}
