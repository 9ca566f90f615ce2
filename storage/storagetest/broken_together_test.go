package storagetest

import (
	"time"

	"github.com/errandq/errand/storage"
)

// seeing has f change jobs before each exchange.
func seeing(f func(j *job)) func(in *instance) storage.Store {
	return before(func(m *Memory, _ *storage.Exchange) {
		for _, j := range m.where((*job).live, byKey) {
			f(j)
		}
	})
}

var togetherFaults = []fault{
	{"no head brings others", "together_brings", wanting(func(w *storage.Want) { w.ByGroup = min(w.ByGroup, 1) })},
	{"a head brings more than a call takes", "together_back", wanting(func(w *storage.Want) {
		if w.ByGroup > 0 {
			w.ByGroup, w.N = w.ByGroup+1, w.N+1
		}
	})},
	{"jobs are leased for more calls", "together_calls", wanting(func(w *storage.Want) { w.N *= 2 })},
	{"a head brings those that are not due", "together_ends", seeing(func(j *job) { j.due = j.due || j.State == storage.Blocked })},
	{"a head brings those that have crashed", "together_crashed", seeing(func(j *job) { j.Crashes = 0 })},
	{"what is brought takes no token", "together_throttle", after(func(m *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, l := range res.Leased {
			if l.Behind > 0 {
				m.giveBack(m.find(l.ID))
			}
		}
	})},
	{"what is brought begins however late it is", "together_windows", seeing(func(j *job) {
		if j.State == storage.Blocked {
			j.windows = windows{}
		}
	})},
	{"one that is put back is let in beside others", "together_back", regrouping(func(_ *Memory, members []*job) {
		if b := firstIn(members, storage.Blocked); b != nil && firstIn(members, storage.Running) != nil && b == members[0] {
			b.wake()
		}
	}, "exchange")},
}
