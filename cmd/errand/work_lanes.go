package main

import (
	"context"
	"slices"
	"strings"
	"time"

	queue "github.com/errandq/errand"
)

// workLanes are the jobs that errand work is for.
type workLanes struct {
	queue         *queue.Queue
	kinds, queues []string
	since         time.Time
	off           *putOffJobs // set by drained
}

// left is what errand work says at its end.
type left struct {
	Attempts int64             `json:"attempts"` // commands that were run
	Done     int64             `json:"done"`     // of these
	Waiting  int64             `json:"waiting"`  // jobs that have not ended
	Blocked  int64             `json:"blocked"`  // of these, those that wait for others of their groups
	Held     []queue.HoldState `json:"held"`
	Dead     int64             `json:"dead"` // dead letters
	Died     bool              `json:"died"` // jobs died since the beginning
	// PutOff are those of Waiting that could not reach the other side and are put off one by
	// one, since others of their lane can; if the work has ended for that.
	PutOff *putOffJobs `json:"put_off,omitempty"`
	ended  ending
}

// putOffJobs are jobs that are put off.
type putOffJobs struct {
	N     int64     `json:"n"`
	Until time.Time `json:"until"` // when the first of them is due
	Error string    `json:"error"` // of that
}

// ending is why errand work has ended.
type ending int

const (
	stopped ending = iota // by a signal
	emptied               // no job was left
	blocked               // all that were left were held, put off, or waited for others of their groups
)

// each calls do for each queue and kind.
func (l *workLanes) each(do func(queue.Lane) error) error {
	for _, name := range l.queues {
		for _, kind := range l.kinds {
			if err := do(queue.Lane{Queue: name, Kind: kind}); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin checks the names, and ends the holds that an errand work has begun whose
// command was not able to run: that of this one may be.
func (l *workLanes) begin(ctx context.Context) error {
	l.since = l.queue.Clock().Now.Truncate(time.Microsecond)
	if _, err := l.died(ctx); err != nil {
		return err
	}
	holds, err := l.queue.Holds(ctx)
	for _, h := range holds {
		if err == nil && h.Reason == misconfigured && l.worksFor(h.Queue) && slices.Contains(l.kinds, h.Kind) {
			_, err = l.queue.Release(ctx, h.Lane, h.Reason)
		}
	}
	return err
}

// worksFor reports whether a queue is one of l.queues, or begins with a prefix of them.
func (l *workLanes) worksFor(name string) bool {
	return slices.ContainsFunc(l.queues, func(q string) bool {
		prefix, many := strings.CutSuffix(q, "*")
		return q == name || many && strings.HasPrefix(name, prefix)
	})
}

// died reports whether a job has died since the beginning.
func (l *workLanes) died(ctx context.Context) (died bool, err error) {
	err = l.each(func(lane queue.Lane) error {
		f := queue.JobFilter{Queue: lane.Queue, Kind: lane.Kind, EndedFrom: l.since}
		o := queue.ListOptions{Limit: 1}
		if strings.HasSuffix(lane.Queue, "*") {
			f.Queue, o.Limit = "", 0
		}
		for !died {
			page, err := l.queue.DeadLetters().List(ctx, f, &o)
			died = slices.ContainsFunc(page.Jobs, func(j queue.JobInfo) bool { return l.worksFor(j.Queue) })
			if err != nil || page.Next == "" {
				return err
			}
			o.After = page.Next
		}
		return nil
	})
	return died, err
}

const (
	// look is how often drained looks at the counts, which are kept and not counted.
	look = 100 * time.Millisecond
	// lookAtEach is how often it looks at jobs that are scheduled one by one, if no others
	// are left.
	lookAtEach = time.Second
)

// drained waits until no job is left, or until all that are left are held or put off for
// longer than wait, or have for so long waited for others of their groups, and returns
// which. It ends with ctx too.
func (l *workLanes) drained(ctx context.Context, wait time.Duration) ending {
	again := time.NewTicker(look)
	defer again.Stop()
	var each, idle time.Time
	for {
		s, err := l.state(ctx, wait)
		if err == nil && (s.free > 0 || idle.IsZero()) {
			idle = time.Now()
		}
		switch {
		case err != nil: // once more: the worker says so if it lasts
		case s.live == 0:
			return emptied
		case s.free == 0 && (s.blocked == 0 || time.Since(idle) >= wait): // another process may run those before
			return blocked
		case s.free == s.scheduled && time.Since(each) >= lookAtEach:
			each = time.Now()
			if off, err := l.putOff(ctx, s); err == nil && off != nil {
				l.off = off
				return blocked
			}
		}
		select {
		case <-ctx.Done():
			return stopped
		case <-again.C:
		}
	}
}

// putOff returns the jobs of s that are scheduled and not held, if the last attempt of each
// could not reach the other side and none is due soon; nil if there are others. No hold says
// so of them: while others of their lane reach their hosts it is not held.
func (l *workLanes) putOff(ctx context.Context, s *state) (*putOffJobs, error) {
	off := &putOffJobs{}
	o := queue.ListOptions{Limit: 1000}
	for {
		page, err := l.queue.Jobs(ctx, queue.JobFilter{States: []queue.State{queue.Scheduled}}, &o)
		if err != nil {
			return nil, err
		}
		for _, j := range page.Jobs {
			switch {
			case !l.worksFor(j.Queue) || !slices.Contains(l.kinds, j.Kind) || s.held(j.Queue, j.Kind):
			case !j.Unreached || !j.DueAt.After(s.soon):
				return nil, nil
			default:
				if off.N++; off.N == 1 { // they come by due time
					off.Until, off.Error = j.DueAt.UTC(), j.Error
				}
			}
		}
		if o.After = page.Next; o.After == "" {
			break
		}
	}
	if off.N != s.scheduled { // some have become ready meanwhile
		return nil, nil
	}
	return off, nil
}

// state is how many jobs have not ended, and what holds them.
type state struct {
	live, dead int64
	free       int64 // of live: running, or not held for longer than asked
	scheduled  int64 // of free
	blocked    int64 // of live: behind others of their groups
	holds      []queue.HoldState
	soon       time.Time // how long is asked
}

// held reports whether the jobs of a lane are held for longer than asked.
func (s *state) held(name, kind string) bool {
	return slices.ContainsFunc(s.holds, func(h queue.HoldState) bool {
		return h.Includes(name, kind) && (h.Until.IsZero() || h.Until.After(s.soon))
	})
}

// state reads how many jobs have not ended. A hold that ends between the two reads would
// hold jobs that are free: if none is, the holds have to be the same before and after.
func (l *workLanes) state(ctx context.Context, wait time.Duration) (*state, error) {
	holds, err := l.queue.Holds(ctx)
	for err == nil {
		var s *state
		if s, err = l.count(ctx, wait, holds); err != nil || s.free > 0 || s.live == 0 {
			return s, err
		}
		before := holds
		if holds, err = l.queue.Holds(ctx); err == nil && slices.EqualFunc(before, holds, sameHold) {
			return s, nil
		}
	}
	return nil, err
}

func sameHold(a, b queue.HoldState) bool {
	return a.Lane == b.Lane && a.Reason == b.Reason && a.Until.Equal(b.Until)
}

// count reads how many jobs have not ended, with the holds that were there before.
func (l *workLanes) count(ctx context.Context, wait time.Duration, holds []queue.HoldState) (*state, error) {
	counts, err := l.queue.Counts(ctx)
	if err != nil {
		return nil, err
	}
	s := &state{soon: l.queue.Clock().Now.Add(wait)}
	for _, h := range holds {
		if l.touches(h.Lane) {
			s.holds = append(s.holds, h)
		}
	}
	for _, c := range counts {
		if !l.worksFor(c.Queue) || !slices.Contains(l.kinds, c.Kind) {
			continue
		}
		switch c.State {
		case queue.Dead:
			s.dead += c.N
		case queue.Running:
			s.live, s.free = s.live+c.N, s.free+c.N
		case queue.Blocked:
			s.live, s.blocked = s.live+c.N, s.blocked+c.N
		case queue.Ready, queue.Scheduled:
			s.live += c.N
			if s.held(c.Queue, c.Kind) {
				continue
			}
			s.free += c.N
			if c.State == queue.Scheduled {
				s.scheduled += c.N
			}
		}
	}
	return s, nil
}

// touches reports whether a hold of lane holds some of the jobs.
func (l *workLanes) touches(lane queue.Lane) bool {
	return (lane.Queue == "" || l.worksFor(lane.Queue)) && (lane.Kind == "" || slices.Contains(l.kinds, lane.Kind))
}

// left returns what is left at the end.
func (l *workLanes) left(ctx context.Context) (*left, error) {
	r := &left{Held: []queue.HoldState{}, PutOff: l.off}
	s, err := l.state(ctx, 0)
	if err != nil {
		return r, err
	}
	r.Waiting, r.Blocked, r.Dead = s.live, s.blocked, s.dead
	r.Held = append(r.Held, s.holds...)
	r.Died, err = l.died(ctx)
	return r, err
}
