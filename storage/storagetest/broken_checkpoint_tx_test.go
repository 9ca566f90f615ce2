package storagetest

import (
	"bytes"
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// checkpointing has f change the transaction, or the answer, after each CheckpointTx.
func checkpointing(f func(in *instance, t *transaction, c *storage.Checkpoint, r *storage.ItemResult, err *error)) func(in *instance) storage.Store {
	return transacting(func(in *instance, b *faultyTx) {
		b.checkpointTx = func(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error) {
			r, err := in.CheckpointTx(ctx, tx, c)
			if t, ok := tx.(*transaction); ok {
				in.m.locked(func() { f(in, t, &c, &r, &err) })
			}
			return r, err
		}
	})
}

// carriesOn lets a transaction commit in which CheckpointTx had this answer.
func carriesOn(with storage.ItemResult) func(in *instance) storage.Store {
	return checkpointing(func(_ *instance, t *transaction, _ *storage.Checkpoint, r *storage.ItemResult, _ *error) {
		if *r == with {
			t.failed = nil
		}
	})
}

// endsTx has f change what FinishTx is to end.
func endsTx(f func(end *storage.Finish)) func(in *instance) storage.Store {
	return transacting(func(in *instance, b *faultyTx) {
		b.finishTx = func(ctx context.Context, tx any, now time.Time, end storage.Finish, keep storage.Retention, committed func()) (storage.ItemResult, []storage.Enqueued, error) {
			f(&end)
			return in.finishTx(ctx, tx, now, end, keep, committed)
		}
	})
}

var checkpointTxFaults = []fault{
	{"a checkpoint of a transaction is there at once", "checkpointtx_commits", checkpointing(func(in *instance, t *transaction, _ *storage.Checkpoint, _ *storage.ItemResult, _ *error) {
		in.m.data = t.copied.clone()
	})},
	{"a checkpoint of a transaction is forgotten", "checkpointtx_commits", transacting(func(_ *instance, b *faultyTx) {
		b.checkpointTx = func(context.Context, any, storage.Checkpoint) (storage.ItemResult, error) {
			return storage.Applied, nil
		}
	})},
	{"a checkpoint of a transaction outlives a rollback", "checkpointtx_commits", transacting(func(in *instance, b *faultyTx) {
		said := map[storage.Lease]storage.Checkpoint{}
		b.checkpointTx = func(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error) {
			said[c.Lease] = storage.Checkpoint{Lease: c.Lease, Data: bytes.Clone(c.Data)}
			return in.CheckpointTx(ctx, tx, c)
		}
		b.tx = func(ctx context.Context, fn func(tx any) error) error {
			defer in.m.locked(func() {
				for _, c := range said {
					in.checkpoint(in, c)
				}
			})
			return in.Tx(ctx, fn)
		}
	})},
	{"a checkpoint of a transaction leaves the crashes", "checkpointtx_commits", checkpointing(func(in *instance, t *transaction, c *storage.Checkpoint, _ *storage.ItemResult, _ *error) {
		if was, j := in.m.jobs[c.Key], t.copied.jobs[c.Key]; was != nil && j != nil {
			j.Crashes = was.Crashes
		}
	})},
	{"FinishTx leaves the result out", "checkpointtx_with_end", endsTx(func(end *storage.Finish) { end.Result = nil })},
	{"FinishTx leaves the progress out", "checkpointtx_with_end", endsTx(func(end *storage.Finish) { end.Progress = nil })},
	{"the progress of CheckpointTx is left out", "checkpointtx_with_end", transacting(func(in *instance, b *faultyTx) {
		b.checkpointTx = func(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error) {
			c.Progress = nil
			return in.CheckpointTx(ctx, tx, c)
		}
	})},
	{"a job that FinishTx has ended has a checkpoint", "checkpointtx_with_end", finishing(func(_ *instance, t *transaction, was *data, l storage.Lease, _ *storage.ItemResult) {
		if j, before := t.copied.jobs[l.Key], was.jobs[l.Key]; j != nil && before != nil {
			j.Checkpoint = before.Checkpoint
		}
	})},
	{"a lost checkpoint lets the transaction commit", "checkpointtx_spoils", carriesOn(storage.Lost)},
	{"a checkpoint of a cancelled job lets the transaction commit", "checkpointtx_spoils", carriesOn(storage.Cancelling)},
	{"a checkpoint of an ended job lets the transaction commit", "checkpointtx_spoils", carriesOn(storage.Ended)},
	{"CheckpointTx calls lost what has ended", "checkpointtx_spoils", checkpointing(func(_ *instance, _ *transaction, _ *storage.Checkpoint, r *storage.ItemResult, _ *error) {
		if *r == storage.Ended {
			*r = storage.Lost
		}
	})},
	{"Checkpoint calls lost what has ended", "checkpointtx_spoils", saying(nil, func(_ *storage.Checkpoint, _, _ *job, r *storage.ItemResult) {
		if *r == storage.Ended {
			*r = storage.Lost
		}
	})},
	{"after an error of CheckpointTx the transaction commits", "checkpointtx_spoils", checkpointing(func(_ *instance, t *transaction, _ *storage.Checkpoint, _ *storage.ItemResult, err *error) {
		if *err != nil {
			t.failed = nil
		}
	})},
	{"any transaction will do for a checkpoint", "tx_wrong", transacting(func(in *instance, b *faultyTx) {
		b.checkpointTx = func(ctx context.Context, tx any, c storage.Checkpoint) (storage.ItemResult, error) {
			if _, ok := tx.(*transaction); !ok {
				return in.Checkpoint(ctx, c)
			}
			return in.CheckpointTx(ctx, tx, c)
		}
	})},
}
