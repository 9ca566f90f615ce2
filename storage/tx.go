package storage

import (
	"context"
	"time"
)

// TxEnqueuer is implemented by a Store that can take part in a transaction of
// the application. Each Store says of which type its tx is, such as [database/sql.Tx]; any
// other is a transaction on another database.
type TxEnqueuer interface {
	// EnqueueTx is Enqueue inside tx: the jobs exist if tx commits. It returns
	// [ErrWrongDatabase] for a transaction on another database.
	EnqueueTx(ctx context.Context, tx any, now time.Time, jobs []NewJob) ([]Enqueued, error)
	// CancelTx is Cancel inside tx: it takes effect if tx commits, and the
	// holder of a running job learns of it with its next extension after that.
	// It returns [ErrWrongDatabase] for a transaction on another database.
	CancelTx(ctx context.Context, tx any, now time.Time, id ID, keep Retention) (State, error)
	// ConfigureTx is Configure inside tx: each call of any instance that begins after tx has
	// committed obeys the settings. It returns [ErrWrongDatabase] for a transaction on another
	// database.
	ConfigureTx(ctx context.Context, tx any, lane Lane, s Settings) error
	// FinishTx ends leases with OutcomeDone inside tx, in their order, as an Exchange ends them, with
	// their Then: it takes effect if tx commits. A lease is at most once in ends. results and then are as in
	// [ExchangeResult]. An answer is [Lost] if the lease is not held, [Ended] if it has ended in this
	// transaction or by another FinishTx, and [Cancelling] if the job was asked to stop. An answer that is not
	// [Applied] is the last one. After it, or after an error, tx cannot commit any more.
	// committed, if not nil, is called for each index of ends when tx has committed, before an Exchange of this Store
	// can find the lease ended. For a transaction that Tx has not begun, it may not be called.
	// FinishTx and LookTx return [ErrWrongDatabase] for a transaction on another database.
	//
	// The Store whose FinishTx it was knows of a lease that it is [Ended] while the handler of
	// the lease runs, see [Marker]. If committed was not called, it knows that after the
	// handler too, until it has said so. In all other cases the answer may be Lost.
	FinishTx(ctx context.Context, tx any, now time.Time, ends []Finish, keep Retention, committed func(i int)) (results []ItemResult, then map[int][]Enqueued, err error)
	// CheckpointTx is Checkpoint inside tx: it is kept if tx commits. If the answer is not
	// [Applied], or after an error, tx cannot commit any more. It returns [ErrWrongDatabase]
	// for a transaction on another database.
	CheckpointTx(ctx context.Context, tx any, c Checkpoint) (ItemResult, error)
	// PublishMessagesTx is PublishMessages inside tx: what it wrote is there if tx commits.
	// It returns [ErrWrongDatabase] for a transaction on another database. This and the next three
	// are called only if the Store is a [Topics].
	PublishMessagesTx(ctx context.Context, tx any, now time.Time, publications []Publication) ([]PublishResult, error)
	// PutEntriesTx, EntryTx and EntriesTx are PutEntries, Entry and Entries inside tx: what is
	// written is there if tx commits, and what is read is as tx sees it. No other transaction
	// writes from the first of these calls on until tx has ended. A Revision that was given in
	// a tx which did not commit may be given again. They return [ErrWrongDatabase] for a
	// transaction on another database.
	PutEntriesTx(ctx context.Context, tx any, now time.Time, entries []Entry) (revision int64, err error)
	EntryTx(ctx context.Context, tx any, class, name string) (Entry, error)
	EntriesTx(ctx context.Context, tx any, class, family, after string, limit int) (entries []Entry, revision int64, err error)
	// SpoilTx has tx never commit, whoever ignores err. It changes nothing in a transaction on
	// another database whose type is not that of the Store.
	SpoilTx(tx any, err error)
	// LookTx says whether a lease is held, as tx sees it, or, with a nil tx, as was committed:
	// [Applied], or one of the other answers of FinishTx. It changes nothing.
	LookTx(ctx context.Context, tx any, l Lease) (ItemResult, error)
	// Tx runs fn in a write transaction on the store's database and commits
	// it if fn returns nil; otherwise, or if fn panics, it is rolled back. It
	// may be rolled back also if the database failed in an EnqueueTx or CancelTx
	// in it, and is if the answer to a FinishTx or CheckpointTx in it was not [Applied]; then
	// Tx returns an error. Another call of the Store that writes, made by fn itself, returns
	// [ErrBusy] at once: it would wait for fn.
	Tx(ctx context.Context, fn func(tx any) error) error
}
