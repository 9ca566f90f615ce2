package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// misordered is an instance that takes other settings of order than it is given while it
// leases or tells places.
func misordered(change func(m *Memory, lane storage.Lane, s storage.Settings)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		during := func(f func()) {
			was := map[storage.Lane]storage.Settings{}
			in.m.locked(func() {
				for lane, s := range in.m.settings {
					was[lane] = s
					other := storage.Settings{}
					for name, value := range s {
						other[name] = value
					}
					change(in.m, lane, other)
					in.m.settings[lane] = other
				}
			})
			f()
			in.m.locked(func() { in.m.settings = was })
		}
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (res storage.ExchangeResult, err error) {
			during(func() { res, err = in.Exchange(ctx, now, x) })
			return res, err
		}
		return h
	}
}

var orderFaults = []fault{
	{"no order but one", "order_newest", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		delete(s, storage.SettingOrder)
	})},
	{"only of one kind", "order_newest_lanes", misordered(func(m *Memory, _ storage.Lane, s storage.Settings) {
		for _, j := range m.jobs {
			if j.Kind == "other" && j.State == storage.Ready {
				delete(s, storage.SettingOrder)
			}
		}
	})},
	{"waiting counts for nothing", "order_aging", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		delete(s, storage.SettingAging)
	})},
	{"a step takes longer", "order_aging_lanes", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		s[storage.SettingAging] *= 3
	})},
	{"nobody ages", "order_starving", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		delete(s, storage.SettingAging)
	})},
	{"all queues age", "order_queues", misordered(func(m *Memory, _ storage.Lane, _ storage.Settings) {
		m.settings[storage.Lane{Queue: "b"}] = storage.Settings{storage.SettingAging: time.Minute.Microseconds()}
	})},
	{"newest jobs age", "order_at_once", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		if s[storage.SettingAging] > 0 {
			delete(s, storage.SettingOrder)
		}
	})},
	{"groups take no turns", "order_turns", misordered(func(_ *Memory, _ storage.Lane, s storage.Settings) {
		delete(s, storage.SettingOrder)
	})},
	{"groups of all queues take turns", "order_turns", misordered(func(m *Memory, _ storage.Lane, _ storage.Settings) {
		m.settings[storage.Lane{Queue: "other"}] = storage.Settings{storage.SettingOrder: int64(storage.Turns)}
	})},
	{"a member that is not due is ready", "order_turns", regrouping(func(_ *Memory, members []*job) {
		if len(members) == 1 && members[0].State == storage.Scheduled {
			members[0].wake()
		}
	}, "exchange")},
	{"all calls have turns", "order_turns", func(in *instance) storage.Store {
		h := sound(in)
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			in.m.locked(func() { in.m.regroups.turn = now })
			return in.Cancel(ctx, now, id, keep)
		}
		return h
	}},
	{"places are those of the usual order", "order_ahead", looking(func(in *instance, l *looks) {
		l.ahead = func(id storage.ID, most int, a storage.Ahead) storage.Ahead {
			in.m.locked(func() {
				j := in.m.find(id)
				n := len(in.m.where(func(o *job) bool {
					return o.State == storage.Ready && o.Kind == j.Kind && o != j && (byPriority(o, j) < 0 || byPriority(o, j) == 0 && o.Key < j.Key)
				}, byKey))
				a.N, a.More = min(n, most), n > most
			})
			return a
		}
	})},
}
