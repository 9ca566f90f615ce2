package storage

import "time"

// Cause is what dead jobs have in common: the lane in which they died, the reason,
// and the text that Finish.Cause gave. It is there as long as one of them is dead.
//
// A lane has at most [CauseLimit] causes. A death that would make another one counts for
// the cause [OtherCause] of its reason, which comes in addition.
type Cause struct {
	// ID is positive, and never given to another cause, even after this one is gone.
	ID int64 `json:"id"`
	Lane
	Reason Reason `json:"reason"`
	Text   string `json:"text"`
	// N is how many jobs with this cause are dead.
	N int64 `json:"count"`
	// First is when the first job died that the cause has counted, which may have been redriven
	// or deleted since.
	First time.Time `json:"first"`
	// Last is when the last job died of the cause.
	Last time.Time `json:"last"`
	// Job is that last job.
	Job ID `json:"job"`
	// Hours say when the jobs died. A Store leaves Hours nil: only callers that also ask for
	// Deaths set it.
	Hours *CauseHours `json:"hours,omitempty"`
}

// CauseHours says in which hours of a day the jobs have died that are dead of a cause.
type CauseHours struct {
	// From is when the first of the hours began. The hours are those of the clock in UTC.
	From time.Time `json:"from"`
	// Died is how many of the jobs died in each hour, the earliest hour first.
	Died []int `json:"died"`
	// Most is how many were counted of an hour at most: that number in Died says as many or
	// more.
	Most int `json:"most"`
}

// IsNew reports whether the first job died less than a day before now.
func (c *Cause) IsNew(now time.Time) bool { return now.Sub(c.First) < 24*time.Hour }

const (
	// CauseLimit is how many causes a lane has.
	CauseLimit = 1000
	// OtherCause is the text of the cause of all other deaths of a lane.
	OtherCause = "other"
)
