// Package rules decides what becomes of jobs, once for all stores. A store reads what a
// decision depends on, and locks it if others may write at the same time; a rule answers with
// what is to change, and the store writes that.
//
// It is pure: it knows no SQL, clock, random number or goroutine. What a [storage.Store]
// promises is said there; the comments here say how that comes about. Times are microseconds
// since 1970, as stores keep them.
package rules

import "time"

// Due returns a due time in microseconds, rounded up, so that nothing starts early.
func Due(t time.Time) int64 {
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us
}

// Ceil returns d in microseconds, rounded up.
func Ceil(d time.Duration) int64 {
	us := d.Microseconds()
	if d > time.Duration(us)*time.Microsecond {
		us++
	}
	return us
}
