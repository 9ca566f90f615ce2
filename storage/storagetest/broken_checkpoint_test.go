package storagetest

import (
	"bytes"
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// saying has ask change what Checkpoint is told, and f what it has done to a job that there is,
// given what the job was, and what it answers.
func saying(ask func(in *instance, c *storage.Checkpoint), f func(c *storage.Checkpoint, was, j *job, r *storage.ItemResult)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.checkpoint = func(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
			if ask != nil {
				in.m.locked(func() { ask(in, &c) })
			}
			was := in.m.copied()
			r, err := in.Checkpoint(ctx, c)
			in.m.locked(func() {
				if j := in.m.jobs[c.Key]; f != nil && j != nil && err == nil {
					f(&c, was[c.Key], j, &r)
				}
			})
			return r, err
		}
		return h
	}
}

// copied returns the jobs as they are.
func (m *Memory) copied() (jobs map[int64]*job) {
	m.locked(func() { jobs = copies(m.jobs) })
	return jobs
}

// altering has f change what an Exchange, a Cancel, a Redrive or an Enqueue has done to each job
// that there was, given what it was.
func altering(f func(was, j *job)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		changes := func() func() {
			was := in.m.copied()
			return func() {
				in.m.locked(func() {
					for key, j := range in.m.jobs {
						if was[key] != nil {
							f(was[key], j)
						}
					}
				})
			}
		}
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			defer changes()()
			return in.Exchange(ctx, now, x)
		}
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			defer changes()()
			return in.Cancel(ctx, now, id, keep)
		}
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			defer changes()()
			return in.Redrive(ctx, now, sel, queue)
		}
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			defer changes()()
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}
}

// outlives has the checkpoint of a job outlive its end in a state.
func outlives(state storage.State) func(in *instance) storage.Store {
	return altering(func(was, j *job) {
		if j.State == state {
			j.Checkpoint = was.Checkpoint
		}
	})
}

// loses has f change the jobs that an exchange has ended with an outcome.
func loses(o storage.Outcome, f func(j *job)) func(in *instance) storage.Store {
	return after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, fin := range x.Finish {
			if j := m.jobs[fin.Key]; j != nil && fin.Outcome == o {
				f(j)
			}
		}
	})
}

// forgetful are stores in each of which another outcome drops the checkpoint.
func forgetful() (all []fault) {
	for _, o := range putBack {
		all = append(all, fault{"the checkpoint is lost with the outcome " + o.String(), "checkpoint_kept", loses(o, func(j *job) { j.Checkpoint = nil })})
	}
	return all
}

// leasedAs has f change each lease, given its job.
func leasedAs(f func(j *job, l *storage.Leased)) func(in *instance) storage.Store {
	return after(func(m *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i := range res.Leased {
			f(m.jobs[res.Leased[i].Key], &res.Leased[i])
		}
	})
}

// redriving has ask change what Redrive is asked, and answer what it has done.
func redriving(ask func(sel *storage.Selection), answer func(m *Memory, sel *storage.Selection, step *storage.Step)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			if ask != nil {
				ask(&sel)
			}
			step, err := in.Redrive(ctx, now, sel, queue)
			if answer != nil {
				in.m.locked(func() { answer(in.m, &sel, &step) })
			}
			return step, err
		}
		return h
	}
}

var checkpointFaults = append(forgetful(), []fault{
	{"the first checkpoint stays", "checkpoint_kept", saying(nil, func(_ *storage.Checkpoint, was, j *job, _ *storage.ItemResult) {
		if was.Checkpoint != nil {
			j.Checkpoint = was.Checkpoint
		}
	})},
	{"the checkpoint is the caller's", "checkpoint_kept", saying(nil, func(c *storage.Checkpoint, _, j *job, _ *storage.ItemResult) {
		j.Checkpoint = c.Data
	})},
	{"the checkpoint of a lease is the store's", "checkpoint_kept", leasedAs(func(j *job, l *storage.Leased) { l.Checkpoint = j.Checkpoint })},
	{"a lease takes the checkpoint away", "checkpoint_kept", leasedAs(func(j *job, _ *storage.Leased) { j.Checkpoint = nil })},
	{"an urgent job is leased without its checkpoint", "checkpoint_held", leasedAs(func(_ *job, l *storage.Leased) {
		if l.Urgent {
			l.Checkpoint = nil
		}
	})},
	{"a hold drops the checkpoints of its lane", "checkpoint_held", func(in *instance) storage.Store {
		h := sound(in)
		h.hold = func(ctx context.Context, now time.Time, n storage.Hold) error {
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.Checkpoint = nil
				}
			})
			return in.Hold(ctx, now, n)
		}
		return h
	}},
	{"the checkpoint dies with its process", "checkpoint_reclaimed", reclaiming(func(in *instance, _ time.Time) {
		for _, j := range in.m.jobs {
			if j.State == storage.Running && j.lease.holder != in {
				j.Checkpoint = nil
			}
		}
	})},
	{"what is reclaimed comes without its checkpoint", "checkpoint_reclaimed", func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			out, err := in.Reclaim(ctx, now, mono, lease, limit)
			for i := range out {
				out[i].Checkpoint = nil
			}
			return out, err
		}
		return h
	}},
	{"checkpoints are gone with Close", "checkpoint_durable", func(in *instance) storage.Store {
		h := sound(in)
		h.closing = func() error {
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.Checkpoint = nil
				}
			})
			return in.Close()
		}
		return h
	}},
	{"a dead job has no checkpoint", "checkpoint_dead", loses(storage.OutcomeDead, func(j *job) { j.Checkpoint = nil })},
	{"every redrive is from the start", "checkpoint_dead", redriving(func(sel *storage.Selection) { sel.FromStart = true }, nil)},
	{"no redrive is from the start", "checkpoint_dead", redriving(func(sel *storage.Selection) { sel.FromStart = false }, nil)},
	{"FromStart drops the checkpoints of duplicates", "checkpoint_dead", redriving(nil, func(m *Memory, sel *storage.Selection, step *storage.Step) {
		for _, id := range step.Duplicates {
			if sel.FromStart {
				m.find(id).Checkpoint = nil
			}
		}
	})},
	{"a job that is done has a checkpoint", "checkpoint_ended", outlives(storage.Done)},
	{"a cancelled job has a checkpoint", "checkpoint_ended", outlives(storage.Cancelled)},
	{"an expired job has a checkpoint", "checkpoint_ended", outlives(storage.Expired)},
	{"a job that dies at its StartBy has no checkpoint", "checkpoint_ended", altering(func(_, j *job) {
		if j.State == storage.Dead && j.Reason == storage.ReasonExpired {
			j.Checkpoint = nil
		}
	})},
	{"the wish to cancel drops the checkpoint", "checkpoint_ended", altering(func(_, j *job) {
		if j.Cancelling {
			j.Checkpoint = nil
		}
	})},
	{"the checkpoint outlives the args", "checkpoint_args", changing(func(_ *Memory, _ *storage.Edit, was, j *job) { j.Checkpoint = was.Checkpoint }, nil)},
	{"the checkpoint of a dead job outlives its args", "checkpoint_args", changing(func(_ *Memory, _ *storage.Edit, was, j *job) {
		if j.State == storage.Dead {
			j.Checkpoint = was.Checkpoint
		}
	}, nil)},
	{"any change drops the checkpoint", "checkpoint_args", changing(func(_ *Memory, _ *storage.Edit, _, j *job) { j.Checkpoint = nil }, nil)},
	{"the same args drop the checkpoint", "checkpoint_args", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		if e.Args != nil {
			j.Checkpoint = nil
		}
	}, nil)},
	{"a job that was replaced has a checkpoint", "checkpoint_replaced", altering(func(was, j *job) {
		if j.live() {
			j.Checkpoint = was.Checkpoint
		}
	})},
	{"each duplicate drops the checkpoint of the holder", "checkpoint_replaced", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			in.m.locked(func() {
				for _, e := range out {
					if j := in.m.find(e.ID); e.Duplicate && j != nil {
						j.Checkpoint = nil
					}
				}
			})
			return out, err
		}
		return h
	}},
	{"a checkpoint leaves the crashes", "checkpoint_crashes", saying(nil, func(_ *storage.Checkpoint, was, j *job, _ *storage.ItemResult) { j.Crashes = was.Crashes })},
	{"the same checkpoint sets the crashes to zero", "checkpoint_crashes", saying(nil, func(_ *storage.Checkpoint, _, j *job, _ *storage.ItemResult) { j.Crashes = 0 })},
	{"a checkpoint sets the retries to zero", "checkpoint_crashes", saying(nil, func(_ *storage.Checkpoint, _, j *job, _ *storage.ItemResult) { j.Retry = 0 })},
	{"crashes are set to zero without end", "checkpoint_resets", saying(nil, func(_ *storage.Checkpoint, _, j *job, _ *storage.ItemResult) { j.resets = 0 })},
	{"each checkpoint counts as having set crashes to zero", "checkpoint_resets", saying(nil, func(_ *storage.Checkpoint, was, j *job, _ *storage.ItemResult) {
		j.resets = was.resets + 1
	})},
	{"crashes are set to zero once more", "checkpoint_resets", saying(nil, func(_ *storage.Checkpoint, was, j *job, _ *storage.ItemResult) {
		if was.resets == storage.CheckpointResets && was.Crashes == 1 {
			j.Crashes = 0
		}
	})},
	{"a redrive forgets how often crashes were set to zero", "checkpoint_resets", redriving(nil, func(m *Memory, _ *storage.Selection, _ *storage.Step) {
		for _, j := range m.jobs {
			j.resets = 0
		}
	})},
	{"no fence in Checkpoint", "checkpoint_answers", saying(func(in *instance, c *storage.Checkpoint) { current(in.m, &c.Lease) }, nil)},
	{"a checkpoint of a lease that another store holds", "checkpoint_answers", func(in *instance) storage.Store {
		h := sound(in)
		h.checkpoint = func(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
			holder := in
			in.m.locked(func() {
				if j := in.m.held(c.Lease); j != nil {
					holder = j.lease.holder
				}
			})
			return holder.Checkpoint(ctx, c)
		}
		return h
	}},
	{"a late checkpoint is kept", "checkpoint_answers", saying(nil, func(c *storage.Checkpoint, _, j *job, r *storage.ItemResult) {
		if *r == storage.Lost {
			j.Checkpoint = bytes.Clone(c.Data)
		}
	})},
	{"late progress is kept", "checkpoint_answers", saying(nil, func(c *storage.Checkpoint, _, j *job, _ *storage.ItemResult) { j.keepProgress(c.Progress) })},
	{"a checkpoint of a job that was asked to stop", "checkpoint_answers", saying(nil, func(c *storage.Checkpoint, _, j *job, r *storage.ItemResult) {
		if *r == storage.Cancelling {
			j.Checkpoint = bytes.Clone(c.Data)
		}
	})},
	{"that a job was asked to stop is not said", "checkpoint_answers", saying(nil, func(_ *storage.Checkpoint, _, _ *job, r *storage.ItemResult) {
		if *r == storage.Cancelling {
			*r = storage.Applied
		}
	})},
	{"checkpoints weigh nothing", "checkpoint_bytes", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			was := in.m.copied()
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					j.Checkpoint = nil
				}
			})
			res, err := in.Exchange(ctx, now, x)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					j.Checkpoint = was[key].Checkpoint
				}
			})
			return res, err
		}
		return h
	}},
	{"a job may call Checkpoint in the function of Tx", "tx_busy", transacting(func(in *instance, b *faultyTx) {
		b.checkpoint = func(ctx context.Context, c storage.Checkpoint) (storage.ItemResult, error) {
			var t *transaction
			if in.m.locked(func() { t = in.m.open }); t != nil {
				return in.CheckpointTx(ctx, t, c)
			}
			return in.Checkpoint(ctx, c)
		}
	})},
}...)
