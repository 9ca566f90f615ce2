package storagetest

import (
	"errors"

	"github.com/errandq/errand/storage"
)

// errDeclined is what a function returns so that its transaction is rolled back.
var errDeclined = errors.New("declined")

// transacts returns s as what takes part in transactions, or skips the case.
func (f *fixture) transacts(s storage.Store) storage.TxEnqueuer {
	f.Helper()
	t, ok := s.(storage.TxEnqueuer)
	if !ok {
		f.skip("storage.TxEnqueuer")
	}
	return t
}

// commits runs fn in a transaction of s that has to commit.
func (f *fixture) commits(s storage.Store, fn func(tx any)) {
	f.Helper()
	f.must(f.transacts(s).Tx(f.ctx, func(tx any) error {
		fn(tx)
		return nil
	}))
}

// declines runs fn in a transaction of s, and has it rolled back by an error.
func (f *fixture) declines(s storage.Store, fn func(tx any)) {
	f.Helper()
	err := f.transacts(s).Tx(f.ctx, func(tx any) error {
		fn(tx)
		return errDeclined
	})
	if !errors.Is(err, errDeclined) {
		f.Fatalf("Tx returned %v, want the error of its function", err)
	}
}

// panics runs fn in a transaction of s, and has it rolled back by a panic.
func (f *fixture) panics(s storage.Store, fn func(tx any)) {
	f.Helper()
	t := f.transacts(s)
	defer func() {
		f.Helper()
		if r := recover(); r != any(errDeclined) {
			f.Errorf("Tx panicked with %v, want the panic of its function", r)
		}
	}()
	err := t.Tx(f.ctx, func(tx any) error {
		fn(tx)
		panic(errDeclined)
	})
	f.Errorf("Tx returned %v for a function that panics", err)
}

// vanishes are the ways in which a transaction is rolled back.
func (f *fixture) vanishes() map[string]func(storage.Store, func(tx any)) {
	return map[string]func(storage.Store, func(tx any)){"an error": f.declines, "a panic": f.panics}
}

// failsToCommit runs fn in a transaction of s that must not commit, though fn returns nil.
func (f *fixture) failsToCommit(what string, s storage.Store, fn func(tx any)) {
	f.Helper()
	err := f.transacts(s).Tx(f.ctx, func(tx any) error {
		fn(tx)
		return nil
	})
	if err == nil {
		f.Errorf("%s: the transaction has committed", what)
	}
}

// addTx is EnqueueTx of jobs that are no duplicates, and returns their IDs.
func (f *fixture) addTx(s storage.Store, tx any, jobs ...storage.NewJob) (ids []storage.ID) {
	f.Helper()
	out, err := f.transacts(s).EnqueueTx(f.ctx, tx, f.now, jobs)
	f.must(err)
	if len(out) != len(jobs) {
		f.Fatalf("EnqueueTx of %d jobs returned %d answers", len(jobs), len(out))
	}
	for i, e := range out {
		if e.Duplicate || e.ID.IsZero() {
			f.Fatalf("EnqueueTx answered job %d with %+v", i, e)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// begun enqueues a job, leases it to s and begins its handler.
func (f *fixture) begun(s storage.Store, changes ...func(*storage.NewJob)) storage.Leased {
	f.Helper()
	l := f.run(s, changes...)
	f.begins(s, l)
	return l
}

// begins begins the handler of a lease, if s notes that.
func (f *fixture) begins(s storage.Store, l storage.Leased) {
	f.Helper()
	if m, ok := s.(storage.Marker); ok {
		f.must(m.Started(l.Lease, f.now))
	}
}

// finishTx is FinishTx for a job that is kept, without committed.
func (f *fixture) finishTx(s storage.Store, tx any, l storage.Leased, want storage.ItemResult) {
	f.Helper()
	f.finishTxFor(s, tx, l, kept(keep), nil, want)
}

func (f *fixture) finishTxFor(s storage.Store, tx any, l storage.Leased, r storage.Retention, committed func(), want storage.ItemResult) {
	f.Helper()
	got, _, err := finishOneTx(f.transacts(s))(f.ctx, tx, f.now, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone}, r, committed)
	f.must(err)
	if got != want {
		f.Errorf("FinishTx returned %d, want %d", got, want)
	}
}

// looks checks what LookTx says; a nil tx is none.
func (f *fixture) looks(what string, s storage.Store, tx any, l storage.Leased, want storage.ItemResult) {
	f.Helper()
	if got, err := f.transacts(s).LookTx(f.ctx, tx, l.Lease); err != nil || got != want {
		f.Errorf("%s: LookTx returned %d, %v; want %d", what, got, err, want)
	}
}

// isTo checks the state of jobs as s sees them; an empty state means that they are not there.
func (f *fixture) isTo(s storage.Store, want storage.State, ids ...storage.ID) {
	f.Helper()
	was := f.s
	f.s = s
	defer func() { f.s = was }()
	f.is(want, ids...)
}
