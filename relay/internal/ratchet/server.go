package ratchet

// Server is what the server keeps of a stream. All of it is persisted: [Server.Answer] and
// [Server.Accept] return what is written in the commit in which jobs are enqueued. The zero value
// is a stream that has not begun, so a stream without a row is one.
type Server struct {
	N    uint64
	T, P Token
	S    Taking
	Held bool
	// Back is not empty if the server was put back: who of those that forked goes on after Accept.
	Back Fork
	// Accepted is greater than the n of all that forked before the last Accept. These begin new
	// streams when they next ask, however many copies of a file there are.
	Accepted uint64
}

// Fork is what a forked device showed. The zero value is nobody.
type Fork struct {
	By    bool // there is one
	N     uint64
	Token Token
}

// mostN is the highest n of a request that has an effect. No stream comes so far, and what is counted
// from it stays a number.
const mostN = 1 << 62

// Answer returns the row after a request, and the answer. A request of another kind than those above is
// stale. The caller reads the row, and writes it
// if it has changed, in one transaction; the answer leaves after the commit. Answer calls judge if a
// send is taken, once, in that transaction. fresh is random, and new for each call.
func (s Server) Answer(r Request, fresh Token, judge func() []Verdict) (Server, Answer) {
	a := Answer{Request: r.ID, Status: Stale}
	switch {
	case r.Kind == AskCheck:
		a.Status, a.Check = Checked, s.T.Check()
		return s, a
	case r.Kind != Ask && r.Kind != Send, r.N > mostN,
		r.Kind == Ask && r.Check != s.T.Check(), r.Kind == Send && r.Token != s.T:
		return s, a
	case r.Kind == Ask && !s.Held && s.Back.By && r.Token == s.Back.Token:
		a.Status, s.N = Resumed, max(s.N, r.N)
	case r.Token != s.T && r.Token != s.P:
		return s.fork(r, a)
	case s.Held:
		a.Status = Held
		return s, a
	default:
		if a.Status = Taken; r.Kind == Send {
			s.S = Taking{N: r.N, Verdicts: judge()}
		}
		s.Back = Fork{} // who goes on has written a later token
	}
	s.P, s.T, s.N = r.Token, fresh, s.N+1
	a.N, a.T, a.S = s.N, s.T, s.S
	return s, a
}

func (s Server) fork(r Request, a Answer) (Server, Answer) {
	if !s.Held && r.N < s.Accepted {
		a.Status = Renewed
		return s, a
	}
	s.Held = true
	if r.N >= s.N && (!s.Back.By || r.N > s.Back.N) {
		s.Back = Fork{By: true, N: r.N, Token: r.Token}
	}
	a.Status, a.N, a.S = Forked, s.N, s.S
	return s, a
}

// Accept returns the row after a hold was ended. Who shows the highest n goes on. If the server was
// put back, that is a device that forked, and its next ask has its effect; nobody has T any more,
// so no late send is taken after the device was told what is missing. Otherwise it is who has T or P,
// if anybody has. Others that forked begin new streams when they next ask.
//
// From this commit on, each job of any stream of this device is looked up by its origin before it
// is enqueued, and is a Duplicate if it is there. Copies of a device's file have jobs in common, and a
// late send may have come to a server that was put back, of which the device has learnt
// before that it was never taken.
//
// Accept does nothing if the stream is not held. fresh is random.
func (s Server) Accept(fresh Token) Server {
	if !s.Held {
		return s
	}
	s.Held, s.Accepted = false, s.N
	if s.Back.By {
		s.T, s.Accepted = fresh, s.Back.N+1
	}
	return s
}
