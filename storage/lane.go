package storage

import "time"

// Lane is the jobs of one kind in one queue. For a [Hold] one of the names may be
// empty.
type Lane struct {
	Queue string `json:"queue,omitempty"`
	Kind  string `json:"kind,omitempty"`
}

// Retention says how long finished jobs are kept. Zero or less deletes a job at
// once, with all that belongs to it.
type Retention struct {
	Default time.Duration
	Lanes   map[Lane]time.Duration // lanes with another than Default
}

// Of returns how long finished jobs of a lane are kept.
func (r *Retention) Of(queue, kind string) time.Duration {
	if d, ok := r.Lanes[Lane{queue, kind}]; ok {
		return d
	}
	return r.Default
}
