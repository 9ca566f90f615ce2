package webhook

import "sync"

const (
	// mostRemembered is the number of endpoints that are remembered, and mostDoc the size of the
	// largest document that is.
	mostRemembered = 1000
	mostDoc        = 8 << 10
)

// remembered are what entries say, by their names, as of a revision. An attempt learns the
// revisions together with its message, so it uses nothing that has changed, in whatever
// process, and reads only what has.
type remembered[T any] struct {
	mu  sync.Mutex
	all map[string]revised[T]
}

type revised[T any] struct {
	revision int64
	value    T
}

// at returns what the entry of a name says at a revision, if that is remembered. The value is
// shared, and must not be changed.
func (r *remembered[T]) at(name string, revision int64) (value T, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.all[name]
	if !ok || v.revision != revision {
		return value, false
	}
	return v.value, true
}

// put remembers the value of an entry, unless its document of bytes bytes is too large.
func (r *remembered[T]) put(name string, revision int64, bytes int, value T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]revised[T]{}
	}
	delete(r.all, name)
	if bytes > mostDoc {
		return
	}
	if len(r.all) >= mostRemembered {
		for other := range r.all { // any of them
			delete(r.all, other)
			break
		}
	}
	r.all[name] = revised[T]{revision, value}
}
