package storagetest

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// receiver is a worker that takes what it is handed.
type receiver struct {
	storage.Offer
	f *fixture

	mu   sync.Mutex
	left int              // of its capacity
	jobs []storage.Leased // not looked at yet
}

// offer announces a worker for want on s, with capacity for n. It skips the case
// if s hands nothing over.
func (f *fixture) offer(s storage.Store, want storage.Want, n int) *receiver {
	f.Helper()
	w := &receiver{f: f, left: n}
	want.N = n
	w.Offer = f.offerTo(s, want, hold, func(jobs []storage.Leased, _ time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.jobs = append(w.jobs, jobs...)
		w.left -= len(jobs)
		w.Offer.Capacity(w.left)
	})
	return w
}

// Capacity says that there is capacity for n, until they are there.
func (w *receiver) Capacity(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = n
	w.Offer.Capacity(n)
}

func (f *fixture) offerTo(s storage.Store, want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	f.Helper()
	h, ok := s.(storage.Handoff)
	if !ok {
		f.skip("storage.Handoff")
	}
	o := h.Offer(want, lease, receive)
	f.Cleanup(o.Close)
	return o
}

// taken returns what w was handed since it was last asked.
func (w *receiver) taken() []storage.Leased {
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
func (w *receiver) took(what string, want ...storage.ID) []storage.Leased {
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
