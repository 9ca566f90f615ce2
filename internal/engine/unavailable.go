package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	// leastOutage is for how long a job waits after the first attempt of its lane
	// that could not reach the other side. The wait doubles up to mostOutage, until
	// an attempt of the lane ends well.
	leastOutage = time.Second
	mostOutage  = 5 * time.Minute

	unreached = "errand: attempt could not reach the other side"
)

// outages are the lanes whose last attempts here could not reach the other side.
type outages map[storage.Lane]*outage

type outage struct {
	wait  time.Duration
	until time.Time
}

// put notes an attempt of a lane that could not reach the other side, and returns
// how long its job waits. Attempts that were under way together wait together.
func (o outages) put(lane storage.Lane, now time.Time) time.Duration {
	at := o[lane]
	if at == nil {
		at = &outage{}
		o[lane] = at
	}
	if !now.Before(at.until) {
		at.wait = min(max(2*at.wait, leastOutage), mostOutage)
		at.until = now.Add(at.wait)
	}
	return at.until.Sub(now)
}

// unavailable ends an attempt that could not reach the other side. The job waits
// with its lane, and spends nothing, unless the store knows that others were more
// successful. The loop adds the wait to DueAt.
func (c *Config) unavailable(f storage.Finish, job *storage.Leased, v verdict, took time.Duration, now time.Time) storage.Finish {
	v.class = policy.Retryable
	spent := c.failure(f, job, v, took, now)
	f.Outcome, f.DueAt, f.Error, f.Spent = storage.OutcomeUnavailable, now, v.text, &spent
	if job.Attempt > 1 {
		f.Since = job.Previous
	}
	return f
}

// spent logs an attempt that has spent a retry though it could not reach the other
// side.
func (r *reports) spent(f *outcome) {
	if f.Spent.Outcome == storage.OutcomeDead {
		r.dead(f.job, f.Spent)
		return
	}
	r.job(slog.LevelWarn, attemptFailed, f.job, f.Error, "due", f.Spent.DueAt)
}
