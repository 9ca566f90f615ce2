package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// unservedAfter is how long nobody must have taken ready jobs before that is
	// worth a warning: another process may be restarting.
	unservedAfter = time.Minute
	unservedEvery = 20 * time.Second
)

// Lanes is what the engines of a process that share a store work for. The zero
// value is empty.
type Lanes struct {
	mu     sync.Mutex
	queues map[string]int // by how many engines
	served map[lane]int   // likewise
	warned map[lane]bool
}

// lane is a kind in a queue.
type lane struct{ queue, kind string }

// serve adds n, 1 or -1, to how many engines work for the lanes of c.
func (s *Lanes) serve(c *Config, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues, s.served, s.warned = map[string]int{}, map[lane]int{}, map[lane]bool{}
	}
	for _, queue := range c.Queues {
		s.queues[queue] += n
		for kind := range c.Handlers {
			s.served[lane{queue, kind}] += n
		}
	}
}

// unserved is the chore that looks for lanes that nobody here works for.
type unserved struct {
	chore
	last    time.Time // the last call
	waiting map[lane]waiting
}

func (l *loop) newUnserved(now time.Time) *chore {
	u := &unserved{chore: chore{due: soon(now)}}
	u.prepare = func(now time.Time) task {
		u.last = now
		return func(ctx context.Context) (func(time.Time), error) {
			counts, err := l.cfg.Store.Counts(ctx)
			if err != nil {
				return nil, err
			}
			paused, err := l.cfg.Store.Paused(ctx)
			return func(now time.Time) { l.warnUnserved(counts, paused, now) }, err
		}
	}
	l.chores.unserved = u
	return &u.chore
}

// news has the chore done because something came up, perhaps for nobody here.
func (u *unserved) news(now time.Time) {
	if u.due.mono.IsZero() {
		u.due = soon(latest(now, u.last.Add(unservedEvery)))
	}
}

// waiting is what is known of a lane that nobody in this process works for.
type waiting struct {
	since time.Time // nobody has taken a job of it, as far as can be seen
	ready int64
	ended int64
	busy  bool // somebody is running one, or others of a queue that we do not work for
}

// warnUnserved warns, once, of lanes whose jobs wait though nothing is in their way:
// the name of a queue may be mistyped, a handler missing.
func (l *loop) warnUnserved(counts []storage.Count, paused []string, now time.Time) {
	u := l.chores.unserved
	late := u.findOverlong(l.cfg.Lanes, counts, paused, now)
	if len(u.waiting) > 0 {
		u.due = soon(now.Add(unservedEvery))
	}
	slices.SortFunc(late, func(a, b overlong) int {
		return cmp.Or(strings.Compare(a.queue, b.queue), strings.Compare(a.kind, b.kind))
	})
	for i, o := range late {
		attrs := []any{"queue", o.queue, "kind", o.kind, "jobs", o.jobs}
		switch {
		case i == mostNamed:
			l.cfg.Logger.Warn("errand: jobs wait in more queues or of more kinds", "suppressed", len(late)-i)
			return
		case o.served:
			l.cfg.Logger.Warn("errand: jobs wait for a handler that this worker does not have", attrs...)
		default:
			own := l.cfg.Queues[:min(len(l.cfg.Queues), mostNamed)]
			l.cfg.Logger.Warn("errand: jobs wait in a queue that no worker here serves", append(attrs, "worker", strings.Join(own, " "))...)
		}
	}
}

// overlong is a lane that is to be warned of.
type overlong struct {
	lane
	jobs   int64
	served bool // the queue is, by this process
}

// findOverlong returns the lanes that have waited for long enough. Other processes
// may work for them, so there must be no sign of that for a while: none of a
// lane's jobs is running, none has ended, and those that are ready do not get
// fewer.
func (u *unserved) findOverlong(s *Lanes, counts []storage.Count, paused []string, now time.Time) (late []overlong) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := u.waiting
	u.waiting = s.waiting(counts, paused, now)
	for k, w := range u.waiting {
		b, ok := before[k]
		if !ok || w.busy || w.ready < b.ready || w.ended > b.ended {
			continue
		}
		w.since = b.since
		u.waiting[k] = w
		if now.Sub(w.since) >= unservedAfter {
			late = append(late, overlong{k, w.ready, s.queues[k.queue] > 0})
			s.warned[k] = true
			delete(u.waiting, k)
		}
	}
	return late
}

// waiting returns the lanes with ready jobs that nobody in this process works
// for, but for those in paused queues and those that were warned of.
func (s *Lanes) waiting(counts []storage.Count, paused []string, now time.Time) map[lane]waiting {
	all := map[lane]waiting{}
	for _, c := range counts {
		k := lane{c.Queue, c.Kind}
		if c.State == storage.Ready && s.served[k] == 0 && !s.warned[k] && !slices.Contains(paused, c.Queue) {
			all[k] = waiting{since: now, ready: c.N}
		}
	}
	if len(all) == 0 {
		return nil
	}
	busy := map[string]bool{} // queues
	for _, c := range counts {
		k := lane{c.Queue, c.Kind}
		w, ok := all[k]
		switch c.State {
		case storage.Running:
			busy[c.Queue], w.busy = true, true
		case storage.Done, storage.Cancelled, storage.Dead:
			w.ended += c.N
		}
		if ok {
			all[k] = w
		}
	}
	for k, w := range all {
		// What runs in a queue of our own may be our own: it is no sign of others.
		if busy[k.queue] && s.queues[k.queue] == 0 {
			w.busy = true
			all[k] = w
		}
	}
	return all
}
