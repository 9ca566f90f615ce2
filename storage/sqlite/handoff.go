package sqlite

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// offers are the workers of this process that take jobs in the transaction which
// enqueues them.
type offers struct {
	mu   sync.Mutex
	shut bool                     // the Store is closing
	all  atomic.Pointer[[]*offer] // replaced, never changed
}

// offer is a [storage.Offer].
type offer struct {
	store    *Store
	want     storage.Want // one job
	lease    time.Duration
	receive  func([]storage.Leased, time.Time)
	capacity atomic.Int64
	// busy is held from when a transaction begins to lease to this offer until
	// receive has returned, or what it leased has come to nothing.
	busy   sync.Mutex
	closed bool // guarded by busy
}

// Offer implements [storage.Handoff].
func (s *Store) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	o := &offer{store: s, want: cloneWants(want)[0], lease: lease, receive: receive}
	o.want.N, o.want.ByGroup = 1, 0
	o.Capacity(want.N)
	s.offers.change(func(all []*offer) []*offer { return append(all, o) })
	return o
}

// Capacity implements [storage.Offer].
func (o *offer) Capacity(n int) { o.capacity.Store(int64(n)) }

// Close implements [storage.Offer].
func (o *offer) Close() {
	o.store.offers.change(func(all []*offer) []*offer {
		return slices.DeleteFunc(all, func(x *offer) bool { return x == o })
	})
	o.busy.Lock()
	defer o.busy.Unlock()
	o.closed = true
}

func (os *offers) change(f func([]*offer) []*offer) {
	os.mu.Lock()
	defer os.mu.Unlock()
	if os.shut {
		return
	}
	all := f(slices.Clone(os.list()))
	os.all.Store(&all)
}

func (os *offers) list() []*offer {
	if p := os.all.Load(); p != nil {
		return *p
	}
	return nil
}

// shutAll withdraws all offers: what a Store leased while it closes would stay
// leased.
func (os *offers) shutAll() {
	os.mu.Lock()
	defer os.mu.Unlock()
	os.shut = true
	os.all.Store(nil)
}

// handoff is what one transaction hands to one offer.
type handoff struct {
	offer  *offer
	began  time.Time
	jobs   []storage.Leased
	holder int64 // the instance; set when a job is inserted as leased
}

// fresh are the jobs that the call under way has inserted as ready and not
// announced: how many there are of each lane, and the key of the first.
type fresh struct {
	first  int64
	lanes  map[storage.Lane]int
	single bool // the call adds one job
	others int  // jobs that a step has asked to stop, or made urgent, and that its N does not count
	// The schedule whose tick enqueues, "" if none does.
	schedule string
}

func (f *fresh) add(key int64, lane storage.Lane) {
	if f.lanes == nil {
		f.lanes = map[storage.Lane]int{}
	}
	if len(f.lanes) == 0 {
		f.first = key
	}
	f.lanes[lane]++
}

// remove forgets the jobs of f that were leased.
func (f *fresh) remove(jobs []storage.Leased) {
	for _, j := range jobs {
		if j.Key >= f.first {
			f.lanes[storage.Lane{Queue: j.Queue, Kind: j.Kind}]--
		}
	}
}

// in reports whether one of them is wanted.
func (f *fresh) in(want *storage.Want) bool {
	for lane, n := range f.lanes {
		if n > 0 && want.Matches(lane.Queue, lane.Kind) {
			return true
		}
	}
	return false
}

func (f *fresh) any() bool {
	for _, n := range f.lanes {
		if n > 0 {
			return true
		}
	}
	return false
}

// handOver ends a call that may have inserted jobs. It leases to each offer what
// an Exchange would lease now, and announces what is left.
func (t *tx) handOver(now time.Time) error {
	f := &t.fresh
	defer t.announce()
	for _, o := range t.store.offers.list() {
		if o.capacity.Load() <= 0 || !f.in(&o.want) {
			continue
		}
		jobs, err := t.leaseTo(o, now)
		if errors.Is(err, errUnregistered) {
			break // the worker will meet it; the caller has done nothing wrong
		}
		if err != nil {
			return err
		}
		f.remove(jobs)
	}
	return nil
}

// announce has the workers told of the jobs that the call has left ready.
func (t *tx) announce() {
	if t.fresh.any() {
		t.notifyAll(storage.Event{})
	}
	clear(t.fresh.lanes)
}

// receiver returns the hand-off that takes a job which is about to be ready, or
// nil: that to the worker which would lease it right after, if nothing is ahead
// of it.
func (t *tx) receiver(now time.Time, r *jobRow) (*handoff, error) {
	all := t.store.offers.list()
	// Lineups do not know the lanes of this transaction, where jobs may be ahead.
	if len(all) == 0 || len(t.lanes) > 0 || t.holdsChanged() {
		return nil, nil
	}
	holds, _ := t.store.cache.committedHolds()
	if held, ajar := holds.of(storage.Lane{Queue: r.Queue, Kind: r.Kind}, micros(now)); held || ajar {
		return nil, nil
	}
	for _, o := range all {
		if o.capacity.Load() <= 0 || !o.want.Matches(r.Queue, r.Kind) || !o.want.HasRoom(r.Queue, 0) || t.throttled(r.Queue, r.Kind) {
			continue
		}
		if o.want.KeepsBack() { // handOver decides, before the offers that follow
			return nil, nil
		}
		ahead, _, err := t.due(now, []storage.Want{o.want})
		if err != nil || ahead {
			return nil, err
		}
		h := t.handoff(o)
		if h == nil || int(o.capacity.Load()) <= len(h.jobs) {
			continue
		}
		if h.holder, err = t.register(o.lease); errors.Is(err, errUnregistered) {
			return nil, nil // as in handOver
		}
		return h, err
	}
	return nil, nil
}

// handTo hands a job over that was inserted as running. What the worker gets is
// its own.
func (t *tx) handTo(to *handoff, r *jobRow) error {
	r.Headers, r.Args = slices.Clone(r.Headers), slices.Clone(r.Args)
	var l storage.Leased
	if err := t.fill(&l, r); err != nil {
		return err
	}
	to.jobs = append(to.jobs, l)
	return nil
}

// leaseTo leases to an offer up to its capacity, less what it leased
// earlier in this transaction.
func (t *tx) leaseTo(o *offer, now time.Time) ([]storage.Leased, error) {
	h := t.handoff(o)
	if h == nil {
		return nil, nil
	}
	want := o.want
	if want.N = int(o.capacity.Load()) - len(h.jobs); want.N <= 0 {
		return nil, nil
	}
	x := storage.Exchange{LeaseDuration: o.lease, Wants: []storage.Want{want}}
	out, err := t.exchange(now, &x, 0)
	h.jobs = append(h.jobs, out.Leased...)
	return out.Leased, err
}

// handoff returns what this transaction hands to an offer, nil if that is closed.
func (t *tx) handoff(o *offer) *handoff {
	for _, h := range t.handoffs {
		if h.offer == o {
			return h
		}
	}
	o.busy.Lock()
	if o.closed {
		o.busy.Unlock()
		return nil
	}
	h := &handoff{offer: o, began: time.Now()}
	t.handoffs = append(t.handoffs, h)
	return h
}

// passOn passes to the workers, after the commit, what was leased to them.
func (t *tx) passOn() {
	for _, h := range t.handoffs {
		if len(h.jobs) > 0 {
			h.offer.receive(h.jobs, h.began)
		}
	}
}

// letGo ends what handoff began, whatever has become of the transaction.
func (t *tx) letGo() {
	for _, h := range t.handoffs {
		h.offer.busy.Unlock()
	}
}
