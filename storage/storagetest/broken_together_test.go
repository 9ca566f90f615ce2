package storagetest

import "github.com/errandq/errand/storage"

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
	{"one that is put back is let in beside others", "together_back", regrouping(func(_ *Memory, members []*job) {
		if b := firstIn(members, storage.Blocked); b != nil && firstIn(members, storage.Running) != nil && b == members[0] {
			b.wake()
		}
	}, "exchange")},
}
