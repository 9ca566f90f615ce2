package storagetest

import (
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// changing has f change each job, after or instead of what Change has done to it, given
// what the job was, and ask what it is asked.
func changing(f func(m *Memory, e *storage.Edit, was, j *job), ask func(sel *storage.Selection, e *storage.Edit)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			if ask != nil {
				ask(&sel, &e)
			}
			was := map[int64]job{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = *j
				}
			})
			step, err := in.Change(ctx, now, sel, e)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					before := was[key]
					if touched := len(sel.IDs) == 0 || slices.Contains(sel.IDs, j.ID); f != nil && touched {
						f(in.m, &e, &before, j)
					}
				}
			})
			return step, err
		}
		return h
	}
}

// deleting has f change what Delete is asked, and then what it answers.
func deleting(ask func(sel *storage.Selection), answer func(m *Memory, sel *storage.Selection, step *storage.Step)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			asked := sel
			if ask != nil {
				ask(&sel)
			}
			step, err := in.Delete(ctx, sel)
			if answer != nil {
				in.m.locked(func() { answer(in.m, &asked, &step) })
			}
			return step, err
		}
		return h
	}
}

func edits(history []storage.Failure) (n int) {
	for _, h := range history {
		if h.Phase == storage.PhaseEdited {
			n++
		}
	}
	return n
}

var editFaults = []fault{
	{"a change begins the job anew", "change_record", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		if e.Reschedules() {
			j.Retry = 0
		}
	}, nil)},
	{"a change of args drops the headers", "change_record", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		if e.Args != nil {
			j.Headers = nil
		}
	}, nil)},
	{"no policy is as none given", "change_record", changing(nil, func(_ *storage.Selection, e *storage.Edit) {
		if len(e.Policy) == 0 {
			e.Policy = nil
		}
	})},
	{"a change of queue frees the unique key", "change_record", changing(func(m *Memory, e *storage.Edit, _, j *job) {
		if e.Queue != "" {
			delete(m.unique, j.Unique)
		}
	}, nil)},
	{"what was put off stays ready", "change_due", changing(func(_ *Memory, _ *storage.Edit, was, j *job) {
		if was.State == storage.Ready && j.State == storage.Scheduled {
			j.State = storage.Ready
		}
	}, nil)},
	{"what was put off stays urgent", "change_due", changing(func(_ *Memory, _ *storage.Edit, was, j *job) {
		j.urgent = was.urgent
	}, nil)},
	{"what goes to another queue is not urgent any more", "change_urgent", changing(func(_ *Memory, _ *storage.Edit, was, j *job) {
		j.urgent = j.urgent && was.Queue == j.Queue
	}, nil)},
	{"a delay is kept as a date", "change_shifted", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		if e.Delay > 0 {
			j.since = time.Time{}
		}
	}, nil)},
	{"another priority is shown, not used", "change_order", func(in *instance) storage.Store {
		given := map[int64]int{}
		h := changing(func(_ *Memory, e *storage.Edit, was, j *job) {
			if e.Priority != nil {
				given[j.Key], j.Priority = *e.Priority, was.Priority
			}
		}, nil)(in).(*hooks)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(ctx, now, x)
			for i, l := range res.Leased {
				if p, ok := given[l.Key]; ok {
					res.Leased[i].Priority = p
				}
			}
			return res, err
		}
		return h
	}},
	{"running jobs are changed", "change_running", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if was.State == storage.Running && e.Args != nil {
			j.Args = e.Args
		}
	}, nil)},
	{"finished jobs are changed", "change_ids", func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			step, err := in.Change(ctx, now, sel, e)
			n := len(step.NotFound)
			step.NotFound = slices.DeleteFunc(step.NotFound, func(id storage.ID) bool { return in.m.find(id) != nil })
			step.N += n - len(step.NotFound)
			return step, err
		}
		return h
	}},
	{"a filter selects the dead", "change_ids", func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			step, err := in.Change(ctx, now, sel, e)
			in.m.locked(func() {
				for _, j := range in.m.jobs {
					if len(sel.IDs) == 0 && matches(sel.Filter, j) && e.Queue != "" {
						j.Queue = e.Queue
						step.N++
					}
				}
			})
			return step, err
		}
		return h
	}},
	{"the dead get the policy at once", "change_dead", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		if j.State == storage.Dead && e.Policy != nil {
			j.endPolicy = e.Policy
		}
	}, nil)},
	{"the old args are lost", "change_args", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if e.Args != nil {
			j.History = was.History
		}
	}, nil)},
	{"the same args are an edit", "change_args", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if e.Args != nil && edits(j.History) == edits(was.History) && edits(j.History) > 0 {
			j.History = append(slices.Clip(j.History), j.History[len(j.History)-1])
		}
	}, nil)},
	{"edits without an end", "change_args", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if n := edits(was.History); n == storage.EditLimit && e.Args != nil && edits(j.History) == n && len(was.History) == n {
			j.History = append(slices.Clone(was.History[:1]), j.History...)
		}
	}, nil)},
	{"an edit is a failure", "change_no_failure", changing(func(_ *Memory, e *storage.Edit, _, j *job) {
		for i := range j.History {
			j.History = slices.Clone(j.History)
			if j.History[i].Phase == storage.PhaseEdited {
				j.History[i].Phase = ""
			}
		}
	}, nil)},
	{"a job that moves loses its last error", "change_evidence", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		if j.Queue != was.Queue {
			j.unspent = 0
		}
	}, nil)},
	{"filters by lane alone", "change_filters", changing(nil, func(sel *storage.Selection, _ *storage.Edit) {
		sel.Filter = storage.Filter{Queue: sel.Filter.Queue, Kind: sel.Filter.Kind}
	})},
	{"one step changes all there are", "change_steps", changing(nil, func(sel *storage.Selection, _ *storage.Edit) { sel.Limit = 0 })},
	{"a step changes what came meanwhile", "change_steps", changing(nil, func(sel *storage.Selection, _ *storage.Edit) { sel.Through = 0 })},
	{"running jobs are not asked to stop", "change_cancel", changing(func(_ *Memory, e *storage.Edit, was, j *job) {
		j.Cancelling = was.Cancelling
	}, nil)},
	{"cancelled without regard to the lane", "change_cancel", changing(nil, func(_ *storage.Selection, e *storage.Edit) {
		if e.Cancel != nil {
			e.Cancel = &storage.Retention{Default: e.Cancel.Default}
		}
	})},

	{"live jobs are deleted", "delete_ids", deleting(nil, func(m *Memory, _ *storage.Selection, step *storage.Step) {
		for _, id := range step.Live {
			delete(m.jobs, id.Key())
		}
	})},
	{"named jobs are deleted in any state", "delete_ids", deleting(func(sel *storage.Selection) {
		if len(sel.IDs) > 0 {
			sel.Filter.States = nil
		}
	}, nil)},
	{"finished jobs are deleted by state alone", "delete_filters", deleting(func(sel *storage.Selection) {
		if len(sel.Filter.States) > 0 {
			sel.Filter = storage.Filter{States: sel.Filter.States}
		}
	}, nil)},
	{"what has ended meanwhile is deleted", "delete_steps", deleting(func(sel *storage.Selection) { sel.Through = 0 }, nil)},
}
