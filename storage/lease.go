package storage

import "time"

// Lease names one holding of one job. A job that is leased again has another
// token, so a late holder names a lease that no longer exists.
type Lease struct {
	Key   int64
	Token int64
}

// LeaseBytes is how many bytes of args, headers and checkpoints one exchange leases: its last job is
// the one that reaches them.
const LeaseBytes = 32 << 20

// Exchange is what a worker asks of one transaction. An Exchange that leases
// nothing may succeed where one that leases returns [ErrFull]: a Store may keep
// space in reserve so that work can be finished. One that ends fewer leases, or brings fewer
// bytes, may succeed where a larger one returns ErrFull.
type Exchange struct {
	// LeaseDuration is how long leases granted or extended here last from now.
	LeaseDuration time.Duration
	// Extend prolongs leases that are still held.
	Extend []Lease
	// Start are held leases whose handlers are about to be called. That is written, before
	// any of Finish takes effect: if the process dies now, the attempt has crashed. A Store
	// that is a [Marker] writes nothing.
	Start []Lease
	// Stop are leases whose worker is being stopped. What Start has written of them is taken
	// back after all of Start, before any of Finish takes effect: if the process dies now,
	// the attempt is cut off. It means nothing for a lease that is not held, or whose start
	// was not written, and has no result. A Store that is a [Marker] changes nothing.
	Stop []Lease
	// Finish ends leases, each with an outcome.
	Finish []Finish
	// Retention is how long the jobs that end here are kept.
	Retention Retention
	// Hold begins holds as [Holder.Hold] does, after Finish and before anything is
	// leased. Each Lane names a queue and a kind.
	Hold []Hold
	// Doubtful says that now may be far from the real time, see [Hold] and [NewJob].
	Doubtful bool
	// Release ends holds as [Holder.Release] does, after those of Hold have begun. Only
	// the lane and the reason of each count.
	Release []Hold
	// Wants are the jobs to lease. Of those that are due and match any of them, the
	// highest priority goes first, then the earliest due, then the first enqueued.
	// Settings of a queue change that, see [Order].
	//
	// A job counts for the first Want that matches it and has room: by N, and by Each for
	// its queue. A job that fits none is passed over. A lease raises the job's attempt by
	// one. Leasing stops with the job that brings the args, headers and checkpoints of
	// all together to [LeaseBytes], so that jobs that wait for a handler take little memory. On a disk
	// that is nearly full a Store may stop sooner, so that running jobs have room to end;
	// NextDue says when to ask again.
	//
	// If an N is positive, due scheduled jobs of the lanes that match a Want are made
	// ready before: all of them, or a bounded number of the earliest. Then jobs of these
	// lanes end that have passed their StartBy or Deadline, see [ExpiredJob]: all of them,
	// or a bounded number. If some are left, NextDue is not after now, and the next
	// Exchange gets further. A Store that is no [Promoter] does both for the jobs of all
	// lanes. No job is leased at its StartBy or Deadline or later: it ends instead, and
	// counts for its Want.
	Wants []Want
	// Follow, if not nil, returns what to enqueue when a job dies at its StartBy or
	// Deadline, in the same transaction; nil for nothing. It must not call the Store.
	Follow func(*ExpiredJob) *NewJob
	// Urgent is how many urgent jobs to lease, before the others and in addition to them: of
	// any lane that matches a Want, held or not, whatever its N. Urgent jobs that were
	// enqueued first go first.
	Urgent int
	// Repeats is the Call of the [UnknownOutcomeError] with which this Exchange ended on this
	// Store. All else but now is as it was. If it took effect then, it changes nothing now, and
	// the answer is the one that was lost, with its leases. Else it takes effect now. Another
	// UnknownOutcomeError has the Call for the next time. After any other error it has taken
	// effect neither then nor now; ErrClosed leaves that open. It is [ErrNotFound] if Repeats is
	// no such Call, or was answered. If zero, the Exchange is a new one.
	Repeats int64
}

// Wanted returns how many jobs x leases at most, without urgent ones.
func (x *Exchange) Wanted() (n int) {
	for i := range x.Wants {
		n += max(x.Wants[i].N, 0)
	}
	return n
}

// ExchangeResult answers an [Exchange].
type ExchangeResult struct {
	Extended []ItemResult // one for each of Extend
	Started  []ItemResult // one for each of Start
	Finished []ItemResult // one for each of Finish
	// Then are the answers to the jobs of Finish.Then, or of Finish.Spent.Then, that were to be
	// enqueued, by the index of the Finish. It is nil if there are none.
	Then   map[int][]Enqueued
	Leased []Leased // in the order they should start
	// NextDue is the earliest time at which a scheduled job is due, all holds of a lane
	// that matches a Want have ended, or a waiting job reaches its StartBy or Deadline. A
	// StartBy or Deadline that began with a Doubtful now counts only once it has begun
	// anew. For a lane whose jobs were kept back, NextDue is no later than the end of
	// Wait. A Store that is a [Promoter] may leave out jobs of lanes that match no Want.
	//
	// NextDue is now if a job that was to be leased has ended, or if more jobs are past
	// their StartBy or Deadline. It is zero if nothing is to come, or if nothing was
	// wanted. It is soon if fewer jobs were leased for lack of room on the disk, or because
	// other calls were deciding about jobs that are due.
	NextDue time.Time
	// Expired are the jobs that ended at their StartBy or Deadline, in any order.
	Expired []ExpiredJob
}

// ItemResult is what became of one item of an exchange.
type ItemResult uint8

const (
	// Applied: the lease was held, the item took effect.
	Applied ItemResult = iota
	// Lost: the lease is no longer held; nothing was changed.
	Lost
	// Cancelling: the lease was extended, and the job has been asked to stop.
	Cancelling
	// Refused: the item made no sense, see [Finish.Effect]; the lease is as it
	// was.
	Refused
	// Spent: the lease was held, and Finish.Spent took the place of the item.
	Spent
	// Ended: [TxEnqueuer].FinishTx has ended the lease before; nothing was changed. FinishTx
	// says which Store knows that, and for how long.
	Ended
	// Unable: the Store lacks what the item needs, see [Partial]; nothing was changed.
	Unable
)

// Leased is a job with the lease on it.
type Leased struct {
	Lease
	ID       ID
	Queue    string
	Kind     string
	Priority int
	Membership
	Counters
	CreatedAt time.Time
	DueAt     time.Time
	Timeout   time.Duration
	Policy    []byte
	Headers   []byte
	Args      []byte
	Past
	// Urgent is true if the job is one of Exchange.Urgent.
	Urgent bool
	// Probe is true if a hold has let the job through.
	Probe bool
	// WriteStart is true if a death of the process is a crash of the job only once
	// Exchange.Start has been applied to the lease. A worker calls the handler after that,
	// unless the death is to count as [Cut]. WriteStart is false of a lease that was
	// reclaimed, and of all leases of a [Marker].
	WriteStart bool
	// StartBy and Deadline are those of the job; zero if it has none. StartBy is zero too
	// if an attempt has begun before. Unsettled is true if they began with a Doubtful
	// now, and may begin anew.
	StartBy, Deadline time.Time
	Unsettled         bool
}

// Membership is what a job is in its group.
type Membership struct {
	Group string // empty if it has none
	// Behind is how many jobs of its group were leased right before it and brought it,
	// see [Want.ByGroup]; zero if it was ready.
	Behind int
}

// Weight is how many bytes the args and headers of the job have.
func (l *Leased) Weight() int { return len(l.Args) + len(l.Headers) }

// Bytes is how many bytes the job has that count for [LeaseBytes].
func (l *Leased) Bytes() int { return l.Weight() + len(l.Checkpoint) }

// Finish ends one lease.
type Finish struct {
	Lease
	Outcome Outcome
	DueAt   time.Time // of a job that is put back; zero: at once, but see [Effect]
	// Stays is true if a member of a group that is put back for later keeps its place in
	// the group, whatever the limit; see [Grouper].
	Stays  bool
	Reason Reason // of a job that dies
	Error  string // of a job that ends
	Policy []byte // in effect for a job that dies
	Cause  string // of a job that dies: the text of its [Cause]
	// Failure is appended to the history, with the attempt of the job and the
	// time of the call, unless nil. OutcomeReturned leaves it out.
	Failure *NewFailure
	// Result is kept with a job that ends with OutcomeDone, unless nil. Progress, if not nil,
	// is kept with any job that ends. If Spent takes effect, its Result and Progress count.
	Result   []byte
	Progress *Progress
	// Spent, if not nil, takes the place of an OutcomeUnavailable if there is evidence:
	// an attempt of the job's lane has ended with OutcomeDone under a lease later than
	// Since. The Lease of Spent does not count. Without evidence Failure is left out of
	// the history, and Error is the last error of the job until its next lease. A success
	// before the lane's first OutcomeUnavailable need not count.
	Spent *Finish
	// Then are jobs to enqueue, in the same transaction and in this order, only if the Outcome
	// is OutcomeDone or OutcomeDead and the item ends its job so. If Spent takes effect, those
	// of Spent count. The job has ended before, so that they can have its unique key. One whose
	// key is held and whose Conflict says Fail is a duplicate, and fails nothing.
	Then []NewJob
	// Since is the token of the job's previous attempt, or of a later lease that was
	// returned. If zero, there is no evidence.
	Since int64
}
