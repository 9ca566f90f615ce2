package sqlite

import (
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// freeEvery is how often free space is read for [storage.SettingMinFree].
const freeEvery = time.Second

// spare is the free space of the file system as it was read last.
type spare struct {
	mu    sync.Mutex
	at    time.Time
	bytes int64
	known bool
}

// read returns how many bytes were free at most freeEvery ago, and false if the system
// does not say.
func (s *spare) read(path string) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.at.IsZero() || now.Sub(s.at) >= freeEvery {
		s.at = now
		s.bytes, s.known = freeSpace(path)
	}
	return s.bytes, s.known
}

// minFree returns why a job is refused for lack of free space, nil if it is not.
func (m *room) minFree(r *jobRow) *storage.QueueFullError {
	for _, queue := range []string{r.Queue, ""} {
		s := m.all[storage.Lane{Queue: queue}]
		least := s[storage.SettingMinFree]
		if least <= 0 {
			continue
		}
		free, known := m.store.listeners.spare.read(m.store.path)
		if !known {
			return nil
		}
		m.after = append(m.after, func() { m.store.warnOfFree(queue, least, free) })
		if free < least && int64(r.Priority) <= s[storage.SettingMinFreePriority] {
			return &storage.QueueFullError{Queue: queue, MinFree: least, Free: free}
		}
	}
	return nil
}

// warnOfFree warns if there is little more free space than a queue needs, by the same
// marks as of a cap.
func (s *Store) warnOfFree(queue string, least, free int64) {
	percent := int64(100)
	if free > least {
		percent = int64(float64(least) * 100 / float64(free))
	}
	if s.listeners.free.note(queue, percent) == 0 {
		return
	}
	attrs := []any{"free", free, "min_free", least}
	if queue != "" {
		attrs = append([]any{"queue", queue}, attrs...)
	}
	s.opts.Logger.Warn("errand: there is hardly more free space than new jobs need", attrs...)
}
