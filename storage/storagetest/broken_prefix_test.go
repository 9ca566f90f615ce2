package storagetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// known has the model see of each prefix only the queues that f returns.
func known(f func(m *Memory, prefix string) []string) func(in *instance) storage.Store {
	return before(func(m *Memory, x *storage.Exchange) {
		x.Wants = slices.Clone(x.Wants)
		for i := range x.Wants {
			w, queues := &x.Wants[i], []string(nil)
			for _, name := range w.Queues {
				if prefix, ok := strings.CutSuffix(name, "*"); ok {
					queues = append(queues, f(m, prefix)...)
				} else {
					queues = append(queues, name)
				}
			}
			w.Queues = queues
		}
	})
}

// beginning returns the queues with jobs that begin with a prefix.
func beginning(m *Memory, prefix string) (all []string) {
	for _, j := range m.where(func(j *job) bool { return strings.HasPrefix(j.Queue, prefix) }, byKey) {
		all = append(all, j.Queue)
	}
	return all
}

// offeringOf has the model see another want than is offered.
func offeringOf(f func(w *storage.Want)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.offer = func(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
			f(&want)
			return in.Offer(want, lease, receive)
		}
		return h
	}
}

var prefixFaults = []fault{
	{"a prefix is a name", "prefix_queues", known(func(*Memory, string) []string { return nil })},
	{"a prefix ends at its last slash", "prefix_queues", known(func(m *Memory, prefix string) []string {
		return beginning(m, strings.TrimSuffix(prefix, "/"))
	})},
	{"queues that come later are not found", "prefix_queues", known(func(m *Memory, prefix string) (all []string) {
		for _, queue := range beginning(m, prefix) {
			if !strings.Contains(queue, "later") {
				all = append(all, queue)
			}
		}
		return all
	})},
	{"a prefix is one more name of path", "prefix_queues", known(func(m *Memory, prefix string) []string {
		return slices.DeleteFunc(beginning(m, prefix), func(q string) bool { return strings.Contains(strings.TrimPrefix(q, prefix), "/") })
	})},
	{"no prefix may be empty", "prefix_all", known(func(m *Memory, prefix string) []string {
		if prefix == "" {
			return nil
		}
		return beginning(m, prefix)
	})},
	{"exceptions are not looked at", "prefix_except", wanting(func(w *storage.Want) { w.Except = nil })},
	{"exceptions are of all kinds", "prefix_except", wanting(func(w *storage.Want) {
		w.Except = slices.Clone(w.Except)
		for _, l := range slices.Clone(w.Except) {
			for _, k := range w.Kinds {
				w.Except = append(w.Except, storage.Lane{Queue: l.Queue, Kind: k})
			}
		}
	})},
	{"exceptions are names", "prefix_except", wanting(func(w *storage.Want) {
		w.Except = slices.DeleteFunc(slices.Clone(w.Except), func(l storage.Lane) bool { return strings.HasSuffix(l.Queue, "*") })
	})},
	{"urgent jobs come of exceptions too", "prefix_urgent", wanting(func(w *storage.Want) { w.Except = nil })},
	{"holds of queues of a prefix are no reason to come back", "prefix_holds", after(func(_ *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		if len(x.Wants) == 1 && strings.HasSuffix(x.Wants[0].Queues[0], "*") {
			res.NextDue = time.Time{}
		}
	})},
	{"Min is of all queues of a prefix together", "prefix_min", wanting(func(w *storage.Want) {
		if w.Min == 2 {
			w.Min = 1
		}
	})},
	{"prefixes are not handed to", "prefix_handoff", offeringOf(func(w *storage.Want) { w.Queues = nil })},
	{"exceptions are handed over", "prefix_handoff", offeringOf(func(w *storage.Want) { w.Except = nil })},
	{"a queue without room is handed over", "prefix_handoff", offeringOf(func(w *storage.Want) { w.EachOf = nil })},
	{"Each is not looked at", "each_queue", wanting(func(w *storage.Want) { w.Each = 0 })},
	{"Each is of a lane", "each_queue", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (res storage.ExchangeResult, err error) {
			if len(x.Wants) != 1 || x.Wants[0].Each != 2 {
				return in.Exchange(ctx, now, x)
			}
			for _, k := range x.Wants[0].Kinds {
				one := x
				one.Wants = slices.Clone(x.Wants)
				one.Wants[0].Kinds, one.Wants[0].N = []string{k}, x.Wants[0].N-len(res.Leased)
				more, err := in.Exchange(ctx, now, one)
				if err != nil {
					return res, err
				}
				res.Leased = append(res.Leased, more.Leased...)
			}
			return res, nil
		}
		return h
	}},
	{"EachOf is not looked at", "each_of", wanting(func(w *storage.Want) { w.EachOf = nil })},
	{"EachOf of zero is none", "each_of", wanting(func(w *storage.Want) {
		if w.EachOf["web/a"] == 0 {
			delete(w.EachOf, "web/a")
		}
	})},
	{"EachOf counts without Each", "each_of", wanting(func(w *storage.Want) {
		if w.Each == 0 && len(w.EachOf) > 0 {
			w.Each = 9
		}
	})},
	{"each Want counts its own jobs", "each_wants", wanting(func(w *storage.Want) {
		if w.Each == 2 && w.N == 2 {
			w.Each = 3
		}
	})},
	{"urgent jobs count for Each", "each_wants", wanting(func(w *storage.Want) {
		if w.Each > 0 && w.N > 0 {
			w.Each--
		}
	})},
	{"a lane without room is asked for at once", "each_next", after(func(_ *Memory, now time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		if len(res.Leased) == 0 && len(x.Wants) == 1 && x.Wants[0].Each > 0 {
			res.NextDue = now
		}
	})},
}
