package storagetest

import (
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// txCall is a call in a transaction: one of EnqueueTx, CancelTx, CheckpointTx and FinishTx.
type txCall struct {
	jobs        []storage.NewJob
	cancel      bool
	real, model storage.ID // of the job to cancel
	finish      grant
	checkpoint  *storage.Checkpoint // instead of the end
	keep        storage.Retention
}

// txAnswer is what a call has returned.
type txAnswer struct {
	added  []storage.Enqueued
	state  storage.State
	result storage.ItemResult
	err    error
}

// transact has some calls take effect together, or not at all.
func (h *history) transact(t *rapid.T) {
	p := h.pair(t)
	var calls []txCall
	for range rapid.IntRange(0, 4).Draw(t, "calls") {
		if c, ok := h.txCall(t, p); ok {
			calls = append(calls, c)
		}
	}
	declines := rapid.IntRange(0, 3).Draw(t, "declines") == 0
	got, told, err := h.transaction(p.real, calls, declines, false)
	want, wantTold, wantErr := h.transaction(p.model, calls, declines, true)
	h.both("number of calls that came back", len(got), len(want))
	h.both("number of leases told to have ended", told, wantTold)
	if (err == nil) != (wantErr == nil) || errors.Is(err, errDeclined) != errors.Is(wantErr, errDeclined) {
		h.Fatalf("Tx returned %v, want %v", err, wantErr)
	}
	ids := map[storage.ID]storage.ID{} // of the transaction
	for i, w := range want {
		g := got[i]
		h.sameTxError(g.err, w.err)
		h.both("FinishTx or CheckpointTx", g.result, w.result)
		h.both("CancelTx", g.state, w.state)
		h.both("number of jobs", len(g.added), len(w.added))
		for k, e := range w.added {
			if !e.Duplicate {
				ids[g.added[k].ID] = e.ID
				if err == nil {
					h.inserted(g.added[k].ID, e.ID)
				}
			}
			if id, ok := ids[g.added[k].ID]; ok {
				g.added[k].ID = id
			} else {
				g.added[k].ID = h.byReal[g.added[k].ID]
			}
		}
		if len(w.added) > 0 {
			h.both("EnqueueTx", g.added, w.added)
		}
	}
	h.sameEvicted(p)
	h.handedOver(p) // nothing
	h.forget(p)
}

// txCall draws a call in a transaction of p.
func (h *history) txCall(t *rapid.T, p *pair) (c txCall, ok bool) {
	c.keep = anyRetention(t)
	switch rapid.IntRange(0, 4).Draw(t, "call") {
	case 0:
		for range rapid.IntRange(1, 3).Draw(t, "jobs") {
			c.jobs = append(c.jobs, h.newJob(t))
		}
		return c, true
	case 1:
		c.cancel = true
		c.real, c.model = h.any(t)
		return c, true
	}
	if rapid.Bool().Draw(t, "checkpoint") {
		c.checkpoint = new(h.anyCheckpoint(t))
	}
	c.finish, ok = h.lease(t, p)
	return c, ok && h.handled(p, c.finish)
}

// handled has the handler of a lease begin, if it is held. It reports false for a lease which
// has no handler that runs.
func (h *history) handled(p *pair, g grant) bool {
	j := h.model.held(g.model)
	if j == nil {
		return true
	}
	if j.lease.ended || j.lease.fate != 0 || j.lease.holder != p.model {
		return false
	}
	if !j.lease.started {
		h.must(p.real.(storage.Marker).Started(g.real, h.now))
		h.must(p.model.(storage.Marker).Started(g.model, h.now))
	}
	return true
}

// transaction makes the calls in a transaction of s. It ends with the first FinishTx that does
// not end its lease. told is how often a committed was called.
func (h *history) transaction(s storage.Store, calls []txCall, declines, model bool) (out []txAnswer, told int, err error) {
	in := s.(storage.TxEnqueuer)
	err = in.Tx(h.ctx, func(tx any) error {
		for _, c := range calls {
			var a txAnswer
			id, lease := c.real, c.finish.real
			if model {
				id, lease = c.model, c.finish.model
			}
			switch {
			case c.jobs != nil:
				a.added, a.err = in.EnqueueTx(h.ctx, tx, h.now, slices.Clone(c.jobs))
			case c.cancel:
				a.state, a.err = in.CancelTx(h.ctx, tx, h.now, id, c.keep)
			default:
				look, err := in.LookTx(h.ctx, tx, lease)
				h.must(err)
				if c.checkpoint != nil {
					c.checkpoint.Lease = lease
					a.result, a.err = in.CheckpointTx(h.ctx, tx, *c.checkpoint)
					h.both("LookTx before CheckpointTx", look, a.result)
					break
				}
				end := storage.Finish{Lease: lease, Outcome: storage.OutcomeDone}
				a.result, _, a.err = finishOneTx(in)(h.ctx, tx, h.now, end, c.keep, func() { told++ })
				h.both("LookTx before FinishTx", look, a.result)
			}
			if out = append(out, a); a.result != storage.Applied {
				return nil // and yet it cannot commit
			}
		}
		if declines {
			return errDeclined
		}
		return nil
	})
	return out, told, err
}

// sameTxError is sameError, also for a queue that is full.
func (h *history) sameTxError(got, want error) {
	h.Helper()
	var full *storage.QueueFullError
	if !errors.As(want, &full) {
		h.sameError(got, want)
		return
	}
	if errors.As(got, &full) && full.Free > 0 {
		full.Free = modelFree
	}
	h.both("an error", got, want)
}

// forgetEnded forgets leases that have ended by FinishTx, once an Exchange has said so of
// their outcome: the Store may do so too.
func (h *history) forgetEnded(finish []storage.Finish, results []storage.ItemResult) {
	h.leases = slices.DeleteFunc(h.leases, func(g grant) bool {
		i := slices.IndexFunc(finish, func(f storage.Finish) bool { return f.Lease == g.real })
		return i >= 0 && results[i] == storage.Ended
	})
}
