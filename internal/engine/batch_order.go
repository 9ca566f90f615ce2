package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// ErrUntouched is the error of a job that goes back as if its handler had not been called: one before
// it in its group has not ended, or its handler passes jobs on and has not got to it.
var ErrUntouched = errors.New("errand: the job was not touched")

// Passed returns an error of a job that is to be dead and keeps back none of its group: a dead job passes in its
// queue.
func Passed(err error) error { return &passedError{err} }

type passedError struct{ error }

func (e *passedError) Unwrap() error { return e.error }

// inOrder reports whether attempts of one group were leased together, so that none of them
// may overtake another.
func inOrder(all []*attempt) bool {
	return slices.ContainsFunc(all, func(a *attempt) bool { return a.job.Behind > 0 })
}

// InOrder reports whether no item of a call may be done before another that comes earlier.
func InOrder(items []Item) bool {
	return slices.ContainsFunc(items, func(i Item) bool { return i.Job.Behind > 0 })
}

// follows reports whether a was brought by the attempts that are to run in one call, of
// which last is the last. Else those have gone back, or the first runs alone.
func (a *attempt) follows(last []*attempt) bool {
	if len(last) == 0 {
		return false
	}
	o := last[len(last)-1].job
	return o.Queue == a.job.Queue && o.Group == a.job.Group && o.Behind == a.job.Behind-1
}

// admitInOrder makes one batch of attempts that were leased together, as far as it goes. The
// others go back.
func (l *loop) admitInOrder(all []*attempt, sent time.Time) {
	n := all[0].from.batch.fit(all)
	for _, a := range all[n:] {
		l.giveBack(a, time.Time{})
	}
	l.admitBatch(&batch{sizing: all[0].from.sizing}, all[:n:n], sent)
}

// giveBackBehind is for an attempt that has lost its lease while its batch waits for a
// runner. It gives back the attempts of the batch that come after it.
func (l *loop) giveBackBehind(a *attempt) {
	if a.batch == nil || !a.batch.ordered {
		return
	}
	for _, o := range a.members() {
		if o.job.Behind > a.job.Behind {
			l.unqueue(o)
			l.giveBack(o, time.Time{})
		}
	}
}

// heedOrder looks for the first attempt of all whose job will run again or is dead, and reports
// whether there is one. It returns those after it, as if the handler had not been called. Jobs
// that are done or cancelled stay so.
func (b *batch) heedOrder(all []*attempt) (behind bool) {
	if !b.ordered {
		return false
	}
	for _, a := range all {
		switch kind := a.verdict.kind; {
		case a.lost:
			behind = true
		case a.endedWell(), kind == verdictInterrupted && behind:
		case behind:
			a.verdict, a.startErr = verdict{kind: verdictUnstarted}, nil
		case a.verdict.passes && a.verdict.class == policy.Permanent:
		default:
			behind = true
		}
	}
	return behind
}

// endedWell reports whether the job will not run again, and is not dead.
func (a *attempt) endedWell() bool {
	return a.verdict.kind == verdictDone || a.verdict.kind == verdictCancelled
}

// brought reports whether x has leased a job of s, so that there may be others.
func (s *source) brought(jobs []storage.Leased) bool {
	return s.batch != nil && s.batch.ByGroup && slices.ContainsFunc(jobs, func(j storage.Leased) bool { return s.Matches(j.Queue, j.Kind) })
}
