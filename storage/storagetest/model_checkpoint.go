package storagetest

import (
	"bytes"
	"context"

	"github.com/errandq/errand/storage"
)

// Checkpoint implements [storage.Checkpointer].
func (in *instance) Checkpoint(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
	if err := in.m.beginWrite(ctx, in); err != nil {
		return 0, err
	}
	defer in.m.mu.Unlock()
	return in.checkpoint(in, c), nil
}

// CheckpointTx implements [storage.TxEnqueuer].
func (in *instance) CheckpointTx(ctx context.Context, tx any, c storage.Checkpoint) (r storage.ItemResult, err error) {
	err = in.inside(ctx, tx, func(t *transaction, own *instance) error {
		if r = own.checkpoint(in, c); r != storage.Applied {
			t.failed = errNotEnded
		}
		return nil
	})
	if t, ok := tx.(*transaction); ok && err != nil {
		t.fail(err)
	}
	return r, err
}

// under returns what has become of the lease that a step is tied to, if it is.
func (in *instance) under(u *storage.Under) storage.ItemResult {
	if u == nil {
		return storage.Applied
	}
	return in.standing(in, u.Lease)
}

// keepPlace keeps where the job has got to that it is a part of.
func (in *instance) keepPlace(u *storage.Under, step *storage.Step) {
	if u == nil || u.Place == nil {
		return
	}
	if c := u.Place(step); c.Data != nil {
		c.Lease = u.Lease
		in.checkpoint(in, c)
	}
}

// standing returns whether holder holds a lease, and its job is not cancelled.
func (in *instance) standing(holder *instance, l storage.Lease) storage.ItemResult {
	j := in.m.held(l)
	switch {
	case j == nil:
		return in.notHeld(l)
	case j.lease.holder != holder:
		return storage.Lost
	case j.Cancelling:
		return storage.Cancelling
	}
	return storage.Applied
}

// checkpoint keeps where a job has got to, if holder holds the lease, as in sees it.
func (in *instance) checkpoint(holder *instance, c storage.Checkpoint) storage.ItemResult {
	if r := in.standing(holder, c.Lease); r != storage.Applied {
		return r
	}
	j := in.m.held(c.Lease)
	if j.Crashes > 0 && j.resets < storage.CheckpointResets && !bytes.Equal(j.Checkpoint, c.Data) {
		j.Crashes = 0
		j.resets++
	}
	j.Checkpoint = bytes.Clone(c.Data)
	j.keepProgress(c.Progress)
	return storage.Applied
}

// keepProgress keeps how far j has got, if that is known.
func (j *job) keepProgress(p *storage.Progress) {
	if p != nil {
		kept := *p
		kept.At = floor(p.At)
		j.Progress = &kept
	}
}

// keepEnd keeps what the attempt has brought that ended j.
func (j *job) keepEnd(f *storage.Finish) {
	if j.State == storage.Done {
		j.Result = bytes.Clone(f.Result)
	}
	j.keepProgress(f.Progress)
}

// States implements [storage.Checkpointer].
func (in *instance) States(ctx context.Context, ids []storage.ID) ([]storage.State, error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	all := make([]storage.State, len(ids))
	for i, id := range ids {
		if j := in.m.find(id); j != nil {
			all[i] = j.State
		}
	}
	return all, nil
}
