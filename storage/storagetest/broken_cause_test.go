package storagetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// listing has f change what Causes returns.
func listing(f func(m *Memory, all []storage.Cause) []storage.Cause) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.causes = func(ctx context.Context, lane storage.Lane, limit int) (out []storage.Cause, err error) {
			all, err := in.Causes(ctx, lane, limit)
			in.m.locked(func() { out = f(in.m, all) })
			return out, err
		}
		return h
	}
}

// burying has f change what a job dies of.
func burying(f func(fin *storage.Finish)) func(in *instance) storage.Store {
	return before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			fin := &x.Finish[i]
			if fin.Spent != nil {
				spent := *fin.Spent
				fin.Spent = &spent
				f(fin.Spent)
			}
			f(fin)
		}
	})
}

var causeFaults = []fault{
	{"causes without regard to the reason", "cause_list", burying(func(fin *storage.Finish) {
		if fin.Outcome == storage.OutcomeDead {
			fin.Reason = storage.ReasonPermanent
		}
	})},
	{"causes of each text apart", "cause_list", func() func(in *instance) storage.Store {
		n := 0
		return burying(func(fin *storage.Finish) {
			n++
			fin.Cause += strings.Repeat(" ", n)
		})
	}()},
	{"a cause without an example that is dead", "cause_gone", listing(func(m *Memory, all []storage.Cause) []storage.Cause {
		for i, c := range all {
			for _, j := range m.jobs {
				if j.Key > c.Job.Key() && !m.neverDied(j) {
					all[i].Job = j.ID
				}
			}
		}
		return all
	})},
	{"IDs of causes given again", "cause_gone", listing(func(_ *Memory, all []storage.Cause) []storage.Cause {
		for i := range all {
			all[i].ID = int64(i + 1)
		}
		return all
	})},
	{"the first of those that are dead", "cause_first", listing(func(m *Memory, all []storage.Cause) []storage.Cause {
		for c, jobs := range m.dying() {
			for i := range all {
				if all[i].ID == c.id {
					all[i].First = jobs[0].EndedAt
				}
			}
		}
		return all
	})},
	{"deaths without a bound", "cause_deaths", func(in *instance) storage.Store {
		h := sound(in)
		h.deaths = func(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, _ int) ([][]int, error) {
			return in.Deaths(ctx, causes, from, each, n, 1000)
		}
		return h
	}},
	{"deaths a time late", "cause_deaths", func(in *instance) storage.Store {
		h := sound(in)
		h.deaths = func(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
			return in.Deaths(ctx, causes, from.Add(time.Microsecond), each, n, most)
		}
		return h
	}},
	{"deaths in the order of causes", "cause_deaths", func(in *instance) storage.Store {
		h := sound(in)
		h.deaths = func(ctx context.Context, causes []int64, from time.Time, each time.Duration, n, most int) ([][]int, error) {
			return in.Deaths(ctx, slices.Sorted(slices.Values(causes)), from, each, n, most)
		}
		return h
	}},
	{"causes by the lane of the first death", "cause_lane", listing(func(m *Memory, all []storage.Cause) []storage.Cause {
		for i := range all {
			all[i].Queue = queue
		}
		return all
	})},
	{"no cause of what was spent", "cause_spent", burying(func(fin *storage.Finish) {
		if fin.Lease == (storage.Lease{}) {
			fin.Cause = ""
		}
	})},
	{"any number of causes", "cause_limit", listing(func(m *Memory, all []storage.Cause) []storage.Cause {
		for i, c := range all {
			if c.Text == storage.OtherCause {
				all[i].Text = m.find(c.Job).endError
			}
		}
		return all
	})},
	{"dead letters of all causes", "cause_filter", func(in *instance) storage.Store {
		h := sound(in)
		h.list = func(ctx context.Context, f storage.Filter, after string, limit int) (storage.Page, error) {
			f.Cause = 0
			return in.Jobs(ctx, f, after, limit)
		}
		return h
	}},
	{"redrive of all causes", "cause_filter", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			sel.Filter.Cause = 0
			return in.Redrive(ctx, now, sel, queue)
		}
		return h
	}},
}

// neverDied reports whether j has never been dead, as far as its history tells.
func (m *Memory) neverDied(j *job) bool { return len(j.History) == 0 }
