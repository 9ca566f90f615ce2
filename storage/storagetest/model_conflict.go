package storagetest

import (
	"bytes"
	"time"

	"github.com/errandq/errand/storage"
)

// window is for how long a key is held at least, whatever becomes of its holder. It counts from
// the enqueue of that, or from when it began anew.
type window struct{ began, until time.Time }

// holder returns who holds a key now.
func (m *Memory) holder(now time.Time, key string) (id storage.ID, held bool) {
	id, held = m.unique[key]
	w, windowed := m.windows[key]
	if j := m.find(id); !held || !windowed || j != nil && j.live() {
		return id, held
	}
	return id, w.from(now).until.After(now)
}

// from returns w, anew if it began later than now.
func (w window) from(now time.Time) window {
	if w.began.After(now) && w.until.After(w.began) {
		w.began, w.until = now, now.Add(w.until.Sub(w.began))
	}
	return w
}

// renew has the window that holds a key begin anew for a job, if it began later than now.
func (m *Memory) renew(now time.Time, key string) {
	w, windowed := m.windows[key]
	if j := m.find(m.unique[key]); windowed && (j == nil || !j.live()) {
		m.windows[key] = w.from(now)
	}
}

// shiftWindows is renew for all keys, but for those whose holder waits for a date.
func (m *Memory) shiftWindows(now time.Time) {
	for key, w := range m.windows {
		if j := m.find(m.unique[key]); j == nil || !j.dated() {
			m.windows[key] = w.from(now)
		}
	}
}

// dated reports whether j waits for a date.
func (j *job) dated() bool { return j.State == storage.Scheduled && j.since.IsZero() }

// hold has j hold its key, at least until then if that is not zero.
func (m *Memory) claim(j *job, until time.Time) {
	m.unique[j.Unique] = j.ID
	delete(m.windows, j.Unique)
	if !until.IsZero() {
		m.windows[j.Unique] = window{j.CreatedAt, until}
	}
}

// refuses returns the error of the job at an index of a call, which must not find its
// key held, if it does. The first job of the call has the key first, or would have.
func (m *Memory) refuses(now time.Time, n *storage.NewJob, index int, first int64) error {
	if n.Conflict == nil || n.Conflict.Mode != storage.Fail {
		return nil
	}
	id, held := m.holder(now, n.Unique)
	switch {
	case !held:
		return nil
	case id.Key() >= first: // of the same call, and so never there
		return &storage.DuplicateError{Index: index}
	}
	return &storage.DuplicateError{Index: index, ID: id, Gone: m.find(id) == nil}
}

// waiting returns the job that c may change, or nil.
func (m *Memory) waiting(now time.Time, key string, c *storage.Conflict) *job {
	id, held := m.holder(now, key)
	if follower, ok := m.behind[key]; ok {
		id = follower
	}
	j := m.find(id)
	if !c.Replaces() || !held || j == nil || !j.live() || j.State == storage.Running || c.Mode == storage.After && j.Attempt > 0 {
		return nil
	}
	return j
}

// conflict decides about a job with a Conflict. It returns false if the job is to be
// inserted, when if its key is held by a window alone.
func (m *Memory) conflict(now time.Time, n *storage.NewJob, w *job) (e storage.Enqueued, when time.Time, decided bool) {
	c := n.Conflict
	id, held := m.holder(floor(now), n.Unique)
	e = storage.Enqueued{ID: id, Duplicate: true, Gone: held && m.find(id) == nil}
	if x := c.Merge; x != nil {
		if w != nil && (x.Old == nil || !bytes.Equal(x.Old, w.Args)) {
			e.Unmerged = &storage.Unmerged{Found: append([]byte{}, w.Args...)}
		} else if w == nil && x.Old != nil {
			e.Unmerged = new(storage.Unmerged)
		}
		if e.Unmerged != nil {
			return e, when, true
		}
	}
	m.renew(floor(now), n.Unique)
	switch {
	case !held:
		return e, when, false
	case w == nil:
		holder := m.find(id)
		window, ok := m.windows[n.Unique]
		if c.Replaces() && ok && (holder == nil || !holder.live()) {
			return e, window.until, false
		}
		if c.Replaces() && n.Group == "" && holder != nil && holder.live() && holder.scope == storage.UniqueLive {
			return e, window.until, false
		}
		return e, when, true
	}
	m.replace(now, w, n)
	e.ID, e.Gone, e.Replaced = w.ID, false, true
	return e, when, true
}

// replace has j do what n is to do.
func (m *Memory) replace(now time.Time, j *job, n *storage.NewJob) {
	at, c, was := floor(now), n.Conflict, j
	j = new(job) // the call may be undone
	*j = *was
	m.put(j)
	j.Args, j.Headers, j.Priority = bytes.Clone(n.Args), bytes.Clone(n.Headers), n.Priority
	j.Checkpoint, j.Progress = nil, nil
	due := j.DueAt
	if c.Fresh {
		if j.State == storage.Scheduled && j.Attempt > 0 && due.After(at) {
			due = at
		}
		j.Retry, j.Crashes, j.Snoozes = 0, 0, 0
	}
	if due = ceil(c.Due(now, j.CreatedAt, due)); !due.Equal(j.DueAt) {
		urgent, state := j.urgent, j.State
		j.putAfter(at, due)
		j.urgent = urgent && j.State == storage.Ready
		if j.Attempt > 0 || j.redriven {
			j.windows.startWithin = 0
		}
		j.windows.begin(now, j.DueAt, true, n.Doubtful)
		m.resettle(j, state, false, true)
		m.regroup(j.Queue, j.Group, false)
		m.blockBehind(j)
	}
}

// blockBehind blocks j if it waits behind the holder of its key.
func (m *Memory) blockBehind(j *job) {
	if j.Unique == "" || m.behind[j.Unique] != j.ID || j.State == storage.Blocked {
		return
	}
	j.due, j.urgent = j.State == storage.Ready, false
	j.State = storage.Blocked
}

// releaseKey has the key of a job that is no longer live go to the one behind it, or be
// free unless it is held for longer.
func (m *Memory) releaseKey(now time.Time, j *job) {
	if m.behind[j.Unique] == j.ID {
		delete(m.behind, j.Unique)
		return
	}
	if m.unique[j.Unique] != j.ID {
		return
	}
	if next := m.find(m.behind[j.Unique]); next != nil {
		delete(m.behind, j.Unique)
		m.claim(next, next.keyUntil)
		if next.State = storage.Scheduled; next.due {
			next.State = storage.Ready
		}
		if w, ok := m.windows[j.Unique]; ok && !next.dated() {
			m.windows[j.Unique] = w.from(floor(now))
		}
		m.regroups.letIn = append(m.regroups.letIn, next)
		return
	}
	if w, ok := m.windows[j.Unique]; j.scope == storage.UniqueForever || ok && w.until.After(now) {
		return
	}
	delete(m.unique, j.Unique)
	delete(m.windows, j.Unique)
}

// forgoKey ends the time for which an evicted job has its key, if its handler was never called.
func (m *Memory) forgoKey(j *job) {
	if j.Attempt > 0 || j.Unique == "" || m.unique[j.Unique] != j.ID || j.scope == storage.UniqueForever {
		return
	}
	delete(m.windows, j.Unique)
	if !j.live() {
		delete(m.unique, j.Unique)
	}
}

// forgetWindows forgets those that are over, and the keys that they alone have held. It
// returns when the next one is over, zero if there is none.
func (m *Memory) forgetWindows(now time.Time) (next time.Time) {
	for key, w := range m.windows {
		if w.until.After(now) {
			next = earlier(w.until, next)
			continue
		}
		delete(m.windows, key)
		if j := m.find(m.unique[key]); j == nil || !j.live() {
			delete(m.unique, key)
		}
	}
	return next
}

// earlier returns the earlier of two times, unless one is zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// ceilDuration returns d in whole microseconds, rounded up.
func ceilDuration(d time.Duration) time.Duration {
	if down := d.Truncate(time.Microsecond); down < d {
		return down + time.Microsecond
	}
	return d
}
