// Package storagetest is the specification of [storage.Store] in the form of
// tests: each sentence of its comments that can be checked is a case here, in
// the same words. [Run] runs the cases, [RunRandom] compares a Store with the
// reference implementation, [Memory], through random histories, and [RunOverlapping]
// checks calls that overlap. [Without] is for a Store that is being built.
//
// All times and readings of monotonic clocks are passed in; nothing sleeps.
package storagetest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
)

// DB is a database under test, empty at first, and the processes that have it
// open. [Memory] is one.
type DB interface {
	// Open returns another instance, as if in a process of its own. It fails
	// the test if it cannot.
	Open() storage.Store
	// Kill lets an instance die as by kill -9: what the kernel holds for the
	// process is dropped, what is in files stays. It may have been closed
	// before; it is not used afterwards.
	Kill(s storage.Store)
	// Reboot lets an instance die as by a power cut: what does not outlive the
	// machine is lost too. It may have been closed before; it is not used
	// afterwards.
	Reboot(s storage.Store)
	// Invariants checks what must hold after any history: each job is in
	// exactly one table, the kept counts equal the real ones, no two live
	// leases have one token, the file is sound.
	Invariants(t testing.TB)
	// Bounds returns how much one call does where the contract says that it is bounded.
	Bounds() Bounds
}

// Bounds are how much one call does. What is zero has no bound.
type Bounds struct {
	// Promoted is how many due jobs an Exchange makes ready, and Expired how many it ends at
	// their StartBy or Deadline, of those that it does not lease.
	Promoted, Expired int
	// Evicted is how many jobs a call looks at to make room, and Scheduled how many scheduled
	// jobs it looks for them among.
	Evicted, Scheduled int
	// DeadEvicted is how many dead letters an Exchange deletes to make room, and DeadLooked
	// how many it looks at.
	DeadEvicted, DeadLooked int
}

// within returns how many of n are in a bound.
func within(n, bound int) int {
	if bound == 0 {
		return n
	}
	return min(n, bound)
}

var _ DB = (*Memory)(nil)

// testCase checks one or more sentences of the contract.
type testCase struct {
	name string
	// says quotes the sentences, one to a line.
	says string
	run  func(f *fixture)
}

// cases returns the whole suite, in the order of names.
func cases() []testCase {
	return slices.Concat(
		bulkCases,
		capCases,
		causeCases,
		checkpointCases,
		checkpointTxCases,
		clockCases,
		clockedCases,
		closeCases,
		compactCases,
		concurrencyCases,
		concurrentCases,
		conflictCases,
		conflictForCases,
		deadCases,
		deleteCases,
		eachCases,
		editCases,
		enqueueCases,
		entryCases,
		expiryCases,
		expiryClockCases,
		fateCases,
		fenceCases,
		finishTxCases,
		fireCases,
		groupCases,
		behindCases,
		groupLimitCases,
		handoffCases,
		historyCases,
		auditCases,
		holdCases,
		itemCases,
		jobCases,
		keepBackCases,
		kindCases,
		lapseCases,
		leaseCases,
		listCases,
		lookCases,
		lostCases,
		messageCases,
		notifyCases,
		orderCases,
		outcomeCases,
		overlapCases,
		partialCases,
		prefixCases,
		probeCases,
		promoteCases,
		purgeCases,
		redriveCases,
		stepCases,
		resultCases,
		runNowCases,
		scriptCases(),
		scheduleCases,
		settingCases,
		shiftCases,
		shiftKeptCases,
		startCases,
		stateCases,
		statsCases,
		totalsCases,
		throttleCases,
		togetherCases,
		troubleCases,
		txCases,
		uniqueCases,
	)
}

// Run checks a Store against the contract. open returns an empty database for
// each case and arranges for it to be closed with t.Cleanup. options may leave
// out cases, see [Without], and say what the Store lacks, see [Lacking]: a case that needs
// something else that the Store lacks is an error.
func Run(t *testing.T, open func(t *testing.T) DB, options ...Option) {
	left := leaveOut(options)
	for _, c := range cases() {
		out := left.has(c.name)
		t.Run(c.name, func(t *testing.T) {
			if out {
				c.mustFail(t, open(t))
				return
			}
			left.lacking.ran++
			c.checkIn(context.Background(), t, open(t), &left.lacking)
		})
	}
	left.report(t, "case")
	left.lacking.report(t, left.all-len(left.fit))
}

// check runs the case on db, and then looks at db's invariants.
func (c testCase) check(t testing.TB, db DB) { c.checkIn(context.Background(), t, db, nil) }

// checkIn is check with a context for the calls of the case, and with what the store may lack.
func (c testCase) checkIn(ctx context.Context, t testing.TB, db DB, may *lacking) {
	t.Cleanup(func() {
		db.Invariants(t)
		if t.Failed() {
			t.Logf("the contract says:\n\t%s", strings.ReplaceAll(c.says, "\n", "\n\t"))
		}
	})
	f := newFixture(t, db)
	f.ctx, f.lacking = ctx, may
	c.run(f)
}
