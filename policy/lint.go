package policy

import (
	"fmt"
	"math"
	"time"
)

// lease is the lease of errand by default. A restart of the other side should be
// over within it.
const lease = 30 * time.Second

// Lint returns warnings about a valid policy, one sentence each. They are about
// settings that are allowed but probably not intended. There is no warning about a
// delay after the backoff phase that is shorter than those in it: [Policy.Validate]
// refuses that.
func (p Policy) Lint() []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if p.Retries <= 0 {
		if n := max(p.NoDelayRetries, p.MinDelayRetries); n > 0 && p.MaxDelay == 0 {
			warn("it has no retries: Retries counts those of all phases, so set it to %d or more", n)
		}
		return all
	}
	n := p.backoffRetries()
	waits := p.Retries > p.NoDelayRetries
	switch shortest, total := p.ShortestTotal(), p.Total(); {
	case total < lease:
		warn("it ends after %v: an outage of %v, such as a restart, exhausts it; set longer delays", total, lease)
	case shortest < lease:
		warn("it ends after %v to %v: an outage of %v, such as a restart, may exhaust it; set longer delays", shortest, total, lease)
	case total == math.MaxInt64 && p.Retries < forever: // who asks for as many as there can be means it
		warn("it ends after more than 292 years")
	}
	if p.NoDelayRetries > p.Retries {
		warn("%d retries without delay, of %d retries in all: raise Retries if it is to count them", p.NoDelayRetries, p.Retries)
	}
	if p.NoDelayRetries > 10 {
		warn("%d retries without any delay: they are over before anything can have changed", p.NoDelayRetries)
	}
	if waits && p.MinDelay == 0 && (p.MinDelayRetries > 0 || n > 0) {
		warn("the minimum delay is 0, so retries that are to wait do not; set the minimum and the maximum delay")
	}
	if waits && p.Jitter == NoJitter && p.MaxDelay > 0 {
		warn("there is no jitter: jobs that fail together come back together")
	}
	return append(all, p.lintBackoff(n)...)
}

// lintBackoff returns the warnings about the backoff phase of n retries.
func (p Policy) lintBackoff(n int) []string {
	var all []string
	warn := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if n <= 0 {
		if p.MinDelay < p.MaxDelay && p.MaxDelayRetries == 0 {
			warn("the maximum delay of %v has no effect: there is neither a backoff nor a post-backoff phase", p.MaxDelay)
		}
		return all
	}
	last := p.Backoff.delay(p.MinDelay, p.MaxDelay, n-1, n)
	switch {
	case p.MinDelay == p.MaxDelay:
		if n > 1 && p.Backoff != Linear && p.Backoff != Constant {
			warn("minimum and maximum are equal: the backoff function %s has no effect", p.Backoff)
		}
		return all
	case n > 16 && (p.Backoff == Geometric || p.Backoff == Exponential):
		near := 0
		for near < n && p.Backoff.delay(p.MinDelay, p.MaxDelay, near, n) <= p.MinDelay+(p.MaxDelay-p.MinDelay)/100 {
			near++
		}
		warn("%d of %d delays of the backoff phase are nearly the minimum (%v): %s grows only at the very end of so long a phase",
			near, n, p.MinDelay, p.Backoff)
	}
	if p.Backoff == Doubling && p.MinDelay == 0 {
		warn("doubling from 0 stays 0")
	}
	if n == 1 && p.Backoff < Doubling && p.MaxDelayRetries == 0 {
		warn("the maximum delay of %v has no effect: a backoff phase of one retry waits for the minimum", p.MaxDelay)
	}
	if p.MaxDelayRetries > 0 && last < p.MaxDelay/2 {
		warn("the backoff phase ends at %v, and the post-backoff phase goes on with %v", last, p.MaxDelay)
	} else if p.MaxDelayRetries == 0 && n > 1 && last < p.MaxDelay && p.Backoff == Constant {
		warn("the maximum delay of %v has no effect: constant stays at the minimum", p.MaxDelay)
	}
	return all
}
