package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// freedKey says when calls were under way that may end the time for which a key is held,
// or give it to another job.
type freedKey struct {
	freeing int   // calls under way
	freed   int64 // the step of the return of the last
}

// takes notes that j was inserted with its unique key. One that no other may have replaced has
// that for its time, whatever becomes of it.
func (w *watch) takes(j *watched) {
	key, f := j.job.Unique, w.freedKey(j.job.Unique)
	for _, o := range w.unique[key] {
		if o.until.After(w.now) && o.back < j.began.step && f.freeing == 0 && f.freed < o.began.step {
			w.wrong(o, "it holds the key %q until %v, and job %d was inserted with it at %v", key, o.until, j.id.Key(), w.now)
		}
	}
	switch n := &j.job; {
	case w.now.IsZero() || n.Conflict.Replaces():
	case n.UniqueScope == storage.UniqueForever:
		j.until = w.now.Add(1000 * time.Hour)
	case n.UniqueFor > 0:
		j.until = w.now.Add(n.UniqueFor)
	}
	w.unique[key] = append(slices.DeleteFunc(w.unique[key], func(o *watched) bool { return o.touched && !o.until.After(w.now) }), j)
}

func (w *watch) freedKey(key string) *freedKey {
	if w.freed[key] == nil {
		w.freed[key] = &freedKey{}
	}
	return w.freed[key]
}

// freeing says that a call is about to begin which may free keys, or have others take them
// over; the result that it has returned.
func (w *watch) freeing(keys ...string) (over func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		w.freedKey(key).freeing++
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.next()
		for _, key := range keys {
			f := w.freedKey(key)
			f.freeing--
			f.freed = w.last.step
		}
	}
}

// names says that an answer names a job as one that has a key.
func (w *watch) names(id storage.ID, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.named[id] = key
}

// pass says what time it is from now on.
func (w *watch) pass(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
}
