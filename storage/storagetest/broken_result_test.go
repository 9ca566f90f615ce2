package storagetest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// bringing has f change each end of a lease before.
func bringing(f func(fin *storage.Finish)) func(in *instance) storage.Store {
	return before(func(_ *Memory, x *storage.Exchange) {
		for i := range x.Finish {
			f(&x.Finish[i])
		}
	})
}

// endedBy has f change each job after its lease has ended.
func endedBy(f func(fin *storage.Finish, j *job)) func(in *instance) storage.Store {
	return after(func(m *Memory, _ time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for i := range x.Finish {
			if j := m.jobs[x.Finish[i].Key]; j != nil {
				f(&x.Finish[i], j)
			}
		}
	})
}

// spending has f change what takes the place of an end.
func spending(f func(fin, spent *storage.Finish)) func(in *instance) storage.Store {
	return bringing(func(fin *storage.Finish) {
		if fin.Spent != nil {
			spent := *fin.Spent
			f(fin, &spent)
			fin.Spent = &spent
		}
	})
}

var resultFaults = []fault{
	{"a checkpoint without progress drops that before", "progress_checkpoint", saying(nil, func(c *storage.Checkpoint, _, j *job, _ *storage.ItemResult) {
		if c.Progress == nil {
			j.Progress = nil
		}
	})},
	{"the first progress stays", "progress_checkpoint", saying(nil, func(_ *storage.Checkpoint, was, j *job, _ *storage.ItemResult) {
		if was.Progress != nil {
			j.Progress = was.Progress
		}
	})},
	{"progress is the caller's", "progress_checkpoint", saying(nil, func(c *storage.Checkpoint, _, j *job, _ *storage.ItemResult) {
		if c.Progress != nil {
			j.Progress = c.Progress
		}
	})},
	{"progress without its note", "progress_checkpoint", saying(nil, func(_ *storage.Checkpoint, _, j *job, _ *storage.ItemResult) {
		if j.Progress != nil {
			j.Progress.Note = ""
		}
	})},
	{"progress is lost with a crash", "progress_checkpoint", loses(storage.OutcomeCrashed, func(j *job) { j.Progress = nil })},
	{"a redrive drops the progress", "progress_checkpoint", altering(func(was, j *job) {
		if was.State == storage.Dead {
			j.Progress = nil
		}
	})},
	{"an end without progress drops that before", "progress_end", endedBy(func(fin *storage.Finish, j *job) {
		if fin.Progress == nil && !j.live() {
			j.Progress = nil
		}
	})},
	{"the progress at an end is left out", "progress_end", bringing(func(fin *storage.Finish) { fin.Progress = nil })},
	{"the progress at an end is kept only of what is done", "progress_end", bringing(func(fin *storage.Finish) {
		if fin.Outcome != storage.OutcomeDone {
			fin.Progress = nil
		}
	})},
	{"the progress is kept of what is put back", "progress_end", endedBy(func(fin *storage.Finish, j *job) {
		if j.live() {
			j.keepProgress(fin.Progress)
		}
	})},
	{"the result is left out", "result_done", bringing(func(fin *storage.Finish) { fin.Result = nil })},
	{"the result is the caller's", "result_done", endedBy(func(fin *storage.Finish, j *job) {
		if j.State == storage.Done {
			j.Result = fin.Result
		}
	})},
	{"a dead job has a result", "result_done", endedBy(func(fin *storage.Finish, j *job) {
		if j.State == storage.Dead {
			j.Result = bytes.Clone(fin.Result)
		}
	})},
	{"a cancelled job has a result", "result_done", endedBy(func(fin *storage.Finish, j *job) {
		if j.State == storage.Cancelled {
			j.Result = bytes.Clone(fin.Result)
		}
	})},
	{"a job that is put back has a result", "result_done", endedBy(func(fin *storage.Finish, j *job) {
		if j.live() {
			j.Result = bytes.Clone(fin.Result)
		}
	})},
	{"without a result there is an empty one", "result_done", endedBy(func(fin *storage.Finish, j *job) {
		if j.State == storage.Done && fin.Result == nil {
			j.Result = []byte{}
		}
	})},
	{"a job with a result is kept", "result_gone", before(func(_ *Memory, x *storage.Exchange) {
		for _, fin := range x.Finish {
			if fin.Result != nil {
				x.Retention = kept(keep)
			}
		}
	})},
	{"Delete drops the results of others", "result_gone", deleting(nil, func(m *Memory, _ *storage.Selection, _ *storage.Step) {
		for _, j := range m.jobs {
			j.Result = nil
		}
	})},
	{"its own progress counts, not that of Spent", "result_spent", spending(func(fin, spent *storage.Finish) { spent.Progress = fin.Progress })},
	{"without progress in Spent its own counts", "result_spent", spending(func(fin, spent *storage.Finish) {
		if spent.Progress == nil {
			spent.Progress = fin.Progress
		}
	})},
	{"its own result counts, not that of Spent", "result_spent", spending(func(fin, spent *storage.Finish) { spent.Result = fin.Result })},
}

// telling has f change what States says.
func telling(f func(m *Memory, ids []storage.ID, all []storage.State) []storage.State) func(in *instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.states = func(ctx context.Context, ids []storage.ID) ([]storage.State, error) {
			all, err := in.States(ctx, ids)
			in.m.locked(func() { all = f(in.m, ids, all) })
			return all, err
		}
		return h
	}
}

var stateFaults = []fault{
	{"states are in the order of keys", "states_order", telling(func(m *Memory, ids []storage.ID, _ []storage.State) (all []storage.State) {
		of := map[int64]storage.State{}
		for _, id := range ids {
			if j := m.find(id); j != nil {
				of[id.Key()] = j.State
			} else {
				of[id.Key()] = ""
			}
		}
		for _, key := range slices.Sorted(maps.Keys(of)) {
			all = append(all, of[key])
		}
		return all
	})},
	{"what is not there is left out", "states_order", telling(func(_ *Memory, _ []storage.ID, all []storage.State) []storage.State {
		return slices.DeleteFunc(all, func(s storage.State) bool { return s == "" })
	})},
	{"a key names a job", "states_order", telling(func(m *Memory, ids []storage.ID, all []storage.State) []storage.State {
		for i, id := range ids {
			if j := m.jobs[id.Key()]; j != nil {
				all[i] = j.State
			}
		}
		return all
	})},
	{"deleted jobs have a state", "states_order", func(in *instance) storage.Store {
		last := map[storage.ID]storage.State{}
		return telling(func(_ *Memory, ids []storage.ID, all []storage.State) []storage.State {
			for i, id := range ids {
				if all[i] == "" {
					all[i] = last[id]
				}
				last[id] = all[i]
			}
			return all
		})(in)
	}},
	{"the first state is as it was", "states_moment", func(in *instance) storage.Store {
		last := map[storage.ID]storage.State{}
		return telling(func(_ *Memory, ids []storage.ID, all []storage.State) []storage.State {
			for i, id := range ids {
				was, ok := last[id]
				if last[id] = all[i]; ok && i == 0 {
					all[i] = was
				}
			}
			return all
		})(in)
	}},
	{"States works after Close", "close_calls", func(in *instance) storage.Store {
		h := sound(in)
		h.states = func(context.Context, []storage.ID) ([]storage.State, error) { return nil, nil }
		return h
	}},
}
