package storage

import "time"

// Handoff is implemented by a Store that can lease a job in the transaction
// that enqueues it, so that its handler starts after one commit instead of two.
type Handoff interface {
	// Offer announces a worker of this process that will lease jobs of src for
	// length, as soon as [Offer.Room] says that it has room for some.
	//
	// A job that is due when it is enqueued is leased at once if an offer has
	// room and takes its queue and kind, the queue is not paused, and no other
	// job of that source is ready or due. It is then passed to take, after the
	// commit, whatever has become of the caller who enqueued it. began is a
	// moment before the lease's beginning. take must not block; the jobs are
	// its to keep.
	Offer(src Source, length time.Duration, take func(jobs []Leased, began time.Time)) Offer
}

// Offer is what [Handoff] gives to a worker. It is safe for concurrent use.
type Offer interface {
	// Room says for how many jobs there is room from now on; at first there is
	// none. A job passed to take uses up the room for one, and jobs may still
	// come for which there was room a moment before.
	Room(n int)
	// Close withdraws the offer. When it returns, take has returned from its
	// last call. It must not be called by take.
	Close()
}
