package storagetest

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// windows are until when a job may begin and go on.
type windows struct {
	startWithin, finishWithin time.Duration // as enqueued
	from                      time.Time     // what start and finish are counted from
	start, finish             time.Duration // zero: there is none
	dated                     bool          // from is a date
	open                      bool          // from is in doubt
}

// begin has the windows begin at now, for a job due then or later.
func (w *windows) begin(now, due time.Time, delayed, doubtful bool) {
	w.from, w.dated, w.open = ceil(now), false, doubtful
	wait := max(due.Sub(w.from), 0)
	if wait > 0 && !delayed {
		w.from, w.dated, w.open, wait = due, true, false, 0
	}
	w.start, w.finish = 0, 0
	if w.startWithin > 0 {
		w.start = wait + w.startWithin
	}
	if w.finishWithin > 0 {
		w.finish = wait + w.finishWithin
	}
}

// ends returns when the windows end.
func (w *windows) ends() (startBy, deadline time.Time) {
	if w.start > 0 {
		startBy = w.from.Add(w.start)
	}
	if w.finish > 0 {
		deadline = w.from.Add(w.finish)
	}
	return startBy, deadline
}

// over reports whether now is too late for j, and why.
func (j *job) over(now time.Time) (bool, storage.ExpiredJob) {
	if !j.live() || j.State == storage.Running {
		return false, storage.ExpiredJob{}
	}
	e := storage.ExpiredJob{ID: j.ID, Queue: j.Queue, Kind: j.Kind, Counters: j.Counters, CreatedAt: j.CreatedAt, State: storage.Dead}
	startBy, deadline := j.windows.ends()
	switch {
	case !startBy.IsZero() && !now.Before(startBy):
		if e.Reason, e.Error = storage.ReasonExpired, storage.ErrorExpired; j.OnExpire != storage.Dead {
			e.State, e.Reason = storage.Expired, ""
		}
		return true, e
	case !deadline.IsZero() && !now.Before(deadline):
		e.Reason, e.Error = storage.ReasonDeadline, storage.ErrorDeadline
		return true, e
	}
	return false, e
}

// expire ends j as e says.
func (m *Memory) expire(now time.Time, j *job, e storage.ExpiredJob, x *storage.Exchange) {
	j.endError = e.Error
	if e.State == storage.Expired {
		m.finish(now, j, storage.Expired, x.Retention)
	} else {
		lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
		j.Reason, j.endPolicy, j.cause = e.Reason, append([]byte{}, j.Policy...), m.causeOf(now, lane, e.Reason, e.Error)
		m.end(now, j, storage.Dead)
		m.noteEnd(now, lane, j, false, true)
		if x.Follow != nil {
			if then := x.Follow(&e); then != nil {
				m.enqueue(now, *then)
			}
		}
	}
}

// sweep ends jobs that wait and are too late, of those that match.
func (m *Memory) sweep(now time.Time, x *storage.Exchange, match func(*job) bool) (ended []storage.ExpiredJob) {
	late := func(j *job) bool {
		over, _ := j.over(now)
		return over && !j.windows.open && match(j)
	}
	all := m.liveWhere(late, byKey)
	for _, j := range all[:within(len(all), m.bounds.Expired)] {
		_, e := j.over(now)
		m.expire(now, j, e, x)
		ended = append(ended, e)
	}
	return ended
}

// nextEnd returns when the first job that waits is too late, of those that match, zero if
// none will be.
func (m *Memory) nextEnd(match func(*job) bool) (next time.Time) {
	for j := range m.live() {
		if !match(j) || j.windows.open || j.State == storage.Running {
			continue
		}
		startBy, deadline := j.windows.ends()
		for _, at := range []time.Time{startBy, deadline} {
			if next.IsZero() || !at.IsZero() && at.Before(next) {
				next = at
			}
		}
	}
	return next
}

// settleWindows has the windows in doubt begin now, of the jobs that match.
func (m *Memory) settleWindows(now time.Time, match func(*job) bool) {
	for j := range m.live() {
		if j.windows.open && match(j) {
			j.windows.from, j.windows.open = ceil(now), false
		}
	}
}

// sameExpired compares what both have ended.
func (h *history) sameExpired(real, model []storage.ExpiredJob) {
	h.Helper()
	for i := range real {
		real[i].ID, real[i].CreatedAt = h.byReal[real[i].ID], real[i].CreatedAt.UTC()
	}
	for _, all := range [][]storage.ExpiredJob{real, model} {
		slices.SortFunc(all, func(a, b storage.ExpiredJob) int { return int(a.ID.Key() - b.ID.Key()) })
	}
	if len(real)+len(model) > 0 {
		h.both("expired", real, model)
	}
}

func (j *job) finished() bool {
	return j.State == storage.Done || j.State == storage.Cancelled || j.State == storage.Expired
}
