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
	// unservedAfter is how long ready jobs wait before a warning: another process
	// may be restarting.
	unservedAfter = time.Minute
	unservedEvery = 20 * time.Second
)

// Lanes are the lanes that the engines of a process work for which share a store.
// The zero value is empty.
type Lanes struct {
	mu      sync.Mutex
	queues  map[string]int // how many engines work for a queue or prefix; has those that worked before
	engines []*Config      // those that work
	warned  map[storage.Lane]bool
	unused  map[string]bool // queues whose settings were said to be of no use

	prefixes []string // those of queues

	shown  shown
	meters meters
	digest digest
}

// serve adds n, 1 or -1, to the number of engines that work for the lanes of c.
func (s *Lanes) serve(c *Config, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queues == nil {
		s.queues, s.warned, s.unused = map[string]int{}, map[storage.Lane]bool{}, map[string]bool{}
	}
	if n > 0 {
		s.engines = append(s.engines, c)
	} else if i := slices.Index(s.engines, c); i >= 0 {
		s.engines = slices.Delete(s.engines, i, i+1)
	}
	for _, queue := range c.Queues {
		s.queues[queue] += n
		if isPrefix(queue) && !slices.Contains(s.prefixes, queue) {
			s.prefixes = append(s.prefixes, queue)
		}
	}
}

// workFor reports whether an engine works for a queue.
func (s *Lanes) workFor(queue string) bool {
	return s.queues[queue] > 0 || slices.ContainsFunc(s.prefixes, func(p string) bool {
		return s.queues[p] > 0 && storage.MatchQueue([]string{p}, queue)
	})
}

// serves reports whether an engine works for a lane.
func (s *Lanes) serves(lane storage.Lane) bool {
	return slices.ContainsFunc(s.engines, func(c *Config) bool { return c.takes(lane.Queue, lane.Kind) })
}

// unserved is the chore that looks for lanes that no engine of the process works
// for.
type unserved struct {
	chore
	last    time.Time // the counts were last asked for
	waiting map[storage.Lane]waiting
	// settings is when to look for settings of no use; zero: that was done. Other
	// workers of the process may be starting.
	settings time.Time
}

func (l *loop) newUnserved(now time.Time) *chore {
	u := &unserved{chore: chore{due: onMono(now)}, settings: now.Add(unservedAfter)}
	u.idle = func() bool { return l.cfg.Bulk }
	u.prepare = func(now time.Time) task {
		u.last = now
		clock := l.watch.seen // late by seconds at most
		return func(ctx context.Context) (func(time.Time), error) {
			counts, err := l.cfg.Store.Counts(ctx)
			if err != nil {
				return nil, err
			}
			holds, err := l.cfg.Store.Holds(ctx, clock)
			return func(now time.Time) { l.warnUnserved(counts, holds, now) }, err
		}
	}
	l.chores.unserved = u
	return &u.chore
}

// news makes the chore due: there are new jobs, perhaps of such a lane.
func (u *unserved) news(now time.Time) {
	u.due = onMono(sooner(u.due.mono, latest(now, u.last.Add(unservedEvery))))
}

// waiting is what is known of a lane that no engine of the process works for.
type waiting struct {
	since time.Time // there was no sign of another process working for the lane
	ready int64     // jobs
	ended int64     // jobs
	// busy: a job of the lane is running, or one of its queue if no engine of
	// the process works for the queue.
	busy bool
}

// warnUnserved warns once of each lane whose jobs wait for no visible reason: the
// name of the queue may be mistyped, or a handler may be missing.
func (l *loop) warnUnserved(counts []storage.Count, holds []storage.HoldState, now time.Time) {
	u := l.chores.unserved
	late := u.findOverlong(l.cfg.Lanes, counts, holds, now)
	l.tellUnused(counts, now)
	if len(u.waiting) > 0 {
		u.due = onMono(now.Add(unservedEvery))
	}
	slices.SortFunc(late, func(a, b overlong) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Kind, b.Kind))
	})
	for i, o := range late {
		attrs := []any{"queue", o.Queue, "kind", o.Kind, "jobs", o.jobs}
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

// tellUnused logs once for which queues there are settings in this process and no
// worker, unless they have jobs: the name may be mistyped. It is no warning, since
// processes that work for different queues may have all settings in common.
func (l *loop) tellUnused(counts []storage.Count, now time.Time) {
	u := l.chores.unserved
	if u.settings.IsZero() {
		return
	}
	due := !now.Before(u.settings)
	unused := l.cfg.Lanes.findUnused(l.cfg.Settings, counts, due)
	if !due {
		if len(unused) > 0 {
			u.due = onMono(u.settings)
		}
		return
	}
	u.settings = time.Time{}
	if len(unused) > 0 {
		named, own := unused[:min(len(unused), mostNamed)], l.cfg.Queues[:min(len(l.cfg.Queues), mostNamed)]
		l.cfg.Logger.Info("errand: settings are of queues that have no jobs and no worker here",
			"queues", strings.Join(named, " "), "total", len(unused), "worker", strings.Join(own, " "))
	}
}

// findUnused returns the queues with settings that no engine of the process has worked
// for and that have no jobs, sorted. Each is returned once if told.
func (s *Lanes) findUnused(settings map[string]QueueSettings, counts []storage.Count, told bool) (unused []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for queue := range settings {
		_, served := s.queues[queue]
		served = served || s.workFor(queue)
		if served || s.unused[queue] || slices.ContainsFunc(counts, func(c storage.Count) bool { return storage.MatchQueue([]string{queue}, c.Queue) }) {
			continue
		}
		unused = append(unused, queue)
		s.unused[queue] = told
	}
	slices.Sort(unused)
	return unused
}

// overlong is a lane that has waited for too long.
type overlong struct {
	storage.Lane
	jobs   int64
	served bool // an engine of the process works for the queue
}

// findOverlong returns the lanes that have waited for too long. Other processes
// may work for them: only a lane counts of which no job is running, none has
// ended and the ready ones do not get fewer.
func (u *unserved) findOverlong(s *Lanes, counts []storage.Count, holds []storage.HoldState, now time.Time) (late []overlong) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := u.waiting
	u.waiting = s.waiting(counts, holds, now)
	for k, w := range u.waiting {
		b, ok := before[k]
		if !ok || w.busy || w.ready < b.ready || w.ended > b.ended {
			continue
		}
		w.since = b.since
		u.waiting[k] = w
		if now.Sub(w.since) >= unservedAfter {
			late = append(late, overlong{k, w.ready, s.workFor(k.Queue)})
			s.warned[k] = true
			delete(u.waiting, k)
		}
	}
	return late
}

// waiting returns the lanes with ready jobs that no engine of the process works
// for, without lanes that are held and lanes that were warned of.
func (s *Lanes) waiting(counts []storage.Count, holds []storage.HoldState, now time.Time) map[storage.Lane]waiting {
	all := map[storage.Lane]waiting{}
	for _, c := range counts {
		k := storage.Lane{Queue: c.Queue, Kind: c.Kind}
		held := func(h storage.HoldState) bool { return h.Includes(c.Queue, c.Kind) }
		if c.State == storage.Ready && !s.serves(k) && !s.warned[k] && !slices.ContainsFunc(holds, held) {
			all[k] = waiting{since: now, ready: c.N}
		}
	}
	if len(all) == 0 {
		return nil
	}
	busy := map[string]bool{} // queues
	for _, c := range counts {
		k := storage.Lane{Queue: c.Queue, Kind: c.Kind}
		w, ok := all[k]
		switch c.State {
		case storage.Running:
			busy[c.Queue], w.busy = true, true
		case storage.Done, storage.Cancelled, storage.Expired, storage.Dead:
			w.ended += c.N
		}
		if ok {
			all[k] = w
		}
	}
	for k, w := range all {
		// In a queue that the process works for it may be the process's own job
		// that runs.
		if busy[k.Queue] && !s.workFor(k.Queue) {
			w.busy = true
			all[k] = w
		}
	}
	return all
}
