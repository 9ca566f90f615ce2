package apitest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// slowly runs the jobs of schedules: those that begin while one is to be slow run until they
// are released, and those that begin while one is to die do.
type slowly struct {
	*agenda
	slow, dies atomic.Bool
	release    chan struct{}
}

func (a *slowly) do(ctx context.Context, _ *errand.Job[note]) error {
	switch {
	case a.dies.Load():
		return errand.Permanent(errors.New("no"))
	case !a.slow.Load():
		return nil
	}
	select {
	case <-a.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runs has a schedule run at once, and that job be over unless it is slow.
func (a *slowly) runs(name string) errand.ID {
	a.t.Helper()
	e, err := a.Schedules().Run(a.t.Context(), name)
	if err != nil {
		a.t.Fatal(err)
	}
	synctest.Wait()
	return e.ID
}

// runsSlowly has a schedule run at once, and that job not be over.
func (a *slowly) runsSlowly(name string) {
	a.t.Helper()
	a.slow.Store(true)
	if id := a.runs(name); lookUp(a.t, a.Queue, id).State != errand.Running {
		a.t.Fatal("the job does not run")
	}
	a.slow.Store(false)
}

// A tick is skipped while any job of the schedule is not over, however that came to be.
func TestSchedule_OverlapWithAnyJob(t *testing.T) {
	s := errand.Schedule{Name: "x", Spec: "* * * * *", Overlap: errand.OverlapSkip}
	for name, way := range map[string]func(a *slowly){
		"run by hand before the last one": func(a *slowly) {
			a.declare(s)
			a.runsSlowly("x")
			a.runs("x")
		},
		"fired before one that is run by hand": func(a *slowly) {
			a.declare(s)
			a.slow.Store(true)
			time.Sleep(time.Minute)
			synctest.Wait()
			a.slow.Store(false)
			a.runs("x")
		},
		"redriven": func(a *slowly) {
			a.declare(s)
			a.dies.Store(true)
			a.runs("x")
			a.dies.Store(false)
			a.runs("x")
			a.slow.Store(true)
			if r, err := a.DeadLetters().Redrive(a.t.Context(), errand.JobFilter{}, nil); err != nil || r.Redriven != 1 {
				a.t.Fatalf("redriven %+v, %v", r, err)
			}
			synctest.Wait()
			a.slow.Store(false)
		},
		"from when overlap was allowed": func(a *slowly) {
			before := s
			before.Overlap = errand.OverlapAllow
			a.declare(before)
			a.runsSlowly("x")
			a.runs("x")
			a.declare(s)
		},
		"of a schedule of the name that was removed": func(a *slowly) {
			before := s
			before.Spec, before.Zone, before.Options = "@daily", "Europe/Berlin", &errand.JobOptions{Tags: []string{"before"}}
			a.declare(before)
			a.runsSlowly("x")
			if err := a.Schedules().Remove(a.t.Context(), "x"); err != nil {
				a.t.Fatal(err)
			}
			a.declare(s)
			a.runs("x")
		},
		"fired as the program started": func(a *slowly) {
			starts := s
			starts.RunOnStart = true
			a.slow.Store(true)
			a.declare(starts)
			synctest.Wait()
			a.slow.Store(false)
			a.runs("x")
		},
		"that waits, and was changed": func(a *slowly) {
			other := s
			other.Options = &errand.JobOptions{Queue: "another"} // which nobody serves
			a.declare(other)
			id := a.runs("x")
			a.declare(s)
			a.runs("x")
			change := errand.JobChange{Delay: 90 * time.Second, Queue: "default"}
			if _, err := a.Change(a.t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, change); err != nil {
				a.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			agendas(t, func(t *testing.T, a *agenda) {
				b := &slowly{agenda: a, release: make(chan struct{})}
				a.work(b.do)
				way(b)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := a.history("x"); !strings.HasPrefix(got[0], "overlap") {
					t.Errorf("while a job is not over: %q", got)
				}
				close(b.release)
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := a.history("x"); !strings.HasPrefix(got[0], "fired") {
					t.Errorf("after that job: %q", got)
				}
			})
		})
	}
}

// A job with the headers of a schedule's job, such as an imported dead letter, is none of the schedule.
func TestSchedule_OverlapNotByHeaders(t *testing.T) {
	agendas(t, func(t *testing.T, a *agenda) {
		a.work(nil)
		a.declare(errand.Schedule{Name: "x", Spec: "* * * * *", Overlap: errand.OverlapSkip})
		copied := &errand.JobOptions{Headers: map[string]string{"errand-schedule": "x", "errand-tick": "2000-01-01T00:00:00Z"}, Delay: time.Hour}
		if _, err := a.Enqueue(t.Context(), note{}, copied); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		a.wantHistory("x", "fired 2000-01-01T00:01:00Z")
	})
}
