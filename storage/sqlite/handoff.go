package sqlite

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
)

// offers are the workers of this process to whom a job can be handed in the
// transaction that enqueues it.
type offers struct {
	mu  sync.Mutex
	all atomic.Pointer[[]*offer] // replaced, never changed
}

// offer is a [storage.Offer].
type offer struct {
	store  *Store
	src    storage.Source
	length time.Duration
	take   func([]storage.Leased, time.Time)
	room   atomic.Int64
	// busy is held from the first job that a transaction leases to this offer
	// until take has returned, or the transaction was rolled back.
	busy   sync.Mutex
	closed bool // guarded by busy
}

// Offer implements [storage.Handoff].
func (s *Store) Offer(src storage.Source, length time.Duration, take func([]storage.Leased, time.Time)) storage.Offer {
	o := &offer{store: s, length: length, take: take}
	o.src = storage.Source{Queues: slices.Clone(src.Queues), Kinds: slices.Clone(src.Kinds)}
	s.offers.change(func(all []*offer) []*offer { return append(all, o) })
	return o
}

// Room implements [storage.Offer].
func (o *offer) Room(n int) { o.room.Store(int64(n)) }

// Close implements [storage.Offer].
func (o *offer) Close() {
	o.Room(0)
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
	var all []*offer
	if p := os.all.Load(); p != nil {
		all = slices.Clone(*p)
	}
	all = f(all)
	os.all.Store(&all)
}

// handoff is what one transaction hands to one offer.
type handoff struct {
	offer  *offer
	holder int64
	began  time.Time
	jobs   []storage.Leased
	held   []removed
	done   bool // other jobs go before what comes now
}

// handoff gives the offer that takes a job of this lane now, or nil.
func (t *tx) handoff(now time.Time, lane laneName) (*handoff, error) {
	all := t.store.offers.all.Load()
	if all == nil || t.stmts == nil || t.store.cache.isPaused(lane.queue) {
		return nil, nil
	}
	for _, o := range *all {
		if !slices.Contains(o.src.Queues, lane.queue) || !slices.Contains(o.src.Kinds, lane.kind) {
			continue
		}
		h, err := t.claim(now, o)
		if err != nil {
			return nil, err
		}
		if h != nil && !h.done {
			if n := o.room.Load(); n > 0 && o.room.CompareAndSwap(n, n-1) {
				return h, nil
			}
			h.done = true
		}
	}
	return nil, nil
}

// claim begins to hand jobs to an offer, if it has room and none go before.
func (t *tx) claim(now time.Time, o *offer) (*handoff, error) {
	for _, h := range t.handoffs {
		if h.offer == o {
			return h, nil
		}
	}
	if o.room.Load() <= 0 {
		return nil, nil
	}
	h := &handoff{offer: o, began: time.Now()}
	t.handoffs = append(t.handoffs, h)
	var err error
	if h.done, _, err = t.due(now, o.src); h.done || err != nil {
		return h, err
	}
	if h.holder, err = t.register(o.length); err != nil {
		return h, err
	}
	o.busy.Lock()
	if o.closed {
		o.busy.Unlock()
		h.done = true
		return h, nil
	}
	t.after = append(t.after, func() {
		defer o.busy.Unlock()
		if len(h.jobs) > 0 {
			t.store.self.hold(h.jobs, h.held)
			o.take(h.jobs, h.began)
		}
	})
	t.undo = append(t.undo, func() {
		o.room.Add(int64(len(h.jobs)))
		o.busy.Unlock()
	})
	return h, nil
}

// leaseTo leases a job that has just been inserted as ready.
func (t *tx) leaseTo(h *handoff, now time.Time, j *storage.NewJob, key int64, salt uint32, r removed) error {
	token := t.token()
	if _, err := t.exec(sqlLease, key, token, h.holder, micros(now.Add(h.offer.length))); err != nil {
		return err
	}
	t.move(r.lane, ready, running)
	r.attempt = 1
	created := fromMicros(micros(now))
	due := created
	if !j.DueAt.IsZero() {
		due = fromMicros(dueMicros(j.DueAt))
	}
	h.held = append(h.held, r)
	h.jobs = append(h.jobs, storage.Leased{
		Lease: storage.Lease{Key: key, Token: token},
		ID:    storage.NewID(created, salt, key), Queue: j.Queue, Kind: j.Kind, Priority: j.Priority,
		Counters: storage.Counters{Attempt: 1}, CreatedAt: created, DueAt: due, Timeout: j.Timeout.Truncate(time.Microsecond),
		Policy: bytes.Clone(j.Policy), Headers: bytes.Clone(j.Headers), Args: bytes.Clone(j.Args), // the caller's
	})
	return nil
}
