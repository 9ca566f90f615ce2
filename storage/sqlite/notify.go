package sqlite

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/errandq/errand/storage"
)

// registry is functions to call until each is withdrawn.
type registry[F any] struct {
	mu   sync.RWMutex
	next int
	all  map[int]F
}

// add registers a function. The result withdraws it.
func (r *registry[F]) add(f F) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[int]F{}
	}
	id := r.next
	r.next++
	r.all[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.all, id)
	}
}

// listeners are the functions that Notify has registered: the workers of this
// process. Beside them are those about caps.
type listeners struct {
	registry[func(storage.Event)]
	cancel  atomic.Int64 // the counter asked, as of the last Event with Cancel
	telling atomic.Int64 // the generation that a transaction is about to commit, and tells of

	evictions evictions
	caps      capLog
	free      capLog // of SettingMinFree
	dead      capLog // of SettingMaxDead
	spare     spare
}

func (l *listeners) notify(e storage.Event) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.all {
		f(e)
	}
}

// Notify implements [storage.Notifier].
func (s *Store) Notify(f func(storage.Event)) (cancel func()) {
	s.wake.start()
	return s.listeners.add(f)
}

// asked reports whether the listeners have yet to be told that a running job was
// asked to stop, given the counter that each such request raises. It returns true
// once for each value. Of two readers the later may have read the lower value.
func (l *listeners) asked(counter int64) bool {
	for {
		was := l.cancel.Load()
		if counter <= was {
			return false
		}
		if l.cancel.CompareAndSwap(was, counter) {
			return true
		}
	}
}

// refresh reads the counters and brings the cache up to date, without the writer.
func (s *Store) refresh(ctx context.Context) (m meta, err error) {
	db := plain{ctx, s.inner.DB}
	if err := s.readMeta(db, &m); err != nil {
		return m, err
	}
	return m, s.catchUp(db, &m)
}

// catchUp brings the cache up to date with the counters m, and notifies the
// listeners of what the counters say that others have done: other processes, or
// transactions of the application. What a transaction of this Store changes the cache has
// from its commit on, see [tx.committed], which tells of it.
func (s *Store) catchUp(db asker, m *meta) error {
	var e storage.Event
	if s.cache.stale(m.gen) {
		n, err := s.cache.read(db, m.gen)
		if err != nil {
			return err
		}
		held, news := s.cache.take(n)
		if news && s.listeners.telling.Load() != m.gen {
			e.Schedules, e.Holds, e.Urgent = true, held, n.urgent // schedules perhaps
		}
	}
	if e.Cancel = s.listeners.asked(m.asked); e.Cancel || e.Schedules {
		s.listeners.notify(e)
	}
	return nil
}
