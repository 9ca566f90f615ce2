package storage

import "time"

// Handoff is implemented by a Store that can lease jobs in the transaction that
// enqueues them, so that their handlers start after one commit instead of two.
type Handoff interface {
	// Offer announces a worker that will lease jobs of src for length, as soon
	// as [Offer.Room] says that it has room for some.
	//
	// A call of Enqueue or Fire on this Store that has inserted a job of src as
	// ready goes on to lease jobs of src in the same transaction, as many as
	// there is room for: those that an Exchange right after it would lease.
	// Offers have their turn in the order they were made; nothing is done for
	// one if what was inserted has been leased to those before.
	//
	// The jobs are passed to take, in the order they should start, after the
	// commit and before the call returns, also if its caller has given up.
	// began is a moment before the leases' beginning, as time.Now returns it. take
	// must not block, and may be called by several goroutines at a time; the
	// jobs are its to keep.
	Offer(src Source, length time.Duration, take func(jobs []Leased, began time.Time)) Offer
}

// Offer is what [Handoff] returns to a worker. It is safe for concurrent use.
type Offer interface {
	// Room says for how many jobs there is room from now on; at first there is
	// none. Jobs that were leased count until take has returned, and then no
	// more: take has to say how much room they leave. Jobs may still come for
	// which there was room a moment before. It does not wait for take.
	Room(n int)
	// Close withdraws the offer. When it returns, take has returned from its
	// last call. It must not be called by take.
	Close()
}
