package storagetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Change implements [storage.Store].
func (in *instance) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.Step{}, err
	}
	if r := in.under(sel.Under); r != storage.Applied {
		m.mu.Unlock()
		return storage.Step{Refused: r}, nil
	}
	given := now
	now = m.wrote(now)
	var event *storage.Event
	about, step := m.selectLive(sel, func(*job) bool { return true })
	if len(sel.IDs) > 0 {
		about = about[:0]
		step.NotFound = nil
		for _, id := range sel.IDs {
			j := m.find(id)
			if j != nil && (j.live() || j.State == storage.Dead && e.Cancel == nil && !e.Reschedules()) {
				about = append(about, j)
			} else {
				step.NotFound = append(step.NotFound, id)
			}
		}
	}
	stopped := 0
	for _, j := range about {
		switch {
		case j.State == storage.Running:
			step.Live = append(step.Live, j.ID)
			if e.Cancel != nil {
				j.Cancelling = true
				event = available(event, j) // due at once
				event.Cancel = true
				stopped++
			}
			continue
		case e.Cancel != nil:
			m.finish(now, j, storage.Cancelled, *e.Cancel)
		default:
			if in.edit(given, j, &e, sel.Doubtful) {
				event = available(event, j)
			}
		}
		step.N++
	}
	m.did(ctx, step.N+stopped, true)
	in.keepPlace(sel.Under, &step)
	m.mu.Unlock()
	m.emit(in, given, event)
	return step, nil
}

// edit changes a job that does not run, and reports whether a worker may take it now
// that could not before.
func (in *instance) edit(now time.Time, j *job, e *storage.Edit, doubtful bool) (available bool) {
	m, at, was, urgent := in.m, floor(now), j.State, j.urgent
	if e.Reschedules() {
		if e.Delay > 0 {
			j.putAfter(at, now.Add(e.Delay))
		} else {
			j.putAt(at, e.DueAt)
		}
		if j.Attempt > 0 || j.redriven {
			j.windows.startWithin = 0
		}
		j.windows.begin(now, j.DueAt, e.Delay > 0, doubtful)
	}
	if e.Priority != nil {
		j.Priority = *e.Priority
	}
	from := j.Queue
	if e.Queue != "" && e.Queue != j.Queue {
		j.Queue = e.Queue
		m.meet(storage.Lane{Queue: j.Queue, Kind: j.Kind})
		if j.State == storage.Dead {
			j.cause = m.causeOf(j.EndedAt, storage.Lane{Queue: j.Queue, Kind: j.Kind}, j.Reason, j.cause.text)
		}
		if j.unspent != 0 && j.unspent == j.token {
			lane := storage.Lane{Queue: j.Queue, Kind: j.Kind}
			if _, ok := m.successes[lane]; !ok {
				m.successes[lane] = 0 // noted from now on
			}
		}
	}
	if e.Policy != nil {
		j.Policy = append([]byte(nil), e.Policy...) // nil if empty
	}
	if e.Args != nil && !bytes.Equal(e.Args, j.Args) {
		j.remember(storage.Failure{Attempt: j.Attempt, At: at, Phase: storage.PhaseEdited, Instance: in.name, Args: j.Args})
		j.Args, j.Checkpoint, j.Progress = bytes.Clone(e.Args), nil, nil
	}
	m.resettle(j, was, j.Queue != from, e.Reschedules())
	if e.Reschedules() || e.Queue != "" {
		m.regroup(from, j.Group, false)
		m.regroup(j.Queue, j.Group, false)
	}
	j.urgent = urgent && j.State == storage.Ready // also if it has a place at once elsewhere
	m.blockBehind(j)
	return j.State != storage.Dead && (e.Reschedules() || e.Queue != "")
}

// remember adds an entry to the history of j.
func (j *job) remember(h storage.Failure) {
	j.History = append(slices.Clip(j.History), h)
	edits := 0
	for i := len(j.History) - 1; i >= 0; i-- {
		if j.History[i].Phase != storage.PhaseEdited {
			continue
		}
		if edits++; edits > storage.EditLimit {
			j.History = slices.Delete(slices.Clone(j.History), i, i+1)
		}
	}
	j.History = j.History[max(0, len(j.History)-storage.HistoryLimit):]
}

// failures returns the history of j without edits.
func (j *job) failures() []storage.Failure {
	return slices.DeleteFunc(slices.Clone(j.History), func(h storage.Failure) bool { return h.Phase == storage.PhaseEdited })
}

// Delete implements [storage.Store].
func (in *instance) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	m := in.m
	if err := m.beginWrite(ctx, in); err != nil {
		return storage.Step{}, err
	}
	if r := in.under(sel.Under); r != storage.Applied {
		m.mu.Unlock()
		return storage.Step{Refused: r}, nil
	}
	ended, step := m.selectEnded(sel)
	for _, j := range ended {
		delete(m.jobs, j.Key)
		if j.blocks {
			m.regroup(j.Queue, j.Group, false)
		}
		step.N++
	}
	m.did(ctx, step.N, true)
	mark := m.mark
	in.keepPlace(sel.Under, &step)
	m.mu.Unlock()
	m.emit(in, mark, nil)
	return step, nil
}

// selectEnded returns the jobs of one step of Delete, and what else the step has.
func (m *Memory) selectEnded(sel storage.Selection) (ended []*job, step storage.Step) {
	states := sel.Filter.States
	if len(sel.IDs) == 0 && (len(states) == 0 || slices.Contains(states, storage.Dead)) {
		return m.selectDead(sel)
	}
	if len(sel.IDs) > 0 {
		step.Taken = len(sel.IDs)
		for _, id := range sel.IDs {
			switch j := m.find(id); {
			case j != nil && j.live():
				step.Live = append(step.Live, id)
			case j == nil || len(states) > 0 && !slices.Contains(states, j.State) || slices.Contains(ended, j):
				step.NotFound = append(step.NotFound, id)
			default:
				ended = append(ended, j)
			}
		}
		return ended, step
	}
	if step.Through = sel.Through; step.Through == 0 {
		if all := m.where((*job).finished, byKey); len(all) > 0 {
			step.Through = all[len(all)-1].Key
		}
	}
	ended = m.where(func(j *job) bool {
		return j.finished() && chooses(sel.Filter, j) && j.Key > sel.After.Key && j.Key <= step.Through
	}, byKey)
	if limit := stepOf(sel); len(ended) > limit {
		ended = ended[:limit]
		step.Next.Key = ended[limit-1].Key
	}
	step.Taken = len(ended)
	return ended, step
}
