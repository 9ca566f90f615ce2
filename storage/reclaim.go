package storage

import "time"

// Marker is implemented by a Store that notes which handlers run. The notes
// outlive the process but not the machine, cost no transaction, and show
// Reclaim which handlers were running.
//
// A Store without it cannot know whether a handler was called, or why a holder is
// gone. Reclaim returns an attempt as [Crashed] if its start was written, as Exchange.Start
// says, and not taken back by Exchange.Stop, and its holder's instance is gone; it returns
// any other as [Cut]. Leases of the
// job have WriteStart from then on, until the job has ended or an outcome has set its
// crashes to zero. So a job that kills its process is cut off once before its crashes
// count, and any other job costs one write more. A job whose handler was not called
// keeps its attempt counted. Close takes the handlers of all leases for running.
type Marker interface {
	// Started notes that the handler of a lease is about to be called. It may come again
	// after Ended, if the handler was not called the first time.
	Started(l Lease, now time.Time) error
	// Stopping notes that the worker of a lease is being stopped. It means
	// nothing for a lease that is not started.
	Stopping(l Lease) error
	// Ended notes that the handler has returned. A lease that is finished needs
	// no further note.
	Ended(l Lease) error
}

// Reclaimed is a job whose lease was taken from a holder that is gone.
type Reclaimed struct {
	Leased
	// Fate is what is known of the attempt. It survives a reclaimer that dies
	// itself before the job is finished.
	Fate Fate
	// StartedAt is when the handler was called, as Started was told, or as the Exchange
	// was that wrote the start; zero if that is not known: the holder lives, or was
	// closed after the handler had returned, its machine went down, or another reclaimer
	// has died since.
	StartedAt time.Time
	// Holder is the instance it was taken from.
	Holder string
	// Cancelling is true if the job had been asked to stop.
	Cancelling bool
}

// Fate is what happened to an attempt whose holder is gone.
type Fate uint8

const (
	// Unstarted: its process died before the handler was called.
	Unstarted Fate = iota + 1
	// Crashed: its process died while the handler ran, and was not stopping.
	Crashed
	// Cut: the handler may have run but is not to blame: the machine went
	// down, the worker was being stopped, the lease lapsed in a living process
	// (which may call the handler even now), or the handler had returned and
	// its outcome was not written.
	Cut
)
