// Package remember keeps what entries say as of their revisions, for handlers of deliveries.
package remember

import "sync"

const (
	// most is the number of entries that are remembered, and mostDoc the size of the largest
	// document that is.
	most    = 1000
	mostDoc = 8 << 10
)

// Entries are what entries of a class say, by their names, as of a revision. An attempt learns the
// revisions together with its message, so it uses nothing that has changed, in whatever
// process, and reads only what has. The zero value remembers nothing yet. It is safe for
// concurrent use.
type Entries[T any] struct {
	mu  sync.Mutex
	all map[string]revised[T]
}

type revised[T any] struct {
	revision int64
	value    T
}

// At returns what the entry of a name says at a revision, if that is remembered. The value is
// shared, and must not be changed.
func (r *Entries[T]) At(name string, revision int64) (value T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.all[name]
	if !ok || v.revision != revision {
		return value, false
	}
	return v.value, true
}

// Put remembers the value of an entry, unless its document of bytes bytes is too large.
func (r *Entries[T]) Put(name string, revision int64, bytes int, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]revised[T]{}
	}
	delete(r.all, name)
	if bytes > mostDoc {
		return
	}
	if len(r.all) >= most {
		for other := range r.all { // any of them
			delete(r.all, other)
			break
		}
	}
	r.all[name] = revised[T]{revision, value}
}
