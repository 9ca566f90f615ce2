package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// A call of more than one job that fails for good tells nothing of a single one: any of them
// may be to blame, or how many they are. So its jobs are called again under the same leases,
// in halves, down to one. A batch makes one call at a time, which has the place of the first
// at the runners and in the bounds.

// part is attempts that are called together.
type part struct {
	all []*attempt
	of  *refusal // nil: of no call that was made before
}

// refusal is a call that has failed for good and is made again in parts.
type refusal struct {
	of     *refusal // nil: that was no part itself
	jobs   int
	left   int  // parts that have not ended
	passed int  // jobs of the largest part that has passed
	failed bool // a part has not passed
}

const callRefused = "errand: a call of many jobs failed for good, they are called again in parts"

// refused returns the attempts of a call that has failed for good which are to be called again.
// Those that cannot be are interrupted.
func (l *loop) refused(b *batch) (again []*attempt) {
	shared := b.count(func(a *attempt) bool { return a.shared })
	if shared < 2 || b.all[0].from.batch.Whole {
		return nil
	}
	for _, a := range b.all {
		refused := a.refused()
		goesOn := l.shutdown.working() && !a.lost && a.cause == nil && a.placeErr == nil
		switch {
		case a.endedWell():
		case goesOn && (refused || b.ordered && len(again) > 0):
			again = append(again, a)
			continue
		case refused && errors.Is(a.placeErr, storage.ErrCorrupt): // perhaps of this job alone: the policy bounds the tries
			a.verdict.class = policy.Retryable
			a.verdict.text = fmt.Sprintf("%s (and it was not called again: its checkpoint could not be read: %v)", a.verdict.text, a.placeErr)
		case refused && a.placeErr != nil:
			a.verdict = verdict{kind: verdictInterrupted, text: fmt.Sprintf("its checkpoint could not be read: %v", a.placeErr)}
		case refused:
			a.verdict = verdict{kind: verdictInterrupted, text: a.verdict.text}
		}
		if b.ordered && !a.endedWell() { // which keeps back those that follow
			break
		}
	}
	if len(again) > 0 && b.of == nil {
		job, text := again[0].job, again[0].verdict.text
		l.reports.limit(l.reports.lineOf(slog.LevelWarn, callRefused, job.Kind), text, func() []any {
			return withError([]any{"queue", job.Queue, "kind", job.Kind, "jobs", shared}, text)
		})
	}
	return again
}

// count returns how many attempts of the next call, or the last one, are such.
func (b *batch) count(such func(*attempt) bool) (n int) {
	for _, a := range b.all {
		if such(a) {
			n++
		}
	}
	return n
}

// refused reports whether the call of an attempt has failed for good, and the job with it.
func (a *attempt) refused() bool {
	return a.shared && a.verdict.kind == verdictFailed && a.verdict.class == policy.Permanent
}

// goOn goes on with the next call of a batch, if there is one, after a call of which these are to
// be called again.
func (l *loop) goOn(b *batch, again []*attempt) {
	called := b.count(func(a *attempt) bool { return a.shared || a.verdict.kind == verdictDone })
	if len(again) == 0 {
		b.over(b.done, called)
	} else {
		for i, a := range again {
			again[i] = l.anew(a)
		}
		half := (len(again) + 1) / 2
		r := &refusal{of: b.of, jobs: called, left: 2}
		b.later = append(b.later, part{again[half:], r}, part{again[:half:half], r})
	}
	b.part = part{}
	if !l.shutdown.working() {
		l.giveBackLater(b)
	}
	if b.next() {
		l.ready.first(b.all[0])
		l.giveBackHeld()
	}
}

// anew returns an attempt for another call of the handler, in the place of one that has ended. It
// is the same attempt for all others: nothing is paid for again, or told.
func (l *loop) anew(a *attempt) *attempt {
	n := &attempt{cfg: a.cfg, job: a.job, handler: a.handler, holding: a.holding}
	n.again = true
	n.from, n.batch, n.budget, n.cost = a.from, a.batch, a.budget, a.cost
	n.loop, n.own.of = l, n
	n.began, n.wait, n.open = a.began, a.wait, a.open
	if p := a.own.said(); p != nil {
		n.own.keeps = &keeps{progress: p}
	}
	if a.open {
		n.earlier = a
	}
	if a.place != nil {
		n.job.Checkpoint = a.place
	}
	if a.noteErr != nil {
		l.cfg.Logger.Error("errand: end of a handler could not be noted", l.attrs(a, "error", a.noteErr)...)
	}
	if a.stuck {
		l.cfg.Logger.Warn("errand: stuck handler ended", l.attrs(a)...)
	}
	l.leases.held[a.slot] = n
	a.next = n
	return n
}

// readPlaces reads the checkpoints that attempts may have kept in a call that has failed for good.
// A stop ends it, since none of them is called again then.
func (r *runners) readPlaces(all []*attempt) {
	for i, a := range all {
		if !a.refused() || !a.own.placed.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.LeaseDuration/3)
		var wait sync.WaitGroup
		wait.Go(func() {
			select {
			case <-r.told:
			case <-r.stop:
			case <-ctx.Done():
			}
			cancel()
		})
		for _, o := range all[i:] {
			o.readPlace(ctx)
		}
		cancel()
		wait.Wait()
		return
	}
}

// readPlace is readPlaces for one attempt.
func (a *attempt) readPlace(ctx context.Context) {
	if !a.refused() || !a.own.placed.Load() {
		return
	}
	var r storage.Record
	if r, a.placeErr = a.cfg.Store.Job(ctx, a.job.ID); a.placeErr == nil {
		a.place = r.Checkpoint
	}
}

// next makes the next part of a batch that of the next call, unless there is one, and reports
// whether there is one then.
func (b *batch) next() bool {
	for len(b.all) == 0 {
		b.over(true, 0) // all of its jobs have gone
		last := len(b.later) - 1
		if last < 0 {
			b.part = part{}
			return false
		}
		b.part, b.later = b.later[last], b.later[:last]
	}
	return true
}

// cut leaves no more to the next call than it may have.
func (b *batch) cut() {
	n := b.takes(len(b.all))
	if n == len(b.all) {
		return
	}
	if b.of != nil {
		b.of.left++
	}
	b.later = append(b.later, part{b.all[n:], b.of})
	b.all = b.all[:n:n]
}

// drop takes an attempt out of a batch.
func (b *batch) drop(a *attempt) {
	is := func(o *attempt) bool { return o == a }
	if slices.ContainsFunc(b.all, is) {
		b.all = slices.DeleteFunc(b.all, is)
		return
	}
	for i := range b.later {
		b.later[i].all = slices.DeleteFunc(b.later[i].all, is)
	}
}

// giveBackLater gives back the jobs of a batch that are not in the call which runs.
func (l *loop) giveBackLater(b *batch) {
	for _, p := range slices.Backward(b.later) {
		for _, a := range p.all {
			l.leases.release(a)
			l.giveBack(a, time.Time{})
		}
	}
	b.later = nil
}

// giveBackParts gives back the jobs that wait for a call to end, if back reports true of them.
func (l *loop) giveBackParts(back func(*attempt) bool) {
	for _, a := range slices.Clone(l.leases.held) {
		if a.running && a.batch != nil && len(a.batch.later) > 0 && back(a) {
			l.giveBackLater(a.batch)
		}
	}
}

const (
	// sizeFor is for how long it is remembered how many jobs a call may have.
	sizeFor = time.Hour
	// sizeTo is to which part of it that is found out.
	sizeTo = 20
)

// sizing is what is known of how many jobs a call of a source may have: a call that failed for
// good, and of which all parts passed, had too many.
type sizing struct {
	passed, refused int       // jobs of the largest call that passed, and of the smallest that did not
	at              time.Time // when the last one did not; zero: none is known
	trying          *batch    // the last one with a call of a size between
}

// known reports whether anything is.
func (z *sizing) known() bool { return within(z.at, sizeFor, time.Now()) }

// try returns the next size to try, or zero.
func (z *sizing) try(b *batch) int {
	gap := z.refused - z.passed
	if !z.known() || gap < 2 || gap*sizeTo <= z.refused || z.trying != nil && z.trying != b && z.trying.held > 0 {
		return 0
	}
	return z.passed + (gap+1)/2
}

// more returns how many jobs more than others a call has that tries a size.
func (z *sizing) more() int { return max(z.try(nil)-z.passed, 0) }

// takes returns how many of n jobs the next call of a batch takes.
func (b *batch) takes(n int) int {
	z := b.sizing
	if !z.known() || n <= z.passed {
		return n
	}
	if try := z.try(b); try > 0 {
		z.trying = b
		return min(n, try)
	}
	return evenly(n, z.passed)
}

// over notes that a part of n jobs has ended. It has passed unless its call, or that of a part of
// it, has failed.
func (b *batch) over(passed bool, n int) {
	z := b.sizing
	if passed && z.known() && n > z.passed && n < z.refused {
		z.passed = n
	}
	for r := b.of; r != nil; r = r.of {
		r.left--
		r.failed = r.failed || !passed
		if passed {
			r.passed = max(r.passed, n)
		}
		if r.left > 0 {
			return
		}
		if passed, n = !r.failed, r.passed; passed && n > 0 {
			z.tooMany(r.jobs, n)
		}
	}
}

// tooMany notes that a call of so many jobs has failed for good, of which all parts passed. What was
// known before and does not go with it is forgotten: it is not their number alone then, and what
// has happened last counts.
func (z *sizing) tooMany(jobs, passed int) {
	if z.known() && passed < z.refused {
		jobs = min(jobs, z.refused)
		if z.passed < jobs {
			passed = max(passed, z.passed)
		}
	}
	z.passed, z.refused, z.at = passed, jobs, time.Now()
}
