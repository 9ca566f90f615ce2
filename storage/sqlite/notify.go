package sqlite

import (
	"context"
	"sync"

	"github.com/errandq/errand/storage"
)

// refresh brings the cache up to date, without the writer.
func (s *Store) refresh(ctx context.Context) (m meta, err error) {
	db := reader{ctx, s.inner.DB}
	if err := s.readMeta(db, &m); err != nil {
		return m, err
	}
	return m, s.catchUp(db, &m)
}

// catchUp brings the cache up to date, and has the workers told of what the
// counters say that others have done.
func (s *Store) catchUp(db asker, m *meta) error {
	var e storage.Event
	if s.cache.stale(m.gen) {
		if err := s.cache.reload(db, m.gen); err != nil {
			return err
		}
		e.Schedules = true // perhaps
	}
	if e.Cancel = s.heed(m.asked); e.Cancel || e.Schedules {
		s.bells.ring(e)
	}
	return nil
}

// heed reports whether the workers have yet to be told that a running job was
// asked to stop, and takes that as done. A look that began before another one
// may end after it.
func (s *Store) heed(asked int64) bool {
	for {
		was := s.heeded.Load()
		if asked <= was {
			return false
		}
		if s.heeded.CompareAndSwap(was, asked) {
			return true
		}
	}
}

// bells are what Notify has registered.
type bells struct {
	mu   sync.RWMutex
	next int
	all  map[int]func(storage.Event)
}

func (b *bells) ring(e storage.Event) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, f := range b.all {
		f(e)
	}
}

// Notify implements [storage.Notifier].
func (s *Store) Notify(f func(storage.Event)) (cancel func()) {
	s.watch.start()
	b := &s.bells
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[int]func(storage.Event){}
	}
	id := b.next
	b.next++
	b.all[id] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, id)
	}
}
