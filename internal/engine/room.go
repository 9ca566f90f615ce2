package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
)

const (
	// mostOutcomes is how many go in one exchange, and mostBrought how many bytes they bring
	// unless it is a single one, so that none keeps other writers waiting for long.
	mostOutcomes = 2000
	mostBrought  = 4 << 20
	// keptWhole is how long an outcome waits for room as it is, or a third of a lease if that is
	// shorter. After that it is made smaller.
	keptWhole = 10 * time.Second
)

// first returns how many of the outcomes in flight go in the next exchange.
func (o *outcomes) first() int {
	most, bytes := min(len(o.flight), cmp.Or(o.most, mostOutcomes)), 0
	for i := range o.flight[:most] {
		if bytes += o.flight[i].Bytes(); bytes > mostBrought && i > 0 {
			return i
		}
	}
	return most
}

// halve has fewer outcomes go in the next exchange than in the one under way, for which the
// disk had no room. It reports false if that has a single one.
func (o *outcomes) halve(now time.Time) bool {
	for i := range o.flight {
		if o.flight[i].noRoom.IsZero() {
			o.flight[i].noRoom = now
		}
	}
	n := len(o.flight)
	o.most = max(n/2, 1)
	return n > 1
}

// mostTried is how many outcomes are tried one after the other at once, while none finds room.
const mostTried = 16

// defers has the single outcome of the exchange under way, which finds no room, wait behind all
// others. It reports whether one of those is worth another try at once: each is tried once, and not
// too many between two backoffs.
func (o *outcomes) defers() bool {
	o.behind = true
	o.refused++
	if o.refused <= min(len(o.waiting), mostTried) {
		return true
	}
	o.refused = 0
	return false
}

// lacksRoom reports whether outcomes wait for room on the disk.
func (l *loop) lacksRoom() bool {
	return len(l.outcomes.waiting) > 0 && errors.Is(l.health.err, storage.ErrFull)
}

// extendsApart reports whether the next exchange extends leases without the outcomes that wait for
// room, so that no handler loses its lease for want of that. If it finds no room either, they have
// a turn alone.
func (l *loop) extendsApart(now time.Time) bool {
	return l.lacksRoom() && reached(l.leases.heartbeatAt, now) && !l.outcomes.alone
}

// extend adds the leases of the outcomes that wait, so that nobody else runs their jobs. What the
// store says of them is heeded when they are written.
func (o *outcomes) extend(leases []storage.Lease) []storage.Lease {
	for i := range o.waiting {
		leases = append(leases, o.waiting[i].Lease)
	}
	return leases
}

// findsNoRoom notes that an exchange has failed, for want of room if any outcomes lack it.
func (l *loop) findsNoRoom(x *exchange, now time.Time) {
	lacks := l.lacksRoom()
	l.outcomes.alone = lacks && x.apart
	if !lacks {
		return
	}
	if l.leases.heartbeatAt.IsZero() { // no handler runs
		l.leases.heartbeatAt = now.Add(l.cfg.LeaseDuration / 3)
	}
	// Leases are extended apart, and so must not wait for longer than they last.
	if soon := now.Add(l.cfg.LeaseDuration / 6); l.health.retryAt.After(soon) {
		l.health.retryAt = soon
	}
}

// lessen makes an outcome smaller that does not fit on the disk alone, and returns what is logged of
// it, empty if it cannot be smaller. It goes without the result, or with less of its texts. If that
// is not enough the attempt counts as cut off. One that is done and brings no jobs does not: it would be done again.
func (f *outcome) lessen(back time.Time) string {
	switch {
	case f.Outcome == storage.OutcomeDone && f.Result != nil:
		f.Error = fmt.Sprintf("the disk was full: the result of %d bytes was left out", len(f.Result))
		f.Result = nil
		return noResult
	case f.cutTexts():
		return lessText
	case f.goesBack():
		f.Finish = storage.Finish{Lease: f.Lease, Outcome: storage.OutcomeInterrupted, DueAt: latest(back, f.DueAt)}
		return cutByRoom
	}
	return ""
}

// goesBack reports whether the job of an outcome may run again as if nothing had been. A crash
// must be counted.
func (f *outcome) goesBack() bool {
	switch f.Outcome {
	case storage.OutcomeRetry, storage.OutcomeUnavailable:
		return true
	case storage.OutcomeDead:
		return f.Reason != storage.ReasonCrashed
	}
	return f.brings()
}

// leastText is how many bytes of a text stay however little room there is.
const leastText = 200

// cutTexts halves the longest texts of an outcome, stacks first, and reports whether it could.
func (f *outcome) cutTexts() bool {
	stacks, errors := []*string{}, []*string{&f.Error}
	for of := &f.Finish; of != nil; of = of.Spent {
		if of != &f.Finish {
			errors = append(errors, &of.Error)
		}
		if of.Failure != nil {
			own := *of.Failure // others may have it
			of.Failure = &own
			stacks, errors = append(stacks, &own.Stack), append(errors, &own.Error)
		}
	}
	return halveLongest(stacks) || halveLongest(errors)
}

func halveLongest(texts []*string) bool {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(*t))
	}
	if longest <= leastText {
		return false
	}
	for _, t := range texts {
		*t = cut(*t, max(longest/2, leastText))
	}
	return true
}

// brings reports whether jobs follow.
func (f *outcome) brings() bool {
	return len(f.Then) > 0 || f.Spent != nil && len(f.Spent.Then) > 0
}
