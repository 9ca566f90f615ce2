package engine

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// mailbox keeps the store's events until the loop reads them. They are put in by
// the goroutines that commit, which must not wait.
type mailbox struct {
	signal   chan struct{} // holds one
	unlisten func()        // ends the events
	pollAt   time.Time     // look for jobs; zero: the store has events

	mu        sync.Mutex
	now       bool
	due       time.Time // earliest, zero: none
	cancel    bool
	urgent    bool
	schedules bool
	clock     time.Time // latest, zero: none
	handed    []handed
	posted    []func() // for the loop to run
	resize    int      // how many handlers are to run at a time; zero: as many as before
}

func (m *mailbox) put(e storage.Event) {
	m.mu.Lock()
	switch {
	case e.Due.IsZero(): // also if the event is about Cancel or Schedules alone: to look costs little
		m.now = true
	case m.due.IsZero() || e.Due.Before(m.due):
		m.due = e.Due
	}
	m.cancel, m.urgent = m.cancel || e.Cancel, m.urgent || e.Urgent
	m.schedules = m.schedules || e.Schedules
	if e.Clock.After(m.clock) {
		m.clock = e.Clock
	}
	m.mu.Unlock()
	m.ring()
}

// post has the loop run f.
func (m *mailbox) post(f func()) {
	m.mu.Lock()
	m.posted = append(m.posted, f)
	m.mu.Unlock()
	m.ring()
}

// ring has the loop read the mailbox.
func (m *mailbox) ring() {
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// read empties the mailbox and acts on what was in it.
func (l *loop) read() {
	m := &l.mail
	m.mu.Lock()
	ready, due, cancel, schedules, clock := m.now, m.due, m.cancel, m.schedules, m.clock
	m.now, m.due, m.cancel, m.schedules, m.clock = false, time.Time{}, false, false, time.Time{}
	handed, posted := m.handed, m.posted
	m.handed, m.posted = nil, nil
	l.sources.urgent = l.sources.urgent || m.urgent
	m.urgent = false
	resize := m.resize
	m.resize = 0
	m.mu.Unlock()

	now := time.Now()
	if resize > 0 {
		l.resize(resize, now)
	}
	l.receive(handed)
	for _, f := range posted {
		f()
	}
	if ready || !due.IsZero() {
		l.chores.unserved.news(now)
	}
	if ready {
		l.sources.wake()
		l.chores.promote.news(now, l.clock())
	}
	if !due.IsZero() {
		l.sources.nextDue.sooner(due, now, l.clock())
		l.chores.promote.sooner(due, now, l.clock())
	}
	if cancel {
		l.leases.heartbeatAt = now // the answer names the jobs to cancel
	}
	if schedules {
		l.readSchedules(now)
	}
	if !clock.IsZero() {
		l.heard(clock, now)
	}
}
