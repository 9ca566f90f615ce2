package storagetest

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

var jobFaults = []fault{
	{"whatever changes, leases are to be extended", "cancel_alone", func(in *instance) storage.Store {
		h := sound(in)
		h.notify = func(f func(storage.Event)) func() {
			return in.Notify(func(e storage.Event) {
				e.Cancel = e.Cancel || e.Schedules
				f(e)
			})
		}
		return h
	}},
	{"a hold is told of again with the next commit", "told_once", func(in *instance) storage.Store {
		h := sound(in)
		h.notify = func(f func(storage.Event)) func() {
			var last storage.Event
			return in.Notify(func(e storage.Event) {
				e.Holds, last = append(e.Holds, last.Holds...), e
				f(e)
			})
		}
		return h
	}},
	{"a hold without its lane", "hold_notify", func(in *instance) storage.Store {
		h := sound(in)
		h.notify = func(f func(storage.Event)) func() {
			return in.Notify(func(e storage.Event) {
				for i := range e.Holds {
					e.Holds[i] = storage.Lane{}
				}
				f(e)
			})
		}
		return h
	}},
	{"tags lost at the end", "tags_stay", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && !j.live() {
				j.Tags = nil
			}
		}
	})},
	{"unique key kept after its scope", "unique_live", after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && j.Unique != "" && m.unique[j.Unique].IsZero() {
				m.unique[j.Unique] = j.ID
			}
		}
	})},
	{"unique key released too early", "unique_live", after(func(m *Memory, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for _, l := range res.Leased {
			delete(m.unique, m.jobs[l.Key].Unique)
		}
	})},
	{"no holder of a key is gone", "unique_gone", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := in.Enqueue(ctx, now, jobs)
			for i := range out {
				out[i].Gone = false
			}
			return out, err
		}
		return h
	}},
	{"a key is taken from a live job", "unique_release", func(in *instance) storage.Store { return &grabber{sound(in)} }},
	{"unique key held for ever released by the purge", "unique_forever", after(func(m *Memory, _ time.Time, _ storage.Exchange, _ *storage.ExchangeResult) {
		for key, id := range m.unique {
			if m.find(id) == nil {
				delete(m.unique, key)
			}
		}
	})},
	{"unique key not taken again by a redrive", "redrive_takes_key", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			var was map[string]storage.ID
			in.m.locked(func() { was = maps.Clone(in.m.unique) })
			defer in.m.locked(func() { in.m.unique = was })
			return in.Redrive(ctx, now, sel, queue)
		}
		return h
	}},
	{"redrive keeps the retry index", "redrive_record", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			was := map[int64]int{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = j.Retry
				}
			})
			defer in.m.locked(func() {
				for key, j := range in.m.jobs {
					j.Retry = was[key]
				}
			})
			return in.Redrive(ctx, now, sel, queue)
		}
		return h
	}},
	{"redrive of a filter in one step too few", "redrive_steps", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := in.Redrive(ctx, now, sel, queue)
			step.Next = storage.Position{}
			return step, err
		}
		return h
	}},
	{"redrive without the edit", "redrive_edit", redriving(func(sel *storage.Selection) { sel.Edit = nil }, nil)},
	{"redrive edits duplicates", "redrive_edit", redriving(nil, editing(func(step *storage.Step) []storage.ID { return step.Duplicates }))},
	{"redrive edits jobs that are not dead", "redrive_edit", redriving(nil, editing(func(step *storage.Step) []storage.ID { return step.NotFound }))},
	{"run now counts a retry", "run_now_record", runningNow(func(_ time.Time, was, j *job) { j.Retry++ }, nil)},
	{"run now by due time", "run_now_order", runningNow(func(now time.Time, was, j *job) {
		j.DueAt = now.Add(was.DueAt.Sub(now) / 1_000_000).Truncate(time.Microsecond)
	}, nil)},
	{"run now gives a later due time", "run_now_order", runningNow(func(now time.Time, _, j *job) { j.DueAt = now }, nil)},
	{"run now of all that is scheduled", "run_now_first", runningNow(nil, func(_ *storage.Selection, which *storage.Waiting) { which.First = true })},
	{"run now whenever it was enqueued", "run_now_filters", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) { sel.Filter.CreatedFrom = time.Time{} })},
	{"run now whenever it is due", "run_now_filters", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) { sel.Filter.DueBefore = time.Time{} })},
	{"run now whatever the state", "run_now_filters", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) { sel.Filter.States = nil })},
	{"run now of what is not urgent", "run_now_urgent", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) {
		if len(sel.IDs) == 1 {
			sel.IDs = append(sel.IDs, sel.IDs[0])
		}
	})},
	{"run now of what was snoozed", "run_now_failed", runningNow(nil, func(_ *storage.Selection, which *storage.Waiting) { which.Failed = false })},
	{"run now never of a first run", "run_now_first", runningNow(func(_ time.Time, was, j *job) {
		if j.Attempt == 0 {
			*j = *was
		}
	}, nil)},
	{"run now of what was enqueued meanwhile", "run_now_through", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) { sel.Through = 0 })},
	{"run now without a limit", "run_now_steps", runningNow(nil, func(sel *storage.Selection, _ *storage.Waiting) { sel.Limit = 0 })},
	{"history from the wrong end", "history_limit", before(func(m *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			if j := m.held(f.Lease); j != nil && len(j.History) == storage.HistoryLimit {
				x.Finish[i].Failure = nil
			}
		}
	})},
	{"history without limit", "history_limit", func(in *instance) storage.Store { return &unbounded{sound(in)} }},
	{"crashes not reset by other outcomes", "outcome_table", after(func(m *Memory, _ time.Time, x storage.Exchange, res *storage.ExchangeResult) {
		for i, f := range x.Finish {
			if j := m.jobs[f.Key]; j != nil && f.Outcome == storage.OutcomeSnooze && res.Finished[i] == storage.Applied {
				j.Crashes = 1
			}
		}
	})},
	{"crashes counted twice", "outcome_dead", before(func(_ *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			if f.Reason == storage.ReasonCrashed && f.Failure == nil {
				x.Finish[i].Failure = &storage.NewFailure{}
			}
		}
	})},
	{"a death without a reason is taken", "item_refused_unchanged", before(func(_ *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			x.Finish[i].Reason = cmp.Or(f.Reason, storage.ReasonPermanent)
		}
	})},
	{"a job put back loses its place", "outcome_returned_place", before(func(_ *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			if f.Outcome == storage.OutcomeReturned {
				x.Finish[i].Outcome = storage.OutcomeInterrupted
			}
		}
	})},
	{"a lease without a run is an attempt of a job asked to stop", "outcome_stopped", before(func(m *Memory, x *storage.Exchange) {
		for i, f := range x.Finish {
			if j := m.held(f.Lease); j != nil && j.Cancelling && f.Outcome == storage.OutcomeReturned {
				x.Finish[i].Outcome = storage.OutcomeCancelled
			}
		}
	})},
	{"a lease without a run is an attempt of a job that dies", "outcome_dead", before(func(m *Memory, x *storage.Exchange) {
		for _, f := range x.Finish {
			if j := m.held(f.Lease); j != nil && f.Reason == storage.ReasonCrashed && f.Failure == nil {
				j.Attempt++
			}
		}
	})},
	{"a job asked to stop is put back", "outcome_stopped", before(func(m *Memory, x *storage.Exchange) {
		for _, f := range x.Finish {
			if j := m.held(f.Lease); j != nil {
				j.Cancelling = false
			}
		}
	})},
	{"a bad item fails its exchange", "item_results", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			for _, f := range x.Finish {
				if f.Outcome == 0 {
					return storage.ExchangeResult{}, storage.ErrIO
				}
			}
			return in.Exchange(ctx, now, x)
		}
		return h
	}},
	{"finishing goes before extending", "item_extend_first", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			first, err := in.Exchange(ctx, now, storage.Exchange{LeaseDuration: x.LeaseDuration, Finish: x.Finish, Retention: x.Retention})
			if err != nil {
				return first, err
			}
			x.Finish = nil
			res, err := in.Exchange(ctx, now, x)
			res.Finished = first.Finished
			return res, err
		}
		return h
	}},
	{"retention without regard to the lane", "outcome_retention", before(func(_ *Memory, x *storage.Exchange) { x.Retention.Lanes = nil })},
	{"cancel of a running job ends it", "job_cancel_running", func(in *instance) storage.Store {
		h := sound(in)
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			in.m.locked(func() {
				if j := in.m.find(id); j != nil && j.State == storage.Running {
					in.m.finish(now, j, storage.Cancelled, keep)
				}
			})
			return in.Cancel(ctx, now, id, keep)
		}
		return h
	}},
	{"lists searched with regard to case", "list_filters", jobLists(nil, func(f storage.Filter, p *storage.Page) {
		p.Jobs = slices.DeleteFunc(p.Jobs, func(r storage.Record) bool { return !strings.Contains(r.Error, f.Error) })
	})},
	{"a list ends with its first page", "list_pages", jobLists(nil, func(_ storage.Filter, p *storage.Page) { p.Next = "" })},
	{"a list begins anew", "list_pages", jobLists(func(_ *storage.Filter, after *string) { *after = "" }, nil)},
	{"a list without end", "list_pages", jobLists(nil, func(_ storage.Filter, p *storage.Page) {
		if n := len(p.Jobs); n > 0 && p.Next == "" {
			p.Next = `{"Section":9}`
		}
	})},
	{"lists in the order of keys alone", "list_order", jobLists(nil, func(f storage.Filter, p *storage.Page) {
		slices.SortFunc(p.Jobs, func(a, b storage.Record) int { return cmp.Compare(b.Key, a.Key) })
	})},
	{"lists with a tag in the order of states", "list_by_key", jobLists(nil, func(f storage.Filter, p *storage.Page) {
		slices.SortFunc(p.Jobs, func(a, b storage.Record) int { return cmp.Compare(b.State, a.State) })
	})},
	{"lists that do not know what could not be reached", "outcome_unavailable", jobLists(nil, func(_ storage.Filter, p *storage.Page) {
		for i := range p.Jobs {
			p.Jobs[i].Unreached = false
		}
	})},
	{"lists with all there is", "list_records", func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
			p, err := in.Jobs(ctx, f, after, limit)
			for i, r := range p.Jobs {
				p.Jobs[i], _ = in.Job(ctx, r.ID)
			}
			return p, err
		}
		return h
	}},
	{"lists with progress", "list_records", func(in *instance) storage.Store {
		return jobLists(nil, func(_ storage.Filter, p *storage.Page) {
			for i, r := range p.Jobs {
				r, _ = in.Job(context.Background(), r.ID)
				p.Jobs[i].Progress = r.Progress
			}
		})(in)
	}},
	{"lists without args", "list_records", jobLists(func(f *storage.Filter, _ *string) { f.Args = false }, nil)},
	{"lists with args that are too large", "list_args", jobLists(func(f *storage.Filter, _ *string) { f.MaxArgs = 0 }, nil)},
	{"leaves out args that are not too large", "list_args", jobLists(func(f *storage.Filter, _ *string) { f.MaxArgs = max(f.MaxArgs-1, 0) }, nil)},
	{"lists with args that nobody has asked for", "list_records", jobLists(func(f *storage.Filter, _ *string) { f.Args = true }, nil)},
	{"lists without regard to the state", "list_filters", jobLists(func(f *storage.Filter, _ *string) { f.States = nil }, nil)},
	{"lists without regard to the group", "list_group", jobLists(func(f *storage.Filter, _ *string) { f.Group = "" }, nil)},
	{"lists groups of all queues", "list_group", jobLists(func(f *storage.Filter, _ *string) {
		if f.Group != "" {
			f.Queue = ""
		}
	}, nil)},
	{"lists of a group what lives", "list_group", jobLists(nil, func(f storage.Filter, p *storage.Page) {
		if f.Group != "" {
			p.Jobs = slices.DeleteFunc(p.Jobs, func(r storage.Record) bool { return r.State == storage.Done })
		}
	})},
	{"deletes without regard to the group", "change_group", func(in *instance) storage.Store {
		h := sound(in)
		h.del = func(ctx context.Context, sel storage.Selection) (storage.Step, error) {
			sel.Filter.Group = ""
			return in.Delete(ctx, sel)
		}
		return h
	}},
	{"redrives a group in the order of deaths", "dead_group", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			sel.Filter.Group = ""
			return in.Redrive(ctx, now, sel, queue)
		}
		return h
	}},
	{"redrives without regard to the group", "change_group", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			sel.Filter.Group = ""
			return in.Redrive(ctx, now, sel, queue)
		}
		return h
	}},
	{"runs without regard to the group", "change_group", func(in *instance) storage.Store {
		h := sound(in)
		h.runNow = func(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
			sel.Filter.Group = ""
			return in.RunNow(ctx, now, sel, which)
		}
		return h
	}},
	{"changes without regard to the group", "change_group", func(in *instance) storage.Store {
		h := sound(in)
		h.change = func(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
			sel.Filter.Group = ""
			return in.Change(ctx, now, sel, e)
		}
		return h
	}},
	{"lists without regard to tags", "list_filters", jobLists(func(f *storage.Filter, _ *string) { f.Tag = "" }, nil)},
	{"withdrawn writes go through", "enqueue_withdrawn", func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			res, err := in.Exchange(context.WithoutCancel(ctx), now, x)
			if ctx.Err() != nil {
				return storage.ExchangeResult{}, ctx.Err()
			}
			return res, err
		}
		return h
	}},
}

// unbounded shows a history that has no limit.
type unbounded struct{ *hooks }

func (u *unbounded) Job(ctx context.Context, id storage.ID) (storage.Record, error) {
	r, err := u.hooks.Job(ctx, id)
	for a := r.Attempt - 1; len(r.History) > 0 && len(r.History) < a; {
		r.History = append([]storage.Failure{r.History[0]}, r.History...)
	}
	return r, err
}

// grabber releases keys at once, whether their holder lives or not.
type grabber struct{ *hooks }

func (s *grabber) ReleaseUnique(ctx context.Context, key string) (storage.ID, error) {
	id, err := s.hooks.ReleaseUnique(ctx, key)
	s.m.locked(func() { delete(s.m.unique, key) })
	return id, err
}

// runningNow has f change each job that RunNow makes ready, given what the job was,
// and ask what it is asked.
func runningNow(f func(now time.Time, was, j *job), ask func(sel *storage.Selection, which *storage.Waiting)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.runNow = func(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
			if ask != nil {
				ask(&sel, &which)
			}
			was := map[int64]job{}
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					was[key] = *j
				}
			})
			step, err := in.RunNow(ctx, now, sel, which)
			in.m.locked(func() {
				for key, j := range in.m.jobs {
					if was := was[key]; f != nil && was.State == storage.Scheduled && j.State == storage.Ready {
						f(now, &was, j)
					}
				}
			})
			return step, err
		}
		return h
	}
}

// jobLists has f change what is asked of a list, and g what it returns.
func jobLists(f func(f *storage.Filter, after *string), g func(f storage.Filter, p *storage.Page)) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, filter storage.Filter, after string, limit int) (storage.Page, error) {
			asked := filter
			if f != nil {
				f(&asked, &after)
			}
			p, err := in.Jobs(ctx, asked, after, limit)
			if g != nil {
				g(filter, &p)
			}
			return p, err
		}
		return h
	}
}

// editing is a broken store: its Redrive with an Edit also changes the args of jobs that it does not redrive.
func editing(left func(*storage.Step) []storage.ID) func(*Memory, *storage.Selection, *storage.Step) {
	return func(m *Memory, sel *storage.Selection, step *storage.Step) {
		for _, id := range left(step) {
			if j := m.find(id); j != nil && sel.Edit != nil {
				j.Args = append(bytes.Clone(sel.Edit.Args), '!')
			}
		}
	}
}
