package storage

import "time"

// ExpiredJob is a job that an Exchange or [Promoter].Promote has ended because it was too
// late to run.
//
// A job that is scheduled, ready or blocked ends at its StartBy or at its Deadline, whatever its
// lane. At its StartBy it is finished as [Expired], kept as Exchange.Retention says, or
// dies with [ReasonExpired] if its OnExpire is Dead. At its Deadline it dies with
// [ReasonDeadline]. Of a job that has passed both the StartBy counts. A job that dies has
// no entry in its history, its cause has the text of its error, and the policy in effect
// is its own.
//
// StartBy counts until the first attempt begins. A lease that was returned is no attempt;
// one that ends otherwise sets StartBy to zero. A running job goes on whatever the time;
// if it is put back, it ends then.
type ExpiredJob struct {
	ID          ID
	Queue, Kind string
	Counters
	CreatedAt time.Time
	State     State // Expired or Dead
	Reason    Reason
	Error     string
}

// The errors of expired jobs.
const (
	ErrorExpired  = "not started in time"
	ErrorDeadline = "too late for another attempt"
)
