package engine

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// urgentNow returns how many urgent jobs to lease now: as many as can start at once.
// None are asked for unless there may be one.
func (l *loop) urgentNow() int {
	if !l.sources.urgent || !l.shutdown.working() {
		return 0
	}
	n := l.runners.free()
	for _, a := range l.ready.waiting {
		if a.job.Urgent {
			n--
		}
	}
	return max(n, 0)
}

// askUrgent makes an exchange ask for n urgent jobs of all lanes of the engine.
func (l *loop) askUrgent(x *exchange, n int) {
	if n == 0 {
		return
	}
	x.Urgent, l.sources.urgent = n, false
	if len(x.Wants) == 0 {
		for _, s := range l.sources.all {
			x.Wants = append(x.Wants, s.Want)
		}
	}
}

// hurried takes the urgent jobs that an exchange has brought. There may be more if
// there were as many as it asked for, or if it has failed.
func (l *loop) hurried(x *exchange, jobs []storage.Leased, failed bool) {
	n := 0
	for i := range jobs {
		if jobs[i].Urgent {
			n++
		}
	}
	if x.Urgent > 0 && (failed || n == x.Urgent) {
		l.sources.urgent = true
	}
}

// admitUrgent puts an urgent job before those that wait for a runner. Neither a hold,
// a gate nor a limit stops it.
func (l *loop) admitUrgent(a *attempt, sent time.Time) {
	l.cfg.Logger.Info("errand: urgent job starts, past holds, gates and limits", jobAttrs(a.job)...)
	l.leases.hold(a, sent, l.cfg.LeaseDuration)
	l.ready.first(a)
}

// first puts an attempt before those that wait for a runner, but for urgent ones.
func (r *ready) first(a *attempt) {
	at := slices.IndexFunc(r.waiting, func(w *attempt) bool { return !w.job.Urgent })
	if at < 0 {
		at = len(r.waiting)
	}
	r.waiting = slices.Insert(r.waiting, at, a)
}
