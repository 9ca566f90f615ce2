package ratchet

// Device is what the device keeps of a stream. It is written only in the commit of a [Settlement]. The
// name of the owner and the stream's own ID are in the same row, and are the caller's. The zero value
// is a stream that has not begun.
type Device struct {
	N     uint64
	Token Token
	Held  bool // for people; an owner of a stream that is held asks again, later
}

// Phase is what an [Owner] is doing.
type Phase uint8

// The phases. The zero value has to ask.
const (
	MustAsk Phase = iota
	AskingCheck
	MustConfirm // the owner's name in the file is to be read, then Ask
	Asking
	Ready // may send
	Sending
	Settling // the settlement is to be committed
)

// Owner is what the process that owns a stream knows beside the row. It is never persisted: a
// process that becomes the owner, as one that starts, begins with the zero value and the row.
type Owner struct {
	Row     Device
	Phase   Phase
	Request ID // the one under way
	check   Check
}

// Settlement is a commit of the device: it ends jobs by the verdicts, see [Verdict.On], writes the row
// After, and nothing if the row has another owner by then.
type Settlement struct {
	After    Device
	Of       uint64    // the n of the send that the verdicts are of; each job keeps it, and the stream's ID
	Verdicts []Verdict // empty if S is of an earlier send, which is settled
	// Missing is not empty if the server was put back. It is written as a row of its own, unless there
	// is one like it.
	Missing Missing
	// Renew is true if the stream is given up: the row gets a new random stream ID. Its jobs are
	// sent on the new one.
	Renew bool
}

// Missing is which jobs are not on a server that was put back, of those that the device has ended as
// Enqueued or Duplicate by sends of this stream: those of the sends whose n is greater than that of S
// and less than Before. S itself may be a late copy that came to the server since, so what S says of
// a job goes before: the server may have judged otherwise. The zero value is empty.
type Missing struct {
	S      Taking
	Before uint64
}

// Has reports whether a job is missing that the device has ended by the verdicts of the send n.
func (m Missing) Has(job ID, n uint64) bool {
	for _, v := range m.S.Verdicts {
		if v.Job == job {
			return m.S.N <= n && n < m.Before && !v.there()
		}
	}
	return m.S.N < n && n < m.Before
}

// AskCheck begins to ask, whatever was under way: its answer comes too late from now on. id is random.
func (o Owner) AskCheck(id ID) (Owner, Request) {
	o.Phase, o.Request = AskingCheck, id
	return o, Request{ID: id, Kind: AskCheck, N: o.Row.N}
}

// Ask goes on asking. It is for the phase MustConfirm, after the caller has read in the file that the
// stream still has this owner. If it has not, the owner is given up, and its jobs are returned.
func (o Owner) Ask(id ID) (Owner, Request) {
	o.Phase, o.Request = Asking, id
	return o, Request{ID: id, Kind: Ask, N: o.Row.N, Token: o.Row.Token, Check: o.check}
}

// Send sends jobs. It is for the phase Ready. The caller has leased the jobs, and has not
// put any among them that was kept with a verdict.
func (o Owner) Send(id ID) (Owner, Request) {
	o.Phase, o.Request = Sending, id
	return o, Request{ID: id, Kind: Send, N: o.Row.N, Token: o.Row.Token}
}

// Receive takes an answer. What is to be done then is the phase: in Settling the settlement is
// committed, and then [Owner.Settled] called, or [Owner.Lost]. An answer to another request than
// that under way changes nothing. An answer without a good signature is none, and is not passed in.
func (o Owner) Receive(a Answer) (Owner, Settlement) {
	if a.Request == (ID{}) || a.Request != o.Request {
		return o, Settlement{}
	}
	o.Request = ID{}
	switch {
	case a.Status == Checked && o.Phase == AskingCheck:
		o.Phase, o.check = MustConfirm, a.Check
		return o, Settlement{}
	case o.Phase != Asking && o.Phase != Sending:
		return o.Lost(), Settlement{}
	}
	s := Settlement{After: o.Row}
	switch a.Status {
	case Taken:
		s.After = Device{N: a.N, Token: a.T}
		if a.S.N == o.Row.N {
			s.Of, s.Verdicts = a.S.N, a.S.Verdicts
		}
	case Resumed:
		s.After, s.Missing = Device{N: a.N, Token: a.T}, Missing{S: a.S, Before: o.Row.N}
	case Held:
		s.After.Held = true
	case Forked:
		s.After.Held = true
		if o.Row.N >= a.N {
			s.Missing = Missing{S: a.S, Before: o.Row.N}
		}
	case Renewed:
		s.After, s.Renew = Device{}, true
	default:
		return o.Lost(), Settlement{}
	}
	o.Phase = Settling
	return o, s
}

// Settled goes on after the commit of a settlement.
func (o Owner) Settled(s Settlement) Owner {
	o.Row, o.Phase = s.After, Ready
	if s.Renew || s.After.Held {
		o.Phase = MustAsk
	}
	return o
}

// Lost goes on after a request without an answer, or a commit that failed.
func (o Owner) Lost() Owner { return Owner{Row: o.Row} }

// Place is where a job is on the device, in the commit that would end it.
type Place uint8

// The places. The zero value is not there: its file was put back to before the job was made.
const (
	Absent  Place = iota
	Leased        // by this owner
	Waiting       // not leased, or leased by another
	Dead          // as its file was put back to before it was redriven
	Ended         // in some other way: cancelled here, expired here
)

// Action is what is done to a job in a settlement.
type Action uint8

// The actions. The zero value does nothing.
const (
	Leave  Action = iota
	Finish        // it is done
	Bury          // it is dead, of reason permanent, with the server's words
	Return        // it waits again, and nothing is used up
	Keep          // its verdict is kept with the stream and the n of its send, in the same commit
	Name          // it is on the server and was ended here otherwise: people are told
)

// On returns what a verdict does to a job. A kept verdict does this when the job is next leased, in
// the commit that leases it, and is deleted there; the job is never sent. It does so too when the
// job ends otherwise.
func (v Verdict) On(p Place) Action {
	there := v.there()
	switch {
	case p == Leased && there:
		return Finish
	case p == Leased && v.Outcome == Refused:
		return Bury
	case p == Leased:
		return Return
	case p == Waiting && (there || v.Outcome == Refused), p == Dead && there:
		return Keep
	case p == Ended && there:
		return Name
	}
	return Leave
}

func (v Verdict) there() bool { return v.Outcome == Enqueued || v.Outcome == Duplicate }
