package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// keeping wants the usual jobs once three are ready, or one has been due for a minute.
var keeping = storage.Want{Queues: []string{queue}, Kinds: []string{kind}, Min: 3, Wait: time.Minute}

// leaseOf leases up to n jobs of a Want.
func (f *fixture) leaseOf(n int, from storage.Want) []storage.ID {
	return leasedIDs(f.exchange(f.s, storage.Exchange{Wants: wants(n, from)}).Leased)
}

var keepBackCases = []testCase{
	{"keepback_min", `only urgent jobs are leased from a lane with fewer than Min ready jobs`, func(f *fixture) {
		f.add(newJob(lane("other", kind)), newJob(lane(queue, "other")), newJob(dueAt(f.now.Add(time.Hour))))
		ids := f.add(newJob(), newJob())
		f.order("leased of two", f.leaseOf(9, keeping), nil)
		ids = append(ids, f.add(newJob(priority(-1)))...)
		f.order("leased of three", f.leaseOf(2, keeping), ids[:2])
		f.order("leased of the one that is left", f.leaseOf(9, keeping), nil)
		ids = append(ids, f.add(newJob(), newJob())...)
		f.order("leased of three again", f.leaseOf(9, keeping), pick(ids, 3, 4, 2))
	}},

	{"keepback_wait", `only urgent jobs are leased from a lane with fewer than Min ready jobs, until the earliest due of these has been due for Wait.`, func(f *fixture) {
		ids := f.add(newJob(priority(-3)))
		f.later(30 * time.Second)
		ids = append(ids, f.add(newJob(priority(5)))...)
		f.later(30*time.Second - time.Millisecond)
		f.order("leased before Wait is over", f.leaseOf(9, keeping), nil)
		f.later(time.Millisecond)
		f.order("leased after Wait", f.leaseOf(1, keeping), ids[1:])
		f.order("leased then", f.leaseOf(9, keeping), ids[:1])
		ids = f.add(newJob(dueAt(f.now.Add(-time.Minute))))
		f.order("leased of what has been due for long", f.leaseOf(9, keeping), ids)
	}},

	{"keepback_scheduled", `due scheduled jobs of the lanes that match a Want are made ready before`, func(f *fixture) {
		at := f.now.Add(time.Second)
		ids := f.add(newJob(), newJob(dueAt(at)), newJob(dueAt(at)))
		f.later(time.Second)
		f.order("leased", f.leaseOf(9, keeping), ids)
	}},

	{"keepback_urgent", `only urgent jobs are leased from a lane with fewer than Min ready jobs`, func(f *fixture) {
		ids := f.add(newJob(), newJob(), newJob())
		for _, id := range ids[1:] {
			f.runNow(named(id), firstToo)
			got := f.exchange(f.s, storage.Exchange{Wants: wants(9, keeping), Urgent: 1}).Leased
			f.order("leased", leasedIDs(got), []storage.ID{id})
		}
	}},

	{"keepback_lanes", `If a lane matches several Wants, those of the first count. If Min is below 2 or Wait is not positive, nothing is kept back.`, func(f *fixture) {
		for _, c := range []struct {
			what  string
			wants []storage.Want
			want  bool
		}{
			{"Min of 1", []storage.Want{{Min: 1, Wait: time.Hour, N: 9}}, true},
			{"no Wait", []storage.Want{{Min: 9, N: 9}}, true},
			{"negative Wait", []storage.Want{{Min: 9, Wait: -1, N: 9}}, true},
			{"first keeps back", []storage.Want{{Min: 9, Wait: time.Hour}, {N: 9}}, false},
			{"second keeps back", []storage.Want{{}, {Min: 9, Wait: time.Hour, N: 9}}, true},
			{"another Min", []storage.Want{{Min: 2, Wait: time.Hour, N: 9}}, false},
		} {
			for i := range c.wants {
				c.wants[i].Queues, c.wants[i].Kinds = usual.Queues, usual.Kinds
			}
			ids := f.add(newJob(), newJob(lane(queue, "other")))
			if got := f.exchange(f.s, storage.Exchange{Wants: c.wants}).Leased; len(got) > 0 != c.want {
				f.Errorf("%s: %d were leased", c.what, len(got))
			} else if f.finishAll(f.s, got...); len(got) == 0 {
				f.cancel(ids[0])
			}
		}
	}},

	{"keepback_next_due", `NextDue
For a lane whose jobs were kept back, NextDue is no later than the end of Wait.`, func(f *fixture) {
		start := f.now
		next := func(what string, n int, want time.Time) {
			f.Helper()
			got := f.exchange(f.s, storage.Exchange{Wants: append(wants(n, keeping), wants(1, storage.Want{Queues: []string{"none"}, Kinds: []string{kind}})...)}).NextDue
			if !got.Equal(want) || got.IsZero() != want.IsZero() {
				f.Errorf("%s: NextDue is %v, want %v", what, got, want)
			}
		}
		next("nothing waits", 9, time.Time{})
		f.add(newJob(priority(-1)))
		f.later(20 * time.Second)
		f.add(newJob())
		next("two are kept back", 9, start.Add(time.Minute))
		next("of which none could be leased", 0, start.Add(time.Minute))
		f.add(newJob(dueAt(start.Add(30*time.Second)), lane("other", kind)))
		next("another is due before", 9, start.Add(30*time.Second))
		f.add(newJob())
		next("three are leased", 9, start.Add(30*time.Second))
	}},
}
