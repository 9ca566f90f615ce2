// Package policy decides when a failed piece of work is tried again.
//
// Its heart is the four-phase delivery policy of Amazon SNS. After the first
// attempt, retries follow in this order:
//
//	immediate     NoDelayRetries    without delay
//	pre-backoff   MinDelayRetries   after MinDelay each
//	backoff       the others        from MinDelay to MaxDelay, by Backoff
//	post-backoff  MaxDelayRetries   after MaxDelay each
//
// A [Policy] is a plain value, and its decision is a pure function of the retry index
// ([Policy.Next]), without clock, randomness or state. So the decision is the same
// after a restart, and a policy with a million retries costs as much as one with
// three. Jitter is separate ([Jitter.Apply]); the caller brings the random numbers.
//
// In JSON, a policy has the form and the names of an SNS delivery policy, alone or in
// a [Document]. A queue has a document as a topic of SNS has ([Topic]), a kind or a
// job as a subscription has. The limits are those of a [Profile].
//
// Three other parts do not depend on each other: the meaning of an error
// ([Classify]), a bucket of tokens that pays for retries ([Budget]), and a loop that
// uses all of it for a call without a queue ([Do], [Retrier]).
//
// Delays and phases are those of SNS; what an error means is not. By the default rules
// ([Device]) an expired token, a captive portal and a network that is away cost no work:
// such errors are [Unavailable]. SNS retries few of them ([BySNSStatus]).
package policy

import "time"

// Policy says how often and after what delays a failed attempt is repeated.
// The zero Policy repeats nothing. A Policy is a value: it can be copied,
// compared and used by any number of goroutines.
//
// Delays run from the failure, not from the start of the attempt.
type Policy struct {
	// MinDelay is the delay in the pre-backoff phase and the first in the
	// backoff phase.
	MinDelay time.Duration
	// MaxDelay is the longest delay of the backoff phase and the delay in
	// the post-backoff phase. At least MinDelay.
	MaxDelay time.Duration
	// Retries is the number of retries in all four phases together. The first
	// attempt does not count.
	// If zero, nothing is retried. The func [Retries] returns a policy with so many
	// and with delays: a Policy that has Retries alone is refused, as all of them
	// would be made at once.
	Retries int
	// NoDelayRetries is how many of Retries are in the immediate phase. Retries
	// may be fewer: it ends the phase.
	NoDelayRetries int
	// MinDelayRetries is how many of Retries are in the pre-backoff phase. Retries
	// may end it, too.
	MinDelayRetries int
	// MaxDelayRetries is how many of Retries are in the post-backoff phase. The
	// retries in none of these three phases are the backoff phase.
	MaxDelayRetries int
	// Backoff is the function by which delays grow in the backoff phase.
	// If zero, Linear.
	Backoff Backoff
	// Jitter is how delays are spread. Next ignores it and returns nominal delays.
	// If zero, EqualJitter.
	Jitter Jitter
}

// Next returns the phase and the nominal delay, before jitter, of a retry; the index
// counts from 0. It is not ok if there is no such retry, because the policy is
// exhausted or the index is negative; the phase is PhaseFirst then.
//
// Next takes constant time and allocates nothing. It never panics, but its result for
// a policy that [Policy.Validate] refuses is not defined.
func (p Policy) Next(retry int) (phase Phase, delay time.Duration, ok bool) {
	if retry < 0 || retry >= p.Retries {
		return PhaseFirst, 0, false
	}
	if retry < p.NoDelayRetries {
		return PhaseImmediate, 0, true
	}
	k := retry - max(0, p.NoDelayRetries)
	if k < p.MinDelayRetries {
		return PhasePreBackoff, p.MinDelay, true
	}
	k -= max(0, p.MinDelayRetries)
	if n := p.backoffRetries(); k < n {
		return PhaseBackoff, p.Backoff.delay(p.MinDelay, p.MaxDelay, k, n), true
	}
	return PhasePostBackoff, p.MaxDelay, true
}

// backoffRetries returns the length of the backoff phase; it may be negative if
// the policy is not valid.
func (p Policy) backoffRetries() int {
	return p.Retries - max(0, p.NoDelayRetries) - max(0, p.MinDelayRetries) - max(0, p.MaxDelayRetries)
}
