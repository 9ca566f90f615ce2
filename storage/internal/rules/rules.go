package rules

import (
	"time"

	"github.com/errandq/errand/storage"
)

// Due returns a due time in microseconds, rounded up, so that nothing starts early.
func Due(t time.Time) int64 {
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}

// DueTime returns the state of a job that is enqueued now, when it is due, and how much of that
// is counted from now. A job that is due at once is due when it is enqueued.
func DueTime(now time.Time, j *storage.NewJob) (state storage.State, at, delay int64) {
	created := now.UnixMicro()
	switch {
	case j.Conflict != nil && j.Conflict.Mode == storage.Debounce:
		at = Due(now.Add(j.Conflict.Quiet))
		return storage.Scheduled, at, at - created
	case j.Delay > 0:
		at = Due(now.Add(j.Delay))
		return storage.Scheduled, at, at - created
	case j.DueAt.After(now):
		return storage.Scheduled, Due(j.DueAt), 0
	case !j.DueAt.IsZero():
		return storage.Ready, Due(j.DueAt), 0
	}
	return storage.Ready, created, 0
}

// Ceil returns d in microseconds, rounded up.
func Ceil(d time.Duration) int64 {
	us := d.Microseconds()
	if d > time.Duration(us)*time.Microsecond {
		us++
	}
	return us
}
