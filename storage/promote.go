package storage

import (
	"context"
	"time"
)

// Promoter is implemented by a Store whose exchanges make due, and end late, no more than the
// jobs of lanes that match their Wants. Each of its workers calls Promote for the other lanes,
// at most 0.8 seconds after a job of theirs is due or late. So this is done within a second
// while any worker runs and the Store answers quickly. A worker that is being stopped does not
// call it, nor does one that runs bulk jobs alone.
type Promoter interface {
	// Promote does for the jobs of all lanes what an Exchange that leases does before it
	// leases: due scheduled jobs are made ready, and jobs end that have passed their
	// StartBy or Deadline. It leases nothing, and ends no job before its time. One call is
	// one bounded step, and at least one job if there is any.
	Promote(ctx context.Context, now time.Time, p Promotion) (Promoted, error)
}

// Promotion says how Promote ends jobs. Each field means what that of an [Exchange] does.
type Promotion struct {
	Retention Retention
	Doubtful  bool
	Follow    func(*ExpiredJob) *NewJob
}

// Promoted answers a [Promotion].
type Promoted struct {
	// Expired are the jobs that ended at their StartBy or Deadline, in any order.
	Expired []ExpiredJob
	// Next is when to call Promote again: at the earliest time at which a scheduled job is
	// due, or a waiting job reaches its StartBy or Deadline. It is now if more jobs are due
	// or late, and zero if nothing is to come. A StartBy or Deadline that began with a
	// Doubtful now counts only once it has begun anew.
	Next time.Time
}
