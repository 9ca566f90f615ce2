package storage

import "time"

// Handoff is implemented by a Store that can lease jobs in the transaction that
// enqueues them, so that their handlers start after one commit instead of two.
type Handoff interface {
	// Offer announces a worker that will lease jobs of want for lease, as long as
	// it has capacity: for want.N jobs at first, then for what [Offer.Capacity]
	// says.
	//
	// A call of Enqueue, PublishMessages or Fire on this Store that has inserted a job of
	// want as ready goes on to lease jobs of want in the same transaction, as many as
	// there is capacity for: those that an Exchange right after it would lease. A job
	// that such an Exchange would end is left to it. Offers are served in the order they
	// were made; an offer gets nothing if the inserted jobs were leased to those before
	// it. Min and Wait of want count as in an Exchange, ByGroup does not.
	//
	// The jobs are passed to receive, in the order they should start, after
	// the commit and before the call returns, also if its caller has given up.
	// began is a reading of time.Now before the leases began. receive must not
	// block, and may be called by several goroutines at a time; the jobs are
	// its to keep.
	Offer(want Want, lease time.Duration, receive func(jobs []Leased, began time.Time)) Offer
}

// Offer is what [Handoff] returns to a worker. It is safe for concurrent use.
type Offer interface {
	// Capacity sets for how many jobs there is capacity from now on. Leased jobs count
	// until receive has returned, and then no more: receive has to set how much capacity
	// they leave. Jobs may still come if there was capacity for them a moment before. It
	// does not wait for receive.
	Capacity(n int)
	// Close withdraws the offer. When it returns, receive has returned from its
	// last call. It must not be called by receive.
	Close()
}
