package engine

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// leastShut is for how long a gate of a lane must have been closed for a kick. It
	// is longer than a gate takes that asks the network for the first time.
	leastShut = 15 * time.Second
	// mostKicked is how many jobs of a lane one step of a kick makes ready at most.
	mostKicked = 250
)

// kick makes the jobs of a lane ready, in steps, that wait since their last attempt
// failed. The first step has twice as many as can run, and each further one waits
// until about as many attempts have ended: so a link that fails again soon costs a
// long backlog no writes, and few of its retries.
type kick struct {
	lane  storage.Lane
	from  *source
	sel   storage.Selection // of the next step
	began time.Time
	sent  time.Time // of the last step; zero: there was none
	n     int       // jobs of the last step
	all   int       // of all steps
	// Of the attempts that were leased since sent: how many have ended, how many of
	// these well, and how many could not reach the other side.
	ended, well, away int
}

// kicks are those under way.
type kicks struct {
	all []*kick
	*chore
}

// kick begins to kick a lane, or begins anew. It is for a lane that was shut as a
// whole and is open again. If the last step of a kick before has helped nobody, one
// job comes first.
func (l *loop) kick(lane storage.Lane) {
	s := l.sources.find(lane)
	if s == nil || l.cfg.settings(lane.Queue).NoKick || l.cfg.lacking("RunNow") != nil {
		return
	}
	n := min(2*l.atATime(lane), mostKicked)
	ks := &l.chores.kicks
	if i := slices.IndexFunc(ks.all, func(k *kick) bool { return k.lane == lane }); i >= 0 {
		if old := ks.all[i]; old.n > 0 && old.well <= old.away {
			n = 1
		}
		l.endKick(ks.all[i])
	}
	ks.all = append(ks.all, &kick{
		lane: lane, from: s, began: time.Now(), sel: storage.Selection{Filter: storage.Filter{Queue: lane.Queue, Kind: lane.Kind}, Limit: n},
	})
	ks.due = onMono(time.Now())
}

// may reports whether the next step of k may be made.
func (k *kick) may() bool {
	return k.from.seenOpen() && (k.n == 0 || k.ended >= k.n && k.well > k.away)
}

// goOn makes the chore due if there is a step that may be made.
func (ks *kicks) goOn(now time.Time) {
	if slices.ContainsFunc(ks.all, (*kick).may) {
		ks.due = onMono(now)
	}
}

// newKick makes the chore that makes the next step of a kick.
func (l *loop) newKick() *chore {
	ks := &l.chores.kicks
	ks.chore = &chore{}
	ks.prepare = func(now time.Time) task {
		i := slices.IndexFunc(ks.all, func(k *kick) bool { return k.may() && l.sources.gates.open(k.from) })
		if i < 0 {
			return nil
		}
		k := ks.all[i]
		if k.n > 0 && 2*k.well >= k.n {
			k.sel.Limit = min(2*k.sel.Limit, mostKicked)
		}
		first := k.sent.IsZero()
		k.sent, k.n, k.ended, k.well, k.away = now, 0, 0, 0, 0
		sel, clock := k.sel, l.clock()
		return func(ctx context.Context) (func(time.Time), error) {
			if first { // to select among all jobs that wait costs more than to count them
				counts, err := l.cfg.Store.Counts(ctx)
				if err == nil && (isPrefix(k.lane.Queue) || k.lane.Kind == storage.AnyKind) {
					return func(time.Time) { l.kickLanes(k, counts) }, nil
				}
				if err != nil || !slices.ContainsFunc(counts, func(c storage.Count) bool {
					return c.State == storage.Scheduled && c.Queue == k.lane.Queue && c.Kind == k.lane.Kind
				}) {
					return func(now time.Time) { l.kicked(k, storage.Step{}, now) }, err
				}
			}
			step, err := l.cfg.Store.RunNow(ctx, clock, sel, storage.Waiting{Failed: true})
			return func(now time.Time) { l.kicked(k, step, now) }, err
		}
	}
	return ks.chore
}

// kicked takes the answer to a step.
func (l *loop) kicked(k *kick, step storage.Step, now time.Time) {
	k.n, k.all = step.N, k.all+step.N
	k.sel.After, k.sel.Through = step.Next, step.Through
	if step.Next == (storage.Position{}) {
		l.endKick(k)
		others := slices.ContainsFunc(l.chores.kicks.all, func(o *kick) bool { return o.from == k.from })
		if !others && k.from.failedAt.Before(k.began) {
			k.from.failedAt = time.Time{}
		}
	}
	l.chores.kicks.goOn(now)
}

// endKick forgets k. What it has not made ready stays due when it was.
func (l *loop) endKick(k *kick) {
	l.chores.kicks.all = slices.DeleteFunc(l.chores.kicks.all, func(o *kick) bool { return o == k })
	if k.all > 0 {
		l.cfg.Logger.Info("errand: jobs that waited for a retry were made ready", "queue", k.lane.Queue, "kind", k.lane.Kind, "jobs", k.all)
		k.all = 0
	}
}

// countForKick takes the outcome of an attempt that was called. Attempts that were
// leased before the last step of a kick tell nothing about it.
func (l *loop) countForKick(a *attempt, o storage.Outcome) {
	failed := o == storage.OutcomeRetry || o == storage.OutcomeUnavailable
	if failed && len(a.from.bounds) > 0 {
		l.sources.of(a.job).failedAt = time.Now() // a.from may be a source no more
	}
	ks := &l.chores.kicks
	for _, k := range ks.all {
		switch {
		case k.lane.Queue != a.job.Queue || k.lane.Kind != a.job.Kind, k.sent.IsZero() || a.leased.Before(k.sent):
			continue
		case o == storage.OutcomeReturned, o == storage.OutcomeInterrupted:
			continue
		case o == storage.OutcomeDone:
			k.well++
		case o == storage.OutcomeUnavailable:
			k.away++
		}
		k.ended++
		ks.goOn(time.Now())
	}
}

// turned takes notice that a gate was found open or closed, and was not before. It
// kicks the lanes for which it was the last to open.
func (l *loop) turned(g *gate) {
	now := time.Now()
	for _, s := range l.sources.all {
		switch {
		case !slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.gate == g }):
		case !s.seenOpen():
			if s.shutAt.IsZero() {
				s.shutAt = now
			}
		case now.Sub(s.shutAt) < leastShut:
			s.shutAt = time.Time{}
		default:
			s.shutAt = time.Time{}
			for _, queue := range s.Queues {
				for _, kind := range s.Kinds {
					l.kick(storage.Lane{Queue: queue, Kind: kind})
				}
			}
		}
	}
	l.chores.kicks.goOn(now)
	l.lookAtLanes(now)
}

// seenOpen reports whether all gates of s were open when they were asked last. One
// that was not asked counts as open.
func (s *source) seenOpen() bool {
	return !slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.gate != nil && !b.gate.open })
}

// waitsForKick reports whether jobs of a queue behind the gates of s, which are
// scheduled, may be kicked as the gates open. If so the gates have to be asked.
func (gs *gates) waitsForKick(s *source, queue string) bool {
	return !s.failedAt.IsZero() && !gs.cfg.settings(queue).NoKick && slices.ContainsFunc(s.bounds, func(b *bound) bool {
		return b.gate != nil && (!b.gate.open || b.gate.at.IsZero() && b.gate.changed == nil)
	})
}
