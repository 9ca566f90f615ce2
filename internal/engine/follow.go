package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// follow says what is enqueued with the deaths among the outcomes that are sent.
func (l *loop) follow(all []storage.Finish, at time.Time) {
	for i := range all {
		f := &all[i]
		if f.Outcome == storage.OutcomeUnavailable {
			f = f.Spent // nil: whatever others do, it costs nothing
		}
		if f != nil && f.Outcome == storage.OutcomeDead {
			f.Then = nil // of an exchange that failed
			if notice := l.cfg.OnDeath(l.outcomes.flight[i].job, f, at); notice != nil {
				f.Then = []storage.NewJob{*notice}
			}
			if sent := &l.outcomes.flight[i].Finish; sent.Outcome == storage.OutcomeDead {
				sent.Then = f.Then // else they share Spent
			}
		}
	}
}

// follows are the jobs that follow one if it is done.
type follows struct {
	then  []storage.NewJob
	bytes int
	told  []func(dropped bool)
	added []storage.Enqueued // the answers, once a transaction has ended the job
}

// Then has a job enqueued with the end of this one, if that is done and fits allows it: how many
// jobs there are then, and how many bytes of args and headers they have. After nil, told is called when
// the handler has returned.
func (a *Attempt) Then(job storage.NewJob, told func(dropped bool), fits func(jobs, bytes int) error) error {
	if err := a.of.cfg.lacking(job.Needs()...); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.committed || a.ending {
		return ErrFinished
	}
	var all follows
	if a.follows != nil {
		all = *a.follows
	}
	all.then, all.told, all.bytes = append(all.then, job), append(all.told, told), all.bytes+len(job.Args)+len(job.Headers)
	if err := fits(len(all.then), all.bytes); err != nil {
		return err
	}
	a.follows = &all
	return nil
}

// tellFollowers tells what becomes of the jobs that follow. They are dropped if this one is
// known not to be done.
func (a *attempt) tellFollowers(all []func(dropped bool)) {
	dropped := a.verdict.kind != verdictDone && !a.open
	for _, told := range slices.Backward(all) {
		defer a.tellFollower(told, dropped) // deferred, so that the next follower is told even if this one calls runtime.Goexit
	}
}

// tellFollower calls told. A panic of told counts as a panic of the handler.
func (a *attempt) tellFollower(told func(bool), dropped bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		text := "a function of AfterEnqueue called runtime.Goexit"
		r := recover()
		if r != nil {
			text = fmt.Sprintf("panic: %v", r)
		}
		v := a.judgePanic(text, stack(), r)
		if a.completed {
			a.ignored = v.text
			return
		}
		a.verdict = v
	}()
	told(dropped)
	returned = true
}

// followed returns the outcome of an attempt with what that brings.
func (a *attempt) followed(f storage.Finish) storage.Finish {
	a.own.brings(&f)
	return f
}

// Context returns the context of the handler.
func (a *Attempt) Context() context.Context { return a.of.ctx }

// tellFollowed tells of jobs that were enqueued with the end of another. It returns the holders
// of the unique keys of those that were not.
func (l *loop) tellFollowed(then []storage.NewJob, added []storage.Enqueued, now time.Time) (held []Duplicate) {
	for i, e := range added {
		j := &then[i] // the store gives an answer to each
		told := Event{Type: EventEnqueued, At: now, ID: e.ID, Queue: j.Queue, Kind: j.Kind, Due: j.DueAt, Unique: j.Unique}
		switch {
		case e.Replaced:
			told.Type = EventReplaced
		case e.Duplicate:
			held = append(held, Duplicate{e.ID, j.Kind, j.Unique})
			continue
		case j.DueAt.Before(now):
			told.Due = now.Add(j.Delay)
		}
		l.cfg.Events.Tell(told)
	}
	return held
}
