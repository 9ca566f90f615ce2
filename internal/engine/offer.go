package engine

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// handed is what the store has leased to this engine as it was enqueued.
type handed struct {
	from  *source
	jobs  []storage.Leased
	began time.Time
}

// makeOffers lets the store hand over jobs in the transaction that enqueues
// them, which saves an exchange while there is nothing else to do. What is
// under a throttle has to ask first.
func (l *loop) makeOffers() {
	h, ok := l.cfg.Store.(storage.Handoff)
	if !ok {
		return
	}
	for _, s := range l.sources.all {
		if s.throttle == nil {
			s.offer = h.Offer(s.Source, l.cfg.Lease, func(jobs []storage.Leased, began time.Time) {
				l.mail.hand(handed{from: s, jobs: jobs, began: began})
			})
			l.sources.offering = true
		}
	}
}

// hand puts jobs in, and says how much room they leave.
func (m *mailbox) hand(h handed) {
	m.mu.Lock()
	m.handed = append(m.handed, h)
	h.from.say(h.from.room - len(h.jobs))
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// takeOver takes jobs that were handed over, at any stage.
func (l *loop) takeOver(all []handed) {
	for _, h := range all {
		if l.ready.pace.weighed(h.jobs) >= storage.LeaseBytes {
			h.from.hungry = true // there may be more than fitted
		}
		l.admit(h.jobs, h.from, h.began, h.began.Add(l.cfg.Lease-l.cfg.Lease/6))
	}
}

// count is how many jobs lie in m, which is locked.
func (m *mailbox) count() (n int) {
	for _, h := range m.handed {
		n += len(h.jobs)
	}
	return n
}

// endRoom ends all room before an exchange brings jobs, and gives how many of
// the runners are taken by what has come.
func (l *loop) endRoom() int {
	if !l.sources.offering {
		return 0
	}
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	for _, s := range l.sources.all {
		if s.offer != nil {
			s.say(0)
		}
	}
	return l.mail.count()
}

// say says how much room there is for jobs of s. The mailbox is locked, so that
// jobs are either in it or not yet heard of.
func (s *source) say(room int) {
	s.room = max(room, 0)
	s.offer.Room(s.room)
}

// setRoom says for how many jobs there is room: the sources share the free
// runners. While an exchange may bring jobs there is none.
func (l *loop) setRoom() {
	if !l.sources.offering {
		return
	}
	l.mail.mu.Lock()
	defer l.mail.mu.Unlock()
	room := 0
	if l.shutdown.working() && l.health.err == nil && !l.sources.leasing && len(l.ready.waiting) == 0 {
		room = l.runners.free()
		room -= l.mail.count()
	}
	sharing := 0
	for _, s := range l.sources.all {
		if s.offer != nil && !s.hungry {
			sharing++
		}
	}
	for _, s := range l.sources.all {
		switch {
		case s.offer == nil:
		case s.hungry:
			s.say(0)
		default:
			n := (room + sharing - 1) / sharing
			s.say(n)
			room -= n
			sharing--
		}
	}
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

// withdraw ends all offers, and waits until nobody is just handing something
// over: what was lies in the mailbox.
func (l *loop) withdraw() {
	for _, s := range l.sources.all {
		if s.offer != nil {
			s.offer.Close()
		}
	}
}
