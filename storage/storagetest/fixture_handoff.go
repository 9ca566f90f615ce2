package storagetest

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// taker is a worker that takes what it is handed.
type taker struct {
	storage.Offer
	f *fixture

	mu   sync.Mutex
	left int              // of its room
	jobs []storage.Leased // not looked at yet
}

// offer announces a worker for src on s, with room for so many. It skips the
// case if s hands nothing over.
func (f *fixture) offer(s storage.Store, src storage.Source, room int) *taker {
	f.Helper()
	w := &taker{f: f}
	w.Offer = f.offerTo(s, src, hold, func(jobs []storage.Leased, _ time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.jobs = append(w.jobs, jobs...)
		w.left -= len(jobs)
		w.Offer.Room(w.left)
	})
	w.Room(room)
	return w
}

// Room says that there is room for n, until they are there.
func (w *taker) Room(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = n
	w.Offer.Room(n)
}

func (f *fixture) offerTo(s storage.Store, src storage.Source, length time.Duration, take func([]storage.Leased, time.Time)) storage.Offer {
	f.Helper()
	h, ok := s.(storage.Handoff)
	if !ok {
		f.Skip("the store is no storage.Handoff")
	}
	o := h.Offer(src, length, take)
	f.Cleanup(o.Close)
	return o
}

// taken returns what w was handed since it was last asked.
func (w *taker) taken() []storage.Leased {
	w.f.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.jobs
	w.jobs = nil
	for _, l := range out {
		w.f.token(l.Token)
	}
	return out
}

// took checks that w was handed these jobs, in this order, and returns them.
func (w *taker) took(what string, want ...storage.ID) []storage.Leased {
	w.f.Helper()
	got := w.taken()
	w.f.order(what, leasedIDs(got), want)
	if len(got) != len(want) {
		w.f.FailNow()
	}
	return got
}

// finishAll ends leases that s holds, which must be applied.
func (f *fixture) finishAll(s storage.Store, leased ...storage.Leased) {
	f.Helper()
	var x storage.Exchange
	for _, l := range leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	for i, r := range f.exchange(s, x).Finished {
		if r != storage.Applied {
			f.Fatalf("finishing job %d returned result %d, want applied", leased[i].Key, r)
		}
	}
}
