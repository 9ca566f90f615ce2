package storage

import "time"

// ExpiredJob is a job that an Exchange has ended as it was too late for it to run.
//
// A job that is scheduled, ready or blocked ends at its StartBy or at its Deadline, whatever its
// lane. At its StartBy it is finished as [Expired], kept as Exchange.Retention says, or
// dies with [ReasonExpired] if its OnExpire is Dead. At its Deadline it dies with
// [ReasonDeadline]. Of a job that has passed both the StartBy counts. A job that dies has
// no entry in its history, its cause has the text of its error, and the policy in effect
// is its own.
//
// StartBy counts until the first attempt begins: a lease that was returned is none, and
// one that ends otherwise sets StartBy to zero. A job that is running goes on whatever
// the time, and ends later if it is put back.
type ExpiredJob struct {
	ID          ID
	Queue, Kind string
	Counters
	CreatedAt time.Time
	State     State // Expired or Dead
	Reason    Reason
	Error     string
}

// The errors of jobs that ended so.
const (
	ErrorExpired  = "not started in time"
	ErrorDeadline = "too late for another attempt"
)
