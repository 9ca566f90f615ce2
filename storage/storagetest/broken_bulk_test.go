package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// elsewhere has f work with the jobs of the bulk queue in another one.
func elsewhere(m *Memory, f func()) {
	const other = "another"
	rename := func(from, to string) {
		m.locked(func() {
			for _, j := range m.jobs {
				if j.Queue == from {
					j.Queue = to
				}
			}
		})
	}
	rename(storage.BulkQueue, other)
	f()
	rename(other, storage.BulkQueue)
}

// unlimited drops the Limit of selections.
func unlimited(sel storage.Selection) storage.Selection {
	sel.Limit = 0
	return sel
}

// untied drops the lease of selections.
func untied(sel storage.Selection) storage.Selection {
	sel.Under = nil
	return sel
}

var bulkFaults = []fault{
	{"a step is not tied to its lease", "step_under", func(in *instance) storage.Store {
		h := sound(in)
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			return in.Delete(ctx, untied(sel))
		}
		return h
	}},
	{"a step goes on for a job that was cancelled", "step_under", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := in.Redrive(ctx, now, sel, queue)
			if step.Refused == storage.Cancelling {
				return in.Redrive(ctx, now, untied(sel), queue)
			}
			return step, err
		}
		return h
	}},
	{"a step keeps no place", "step_place", func(in *instance) storage.Store {
		h := sound(in)
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			if sel.Under != nil {
				sel.Under = &storage.Under{Lease: sel.Under.Lease}
			}
			return in.Delete(ctx, sel)
		}
		return h
	}},
	{"a step says no number of those it was about", "step_place", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := in.Redrive(ctx, now, sel, queue)
			step.Taken = 0
			return step, err
		}
		return h
	}},
	{"a step without a place forgets the one before", "step_place_none", func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			if u := sel.Under; u != nil {
				sel.Under = &storage.Under{Lease: u.Lease, Place: func(*storage.Step) storage.Checkpoint { return storage.Checkpoint{Data: []byte("nowhere")} }}
			}
			return in.Change(ctx, now, sel, e)
		}
		return h
	}},
	{"a list of all has bulk jobs", "bulk_filter", func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, f storage.Filter, after string, limit int) (page storage.Page, err error) {
			if f.Queue != "" || f.Kind != "" {
				return in.Jobs(ctx, f, after, limit)
			}
			elsewhere(in.m, func() { page, err = in.Jobs(ctx, f, after, limit) })
			return page, err
		}
		return h
	}},
	{"a redrive of all takes bulk jobs", "bulk_filter", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (step storage.Step, err error) {
			if sel.Filter.Queue != "" || len(sel.IDs) > 0 {
				return in.Redrive(ctx, now, sel, queue)
			}
			elsewhere(in.m, func() { step, err = in.Redrive(ctx, now, sel, queue) })
			return step, err
		}
		return h
	}},
	{"caps keep bulk jobs out", "bulk_caps", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			var full *storage.QueueFullError
			in.m.locked(func() {
				n := jobs[0]
				n.Queue = "another"
				e := in.m.newEvictions()
				full = in.m.makeRoom(&n, e)
			})
			if full != nil && jobs[0].Queue == storage.BulkQueue {
				return nil, full
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"settings of all are for bulk jobs", "bulk_settings", capping(func(m *Memory, lane storage.Lane, s storage.Settings) {
		if of := (storage.Lane{Queue: storage.BulkQueue}); lane == (storage.Lane{}) && m.settings[of] == nil {
			m.settings[of] = s
		}
	})},
	{"nobody is told of bulk jobs", "bulk_notify", func(in *instance) storage.Store {
		h := sound(in)
		h.notify = func(f func(storage.Event)) func() {
			return in.Notify(func(e storage.Event) {
				e.Schedules = false
				f(e)
			})
		}
		return h
	}},
	{"a redrive is not limited", "redrive_limit", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			return in.Redrive(ctx, now, unlimited(sel), queue)
		}
		return h
	}},
	{"a delete of finished jobs is not limited", "redrive_limit", func(in *instance) storage.Store {
		h := sound(in)
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			if slices.Contains(sel.Filter.States, storage.Done) {
				sel = unlimited(sel)
			}
			return in.Delete(ctx, sel)
		}
		return h
	}},
}
