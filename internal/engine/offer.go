package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// handed are jobs that the store has leased to this engine as they were enqueued.
type handed struct {
	from  *source
	jobs  []storage.Leased
	began time.Time
}

// makeOffers lets the store hand over jobs in the transaction that enqueues
// them, which saves an exchange while there is nothing else to do. Sources with
// a throttle make no offer, as their jobs need tokens first, nor do those of batches, as
// many jobs are to come together. Nor do those of a prefix whose queues are bounded each:
// an offer is for all of its queues together.
func (l *loop) makeOffers() {
	h, ok := l.cfg.Store.(storage.Handoff)
	if !ok {
		return
	}
	for _, s := range l.sources.all {
		if s.throttle == nil && s.batch == nil && s.each == nil {
			s.offer = h.Offer(s.Want, l.cfg.LeaseDuration, func(jobs []storage.Leased, began time.Time) {
				l.mail.hand(handed{from: s, jobs: jobs, began: began})
			})
			l.sources.offering = true
		}
	}
}

// hand puts jobs in the mailbox, and announces the capacity that they leave.
func (m *mailbox) hand(h handed) {
	m.mu.Lock()
	m.handed = append(m.handed, h)
	h.from.announce(h.from.capacity - len(h.jobs))
	m.mu.Unlock()
	m.ring()
}

// count returns how many jobs lie in the mailbox, which is locked. These are
// claimed.
func (m *mailbox) count() (n int) {
	for _, h := range m.handed {
		n += len(h.jobs)
		h.from.claimed(len(h.jobs))
	}
	return n
}

// receive admits jobs that were handed over, at any stage.
func (l *loop) receive(all []handed) {
	for _, h := range all {
		if l.ready.pace.weighed(h.jobs) >= storage.LeaseBytes {
			h.from.mayHaveWork = true // the limit was reached
		}
		l.admit(h.jobs, h.began)
	}
}

// announce tells the store for how many jobs of s there is capacity. The mailbox
// is locked, so that a job that was handed over either lies in it or is counted
// as capacity.
func (s *source) announce(n int) {
	s.capacity = max(n, 0)
	s.offer.Capacity(s.capacity)
}

// pauseOffers ends all capacity before an exchange brings jobs. It returns how
// many jobs have been handed over and not yet received.
func (l *loop) pauseOffers() int {
	if !l.sources.offering {
		return 0
	}
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	for _, s := range l.sources.all {
		if s.offer != nil {
			s.announce(0)
		}
	}
	return l.mail.count()
}

// offerCapacity divides the free runners among the sources that make offers,
// but for those that may have work, whose jobs come by an exchange. There is no
// capacity while an exchange may bring jobs, nor beyond the bounds of a source.
func (l *loop) offerCapacity() {
	if !l.sources.offering {
		return
	}
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	free := 0
	if l.shutdown.working() && l.health.err == nil && !l.sources.leasing && len(l.ready.waiting) == 0 {
		free = l.runners.free() - l.mail.count()
	}
	sharing := 0
	for _, s := range l.sources.all {
		if s.offer != nil && !s.mayHaveWork {
			sharing++
		}
	}
	for _, s := range l.sources.all {
		switch {
		case s.offer == nil:
		case s.mayHaveWork:
			s.announce(0)
		default:
			n := min((free+sharing-1)/sharing, s.room())
			s.claimed(n)
			s.announce(n)
			free -= n
			sharing--
		}
	}
	l.sources.divided()
}

// endOffers withdraws all offers, without keeping the loop waiting.
func (l *loop) endOffers() {
	l.exchanges.do(func(context.Context) func(time.Time) {
		l.withdraw()
		return func(time.Time) {
			l.sources.offering = false
			l.read() // what was handed over before
		}
	})
}

// withdraw withdraws all offers. It waits for hand-overs that are under way;
// their jobs lie in the mailbox when it returns.
func (l *loop) withdraw() {
	for _, s := range l.sources.all {
		if s.offer != nil {
			s.offer.Close()
		}
	}
}
