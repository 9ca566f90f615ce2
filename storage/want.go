package storage

import (
	"slices"
	"time"
)

// Want is jobs that a worker can take: ready jobs of these kinds in these queues,
// at most N. Jobs of other kinds, other queues or held lanes cost it nothing.
type Want struct {
	Queues []string
	Kinds  []string
	N      int
	// Min and Wait keep jobs back, so that many of one lane can be leased together:
	// nothing but urgent jobs is leased from a lane of which fewer than Min jobs are
	// ready, until the earliest due of these has been due for Wait. If a lane matches
	// several Wants, those of the first count. If Min is below 2 or Wait is not
	// positive, nothing is kept back.
	Min  int
	Wait time.Duration
}

// KeepsBack reports whether w may keep jobs back.
func (w *Want) KeepsBack() bool { return w.Min > 1 && w.Wait > 0 }

// Matches reports whether w wants jobs of a kind in a queue.
func (w *Want) Matches(queue, kind string) bool {
	return slices.Contains(w.Kinds, kind) && slices.Contains(w.Queues, queue)
}
