package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// job is what the model knows of one. Calls that are under way together are
// told in any order, so nothing here depends on it: what came first is told by
// tokens, which rise, and by when calls began and ended.
type job struct {
	storage.NewJob
	id         storage.ID
	n          int // args
	begin, end int64
	now        time.Time
	leases     []*lease // by token
	cancels    []change
	redrives   []change // by ID
	purged     bool
	mayRedrive int  // calls by filter
	mayPurge   bool // a call by filter
}

// change is a call that was about a job.
type change struct {
	begin, end int64
	state      storage.State // the answer of Cancel
}

// lease is one holding of a job.
type lease struct {
	storage.Leased
	life       *life
	begin, end int64
	now        time.Time          // on the queue's clock, at most
	taken      *storage.Reclaimed // from another holder

	noted, notedEnd bool // by Started, by Ended or Stopping
	notedAt         time.Time
	called          bool
	got             *verdict

	finish           *storage.Finish
	finished         time.Time
	keep             time.Duration // as the exchange said
	finBegin, finEnd int64
	finLosses        int
	judged           bool
}

// tick returns the next moment of an order that is finer than time.
func (w *world) tick() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next()
}

func (w *world) next() int64 {
	w.seq++
	return w.seq
}

// fault notes what must not be.
func (w *world) fault(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.faults, text) && len(w.faults) < 10 {
		w.faults = append(w.faults, text)
	}
}

// tell has the model take something down, unless that was in a life that is
// over: then it was done to a file that nobody uses any more.
func (w *world) tell(l *life, f func(end int64)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !l.over() {
		f(w.next())
	}
}

func (w *world) enqueued(l *life, begin int64, now time.Time, jobs []storage.NewJob, out []storage.Enqueued) {
	w.tell(l, func(end int64) {
		if len(out) != len(jobs) {
			w.fault("%d answers to %d jobs", len(out), len(jobs))
			return
		}
		for i, e := range out {
			w.add(begin, end, now, jobs[i], e)
		}
	})
}

func (w *world) add(begin, end int64, now time.Time, n storage.NewJob, e storage.Enqueued) {
	if e.Duplicate {
		w.duplicates = append(w.duplicates, duplicate{begin, n.Unique, e.ID})
		return
	}
	if old := w.jobs[e.ID.Key()]; old != nil {
		w.fault("key %d of a job was used again", e.ID.Key())
		return
	}
	j := &job{NewJob: n, id: e.ID, n: number(n.Args), begin: begin, end: end, now: now}
	w.jobs[e.ID.Key()] = j
	w.byBirth = append(w.byBirth, j)
	w.wrote(begin, now)
	for _, l := range w.orphans[e.ID.Key()] {
		w.addLease(l)
	}
	delete(w.orphans, e.ID.Key())
}

// duplicate is a job that was not inserted. The holder of its key may be told
// later than it.
type duplicate struct {
	begin  int64
	unique string
	of     storage.ID
}

func (w *world) check(d duplicate) {
	holder := w.jobs[d.of.Key()]
	switch {
	case holder == nil || holder.id != d.of:
		w.fault("duplicate of %v, which there is not", d.of)
	case d.unique == "" || holder.Unique != d.unique:
		w.fault("job %d has key %q and is no duplicate of one with %q", d.of.Key(), holder.Unique, d.unique)
	case holder.UniqueScope == storage.UniqueLive && w.endedBefore(holder, d.begin):
		w.fault("key %q is held by job %d, which has ended", d.unique, d.of.Key())
	}
}

// endedBefore reports whether a job had ended for certain before a call began.
func (w *world) endedBefore(j *job, begin int64) bool {
	if len(j.redrives) > 0 || j.mayRedrive > 0 {
		return false
	}
	for _, c := range j.cancels {
		if c.state != storage.Running && c.end < begin {
			return true
		}
	}
	if len(j.leases) == 0 {
		return false
	}
	l := j.leases[len(j.leases)-1]
	return l.finish != nil && l.finEnd < begin && l.finish.Effect(false).State != storage.Ready
}

// addLease takes down a lease, of a job whose enqueuing may not be told yet.
func (w *world) addLease(l *lease) {
	j := w.jobs[l.Key]
	if j == nil {
		w.orphans[l.Key] = append(w.orphans[l.Key], l)
	} else {
		at, found := slices.BinarySearchFunc(j.leases, l.Token, func(l *lease, t int64) int { return int(l.Token - t) })
		if found && j.leases[at] != l {
			w.fault("token %d was given twice", l.Token)
			return
		}
		j.leases = slices.Insert(j.leases, at, l)
		if j.id != l.ID || j.n != number(l.Args) || j.Priority != l.Priority || j.Kind != l.Kind {
			w.fault("job %d comes as %+v", l.Key, l.Leased)
		}
	}
	if other := w.tokens[l.Token]; other != nil && other != l {
		w.fault("token %d is on jobs %d and %d", l.Token, other.Key, l.Key)
	}
	w.tokens[l.Token] = l
}

func (w *world) handedOver(l *life, jobs []storage.Leased) {
	w.tell(l, func(end int64) {
		for _, leased := range jobs {
			w.newLease(&lease{Leased: leased, life: l, begin: end, end: end})
		}
	})
}

func (w *world) newLease(l *lease) {
	// The time of the call does not count: one that was kept up may lease what
	// another has made ready meanwhile.
	l.now = w.latest()
	w.addLease(l)
	if p := w.pauses[l.Queue]; l.taken == nil && p.paused && !l.Urgent && p.end < l.begin {
		w.fault("job %d was leased from queue %s, which is paused", l.Key, l.Queue)
	}
}

func (w *world) exchanged(l *life, begin int64, now time.Time, x *storage.Exchange, out *storage.ExchangeResult) {
	w.tell(l, func(end int64) {
		changed := len(out.Leased) > 0 || slices.ContainsFunc(out.Extended, func(r storage.ItemResult) bool { return r != storage.Lost })
		for i, r := range out.Finished {
			changed = changed || r != storage.Lost && w.remains(&x.Finish[i], x.Retention)
		}
		if changed {
			w.wrote(begin, now)
		}
		for i, r := range out.Extended {
			if r != storage.Applied && r != storage.Cancelling {
				w.fault("the lease on job %d was lost (%d) in a life without another holder", x.Extend[i].Key, r)
			}
		}
		for i, r := range out.Finished {
			f := x.Finish[i]
			ls := w.tokens[f.Token]
			switch {
			case r != storage.Applied:
				w.fault("outcome %d of job %d was refused (%d) in a life without another holder", f.Outcome, f.Key, r)
			case ls == nil || ls.Key != f.Key:
				w.fault("token %d of job %d is of no lease, and finished it", f.Token, f.Key)
			case ls.finish != nil:
				w.fault("token %d of job %d has finished twice", f.Token, f.Key)
			case ls.life != l:
				w.fault("token %d of job %d is of an earlier life, and finished it", f.Token, f.Key)
			default:
				ls.finish, ls.finished, ls.finBegin, ls.finEnd, ls.finLosses = &f, now, begin, end, w.clock.losses
				ls.keep = x.Retention.Of(ls.Queue, ls.Kind)
			}
		}
		for _, leased := range out.Leased {
			w.newLease(&lease{Leased: leased, life: l, begin: begin, end: end})
		}
		if len(out.Leased) > x.Wanted()+x.Urgent {
			w.fault("%d jobs were leased, and %d wanted", len(out.Leased), x.Wanted()+x.Urgent)
		}
	})
}

// remains reports whether an outcome leaves a job behind, for sure: the database need not
// know the time of one that deletes it. A job that is ready again may be cancelled and gone,
// though its cancellation is not known here yet.
func (w *world) remains(f *storage.Finish, keep storage.Retention) bool {
	ls := w.tokens[f.Token]
	if ls == nil || keep.Of(ls.Queue, ls.Kind) > 0 {
		return true
	}
	return f.Effect(false).State == storage.Dead
}

func (w *world) reclaimed(l *life, begin int64, out []storage.Reclaimed) {
	w.tell(l, func(end int64) {
		for i := range out {
			r := out[i]
			w.newLease(&lease{Leased: r.Leased, life: l, begin: begin, end: end, taken: &r})
		}
	})
}

func (w *world) noted(l *life, of storage.Lease, now time.Time) {
	w.tell(l, func(int64) {
		ls := w.tokens[of.Token]
		if ls == nil || ls.Key != of.Key || ls.life != l || ls.noted && (ls.called || !ls.notedEnd) || ls.finish != nil {
			w.fault("a handler is to start on token %d of job %d, which is not held or was started", of.Token, of.Key)
			return
		}
		ls.noted, ls.notedEnd, ls.notedAt = true, false, now
		due := ls.DueAt.Add(-time.Microsecond)
		was := slices.ContainsFunc(w.peaks, func(s step) bool { return !s.now.Before(due) })
		if now.Before(due) && !was && w.clock.floor.Before(due) {
			w.fault("job %d starts %v before it is due", of.Key, ls.DueAt.Sub(now))
		}
	})
}

// notedStop counts as an end, but not of what has not begun.
func (w *world) notedStop(l *life, of storage.Lease) {
	w.tell(l, func(int64) {
		if ls := w.tokens[of.Token]; ls != nil {
			ls.notedEnd = ls.noted
		}
	})
}

func (w *world) notedEnd(l *life, of storage.Lease) {
	w.tell(l, func(int64) {
		if ls := w.tokens[of.Token]; ls != nil {
			ls.notedEnd = true
		}
	})
}

func (w *world) cancelled(l *life, begin int64, id storage.ID, state storage.State) {
	w.tell(l, func(end int64) {
		if j := w.jobs[id.Key()]; j != nil {
			j.cancels = append(j.cancels, change{begin, end, state})
		}
	})
}

// notFound notes a job that somebody did not find. Who has deleted it may be
// told later, see [job].
func (w *world) notFound(l *life, _ int64, id storage.ID, who string) {
	w.tell(l, func(int64) {
		if j := w.jobs[id.Key()]; j != nil && j.id == id {
			w.missed = append(w.missed, missed{j, who})
		}
	})
}

type missed struct {
	job *job
	by  string
}

// resuming notes that a pause may be over from now on.
func (w *world) resuming(l *life, queue string) {
	w.tell(l, func(int64) {
		p := w.pauses[queue]
		p.paused, p.open = false, p.open+1
		w.pauses[queue] = p
	})
}

func (w *world) paused(l *life, begin int64, queue string, paused bool) {
	w.tell(l, func(end int64) {
		p := w.pauses[queue]
		if paused {
			p.paused, p.end = p.open == 0 && begin > p.resumed, end
		} else {
			p.paused, p.resumed, p.open = false, end, p.open-1
		}
		w.pauses[queue] = p
	})
}

// pauseState is what is known for certain of a queue.
type pauseState struct {
	paused  bool
	end     int64 // of the call that paused it
	open    int   // calls that resume it and are under way
	resumed int64 // end of the last of them
}

func (w *world) redriven(l *life, begin int64, sel storage.Selection, queue string, out storage.Step) {
	w.tell(l, func(end int64) {
		if len(sel.IDs) == 0 {
			for _, j := range w.jobs {
				j.mayRedrive++
			}
			return
		}
		if out.N != len(sel.IDs)-len(out.Duplicates)-len(out.NotFound) {
			w.fault("redrive of %d: %+v", len(sel.IDs), out)
		}
		for _, id := range sel.IDs {
			if j := w.jobs[id.Key()]; j != nil && !slices.Contains(out.Duplicates, id) && !slices.Contains(out.NotFound, id) {
				j.redrives = append(j.redrives, change{begin: begin, end: end})
			}
		}
	})
}

// hurry is a call that makes jobs ready before they are due.
type hurry struct {
	ids        []storage.ID // nil: all
	first      bool         // also those that have not run
	now        time.Time
	begin, end int64
}

func (w *world) ranNow(l *life, begin int64, now time.Time, sel storage.Selection, first bool, out storage.Step) {
	w.tell(l, func(end int64) {
		if len(sel.IDs) > 0 && out.N > len(sel.IDs)-len(out.NotFound) {
			w.fault("run now of %d: %+v", len(sel.IDs), out)
		}
		w.hurries = append(w.hurries, hurry{ids: slices.Clone(sel.IDs), first: first || len(sel.IDs) > 0, now: now, begin: begin, end: end})
	})
}

// hurried returns when a call may have made a job due that was to be due at a time:
// a call that overlaps the time from what set it, to the lease.
func (w *world) hurried(j *job, set due, attempt int, l *lease) time.Time {
	at := set.at
	for _, h := range w.hurries {
		if h.end > set.begin && h.begin < l.end && (h.first || attempt > 1) && h.now.Before(at) &&
			(len(h.ids) == 0 || slices.Contains(h.ids, j.id)) {
			at = h.now
		}
	}
	return at
}

func (w *world) purged(l *life, _ int64, sel storage.Selection, out storage.Step) {
	w.tell(l, func(int64) {
		if len(sel.IDs) == 0 {
			for _, j := range w.jobs {
				j.mayPurge = true
			}
			return
		}
		for _, id := range sel.IDs {
			if j := w.jobs[id.Key()]; j != nil && !slices.Contains(out.NotFound, id) && !slices.Contains(out.Live, id) {
				j.purged = true
			}
		}
	})
}

func (w *world) purgedFinished(l *life, now time.Time) {
	w.tell(l, func(int64) {
		if now.After(w.purgedTo) {
			w.purgedTo = now
		}
	})
}

func (w *world) stepped(l *life, begin int64, now time.Time) {
	w.tell(l, func(end int64) {
		w.stepsBack = append(w.stepsBack, step{begin, end, now})
		w.clock.stepEnd = end
		if now.Before(w.clock.floor) {
			w.clock.floor = now
		}
	})
}

// step is a pass of StepClock, or a part of one.
type step struct {
	begin, end int64
	now        time.Time
}

// calledHandler checks that a handler may be called, and returns its lease.
func (w *world) calledHandler(l *life, id storage.ID, c storage.Counters, n int, d deed) (found *lease) {
	w.tell(l, func(int64) {
		j := w.jobs[id.Key()]
		if j == nil && w.orphans[id.Key()] == nil || j != nil && j.n != n {
			w.fault("handler called with job %d, args %d, of which nothing is known", id.Key(), n)
			return
		}
		leases := w.orphans[id.Key()]
		if j != nil {
			leases = j.leases
		}
		if l.running[id.Key()]++; l.running[id.Key()] > 1 {
			w.fault("job %d runs %d times at once", id.Key(), l.running[id.Key()])
		}
		if i := slices.IndexFunc(leases, func(ls *lease) bool {
			return ls.life == l && ls.noted && !ls.called && ls.finish == nil
		}); i >= 0 {
			found = leases[i]
			found.called = true
		}
		if found == nil || found.Counters != c {
			w.fault("handler called with job %d, %+v, of no lease that was noted", id.Key(), c)
			return
		}
		w.ran++
		w.note("  job %d, attempt %d: %v %v %v", id.Key(), c.Attempt, d.manner, d.takes, d.after)
	})
	return found
}

func (w *world) handlerReturned(l *life, ls *lease, v verdict) {
	w.tell(l, func(int64) {
		if ls == nil {
			return
		}
		l.running[ls.Key]--
		v.losses = w.clock.losses
		ls.got = &v
	})
}
