// Package ratchet is the protocol by which jobs go from a device's queue to a server's:
// once, in order, over any network. It has the two ends of one stream as values, and their
// steps as pure functions. Whoever uses it sends the messages, keeps the rows, and
// passes randomness in. No time is compared.
//
// # The rows
//
// The device keeps a [Device] for each stream in the file of its queue, and beside it the random ID of the
// stream and the name of its owner. The row is written in the commit that ends jobs, by
// [Settlement]. The server keeps a [Server] for each stream in the file of its queue: N, the token T, the
// token P before it, and S, which is n and the verdicts of the last send that it took. The
// row is written in the commit that enqueues jobs. What else an end knows is lost with its process: the
// server knows nothing else, and the device an [Owner].
//
// # The requests
//
// One request of a stream is under way at a time. Each has an ID of its own, and an answer is
// used only if it is to the request that is under way.
//
//   - Send brings n, the token and jobs, or none to settle the send before. It is taken only if the
//     token is T. In one commit each job is judged, see [Judge], and S becomes n and the verdicts, P
//     becomes T, T is random, and N is one more.
//   - AskCheck brings n, and changes nothing. Its answer has c, a hash of T.
//   - Ask brings n, the token and c. It has an effect only while c is the hash of T. If the token
//     is T or P, then in one commit P becomes the token shown, T is random, and N is one more.
//
// The answer to a send that was taken, and to an ask that had its effect, has N, T and S. A
// request that had no effect is answered as [Stale], or as [Held] or [Renewed]. After an ask had its effect, all requests from
// before are stale, also a send that was lost and comes late. So what is not in S was
// never taken, and may be sent again.
//
// # The device
//
// A process asks first when it becomes the owner of a stream, and asks after each request without a
// good answer; a signed failure of the server is such an answer. A send is never repeated. So at most one
// send is ever made with a token, and its n names it.
//
// A stream has one owner. The owner looks twice whether the file still names it:
//
//   - between the answer with c and the ask. An owner that was replaced could otherwise show, with a
//     good c, a token that is P by now, and the token that the new owner has written would then be
//     neither T nor P: a false fork.
//   - in the commit of a [Settlement]. An owner that was replaced could otherwise write a token that an
//     ask of the new owner has made old.
//
// The device ends its jobs by S, if the n of S is its own, and writes N and T, in one commit, and
// only then sends again. A job that cannot be ended in that commit is kept with its verdict, see
// [Verdict.On].
//
// # Forks
//
// Who shows, with a good c, a token that is neither T nor P has forked, and the stream is held: it is a
// clone, or a device or a server that was put back to an older copy of its file. In the
// first two cases its n is less than N. If the server was put back it is not: only one late request can have
// an effect on it. Then jobs are [Missing] on the server, and the commit that holds the stream on the device
// lists them. [Server.Accept] ends a hold. A fork is found when a stream next asks, so a device on which
// one stream has forked asks about all of them.
//
// The model in the tests goes through all histories of both ends and the network up to a length,
// and finds each rule above if it is left out. It does not cover a server that is put back beside a clone,
// or beside a device that was put back: the server may have forgotten an Accept, and
// then takes jobs again.
package ratchet

import "crypto/sha256"

type (
	// Token is random, and stands for a point in the life of a stream. The zero value is the token
	// of a stream that has not begun, on both sides.
	Token [16]byte
	// Check is a hash of a token. It says that the token is still the same, and does not tell it.
	Check [16]byte
	// ID is that of a request, random, or that of a job. The zero value is no request's.
	ID [16]byte
)

// Check returns the hash of a token: the first half of its SHA-256.
func (t Token) Check() (c Check) {
	sum := sha256.Sum256(t[:])
	copy(c[:], sum[:])
	return c
}

// Kind is what a request is.
type Kind uint8

// The kinds of requests. The zero value is none of them.
const (
	AskCheck Kind = iota + 1
	Ask
	Send
)

// Request goes from the device to the server. Its jobs are the business of others: the
// server's caller judges them when the request is taken.
type Request struct {
	ID    ID
	Kind  Kind
	N     uint64
	Token Token // zero in AskCheck
	Check Check // zero but in Ask
}

// Status is what became of a request.
type Status uint8

// The answers. The zero value is none of them.
const (
	Checked Status = iota + 1 // to AskCheck: has Check
	Taken                     // had its effect: has N, T and S
	Stale                     // had no effect
	Held                      // had no effect: the stream is held
	Forked                    // holds the stream: has N and S
	Resumed                   // had its effect after a fork, as the server was put back: has N, T and S
	Renewed                   // had no effect: the device begins a new stream
)

// Answer goes from the server to the device.
type Answer struct {
	Request ID
	Status  Status
	Check   Check
	N       uint64
	T       Token
	S       Taking
}

// Outcome is what became of a job on the server.
type Outcome uint8

// The outcomes. The zero value is none of them.
const (
	Enqueued  Outcome = iota + 1
	Duplicate         // is there already
	Refused           // will never be taken as it is, for a reason
	Behind            // not tried, after a refusal in its group
	Later             // not tried: there is no room now
)

// Verdict is what became of one job of a send.
type Verdict struct {
	Job     ID
	Outcome Outcome
	Reason  string // of Refused
}

// Taking is the n of a send that was taken, and its verdicts in the order of its jobs. It is shared,
// and must not be changed. The zero value means that none was taken.
type Taking struct {
	N        uint64
	Verdicts []Verdict
}

// Job is what [Judge] has to know of a job.
type Job struct {
	ID    ID
	Group string // empty if it has none
}

// Judge returns the verdicts on the jobs of a send, in order. It calls enqueue for each job, which
// tries it in a savepoint and returns Enqueued, Duplicate, Refused with a reason, or Later. After
// a refusal the later jobs of that group are Behind, since the device has to know of the
// refusal before they go on; after Later all others are Later. For these enqueue is not called.
func Judge(jobs []Job, enqueue func(Job) (Outcome, string)) []Verdict {
	verdicts := make([]Verdict, len(jobs))
	refused := map[string]bool{}
	full := false
	for i, j := range jobs {
		v := Verdict{Job: j.ID}
		switch {
		case full:
			v.Outcome = Later
		case refused[j.Group]:
			v.Outcome = Behind
		default:
			v.Outcome, v.Reason = enqueue(j)
			full = v.Outcome == Later
			refused[j.Group] = j.Group != "" && v.Outcome == Refused
		}
		verdicts[i] = v
	}
	return verdicts
}
