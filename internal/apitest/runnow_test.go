package apitest

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// hourly is a policy whose retries come after 1, 2, ... hours.
var hourly = policy.Policy{Retries: 5, MinDelay: time.Hour, MaxDelay: 5 * time.Hour, Backoff: policy.Linear, Jitter: policy.NoJitter}

// What waits for a retry runs at once, in the order of enqueueing, and goes on with
// its policy where it was; what has not run yet waits unless that is asked for.
func TestRunNow_withAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: hourly})
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
		var ran []int
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			ran = append(ran, job.Args.N)
			return errors.New("offline")
		})
		var ids []errand.ID
		for i := range 4 {
			ids = append(ids, enqueue(t, q, note{N: i}, &errand.JobOptions{Priority: i / 3})) // the last goes first
		}
		stop := run(t, w)
		synctest.Wait()
		first := enqueue(t, q, note{N: 9}, &errand.JobOptions{Delay: 24 * time.Hour})
		time.Sleep(30 * time.Minute)

		for i, want := range []errand.RunNowResult{{Ready: 4}, {Ready: 4}} {
			ran = nil
			r, err := q.RunNow(t.Context(), errand.JobFilter{All: true}, nil)
			if err != nil || !reflect.DeepEqual(r, want) {
				t.Errorf("RunNow gave %+v, %v: want %+v", r, err, want)
			}
			synctest.Wait()
			if want := []int{3, 0, 1, 2}; !slices.Equal(ran, want) {
				t.Errorf("ran %v, want %v", ran, want)
			}
			j := lookUp(t, q, ids[0])
			wait := time.Duration(i+2) * time.Hour
			if j.Retry != i+2 || j.Attempt != i+2 || len(j.History) != i+2 || time.Until(j.DueAt).Round(time.Second) != wait {
				t.Errorf("after %d attempts: %+v, due in %v: want %v", i+2, j, time.Until(j.DueAt), wait)
			}
		}
		if j := lookUp(t, q, first); j.State != errand.Scheduled {
			t.Errorf("the job that has not run yet is %s", j.State)
		}
		ran = nil
		r, err := q.RunNow(t.Context(), errand.JobFilter{Queue: "default"}, &errand.RunNowOptions{FirstRuns: true})
		if synctest.Wait(); err != nil || r.Ready != 5 || !slices.Equal(ran, []int{3, 0, 1, 2, 9}) {
			t.Errorf("RunNow with first runs gave %+v, %v, and %v ran", r, err, ran)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A worker of another process starts what was made ready. Two queues on one file
// stand for two processes.
//
//errand:shows jobs that are run now | | workers of other processes are woken; a filter without a condition must set All
func TestRunNow_wakesOtherProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	open := func() *errand.Queue {
		q, err := errand.Open(t.Context(), path, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = q.Close() })
		return q
	}
	here, there := open(), open()
	ran := make(chan string, 10)
	w := errand.NewWorker(there, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		ran <- job.Args.Text
		return nil
	})
	id := enqueue(t, here, note{Text: "in an hour"}, &errand.JobOptions{Delay: time.Hour})
	stop := run(t, w)
	enqueue(t, here, note{Text: "now"}, nil)
	if got := <-ran; got != "now" {
		t.Fatalf("%q ran first", got)
	}
	if r, err := here.RunNow(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, nil); err != nil || r.Ready != 1 {
		t.Fatalf("RunNow gave %+v, %v", r, err)
	}
	if got := <-ran; got != "in an hour" {
		t.Errorf("%q ran", got)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Jobs whose handlers said for how long to wait go on waiting, if that is asked for.
func TestRunNow_failedOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: hourly})
		w := errand.NewWorker(q, nil)
		refused := errors.New("refused")
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			if job.Attempt > 1 {
				return nil
			}
			return []error{refused, errand.Snooze(time.Hour, nil), errand.RetryAfter(time.Hour, refused)}[job.Args.N]
		})
		var ids []errand.ID
		for i := range 3 {
			ids = append(ids, enqueue(t, q, note{N: i}, nil))
		}
		stop := run(t, w)
		synctest.Wait()
		time.Sleep(time.Minute)
		r, err := q.RunNow(t.Context(), errand.JobFilter{All: true}, &errand.RunNowOptions{FailedOnly: true})
		if synctest.Wait(); err != nil || r.Ready != 1 {
			t.Errorf("RunNow gave %+v, %v", r, err)
		}
		for i, want := range []errand.State{errand.Done, errand.Scheduled, errand.Scheduled} {
			if j := lookUp(t, q, ids[i]); j.State != want {
				t.Errorf("job %d is %s, want %s", i, j.State, want)
			}
		}
		if h := lookUp(t, q, ids[2]).History; len(h) != 1 || !h[0].RetryAfter {
			t.Errorf("the history is %+v, want one that has asked for a delay", h)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunNow_byID(t *testing.T) {
	g := newGraveyard(t)
	dead := g.bury(note{}, nil, errand.ReasonExhausted, "x")
	ready := enqueue(t, g.Queue, value{1}, nil)
	var later []errand.ID
	for range 300 { // more than one step by ID
		later = append(later, enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour}))
	}
	named := append([]errand.ID{{1}, ready}, later[:260]...)
	r, err := g.RunNow(t.Context(), errand.JobFilter{IDs: append(named, later[0], dead)}, nil)
	if want := (errand.RunNowResult{Ready: 260, NotFound: []errand.ID{{1}, dead}}); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("RunNow gave %+v, %v: want %+v", r, err, want)
	}
	for i, want := range map[int]errand.State{0: errand.Ready, 259: errand.Ready, 260: errand.Scheduled} {
		if j := lookUp(t, g.Queue, later[i]); j.State != want {
			t.Errorf("job %d is %s, want %s", i, j.State, want)
		}
	}
}

// One job by its ID starts although its queue is paused.
func TestRunNow_urgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
		if err := q.Pause(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		stays, runs := enqueue(t, q, note{}, nil), enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		stop := run(t, w)
		time.Sleep(time.Second)
		r, err := q.RunNow(t.Context(), errand.JobFilter{IDs: []errand.ID{runs}}, nil)
		if err != nil || r.Ready != 1 {
			t.Errorf("RunNow gave %+v, %v", r, err)
		}
		time.Sleep(time.Second)
		for id, want := range map[errand.ID]errand.State{stays: errand.Ready, runs: errand.Done} {
			if j := lookUp(t, q, id); j.State != want {
				t.Errorf("job %v is %s, want %s", id, j.State, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

//errand:shows jobs that are run now
func TestRunNow_refusesBadInput(t *testing.T) {
	g := newGraveyard(t)
	id := enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour})
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	const ended = "must be zero: only jobs that have ended match"
	for _, c := range []struct {
		f    errand.JobFilter
		want []fault
	}{
		{errand.JobFilter{}, []fault{{"all", "false", "must be true if there is no other condition"}}},
		{errand.JobFilter{All: true, Kind: "k"}, []fault{{"all", "true", "must be the only condition"}}},
		{errand.JobFilter{IDs: []errand.ID{id}, Queue: "q"}, []fault{{"ids", "1", "must be the only condition"}}},
		{errand.JobFilter{IDs: make([]errand.ID, 10_001)}, []fault{{"ids", "10001", "must be at most 10000 in one call"}}},
		{errand.JobFilter{Queue: "a b"}, []fault{{"queue", `"a b"`, "must match"}}},
		{errand.JobFilter{Error: "\xff"}, []fault{{"error", `"\xff"`, "must be at most 1024 bytes"}}},
		{errand.JobFilter{Reason: errand.ReasonExhausted}, []fault{{"reason", `"exhausted"`, ended}}},
		{errand.JobFilter{EndedFrom: day}, []fault{{"ended_from", "2026-01-02T00:00:00Z", ended}}},
		{errand.JobFilter{EndedBefore: day}, []fault{{"ended_before", "2026-01-02T00:00:00Z", ended}}},
		{errand.JobFilter{States: []errand.State{errand.Scheduled, errand.Ready}}, []fault{{"states[1]", `"ready"`, "must be one of scheduled"}}},
		{errand.JobFilter{Tag: "a b"}, []fault{{"tag", `"a b"`, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}"}}},
		{errand.JobFilter{CreatedFrom: day, CreatedBefore: day.Add(-1)}, []fault{{"created_before", "2026-01-01T23:59:59.999999999Z", "must not be before created_from 2026-01-02T00:00:00Z"}}},
		{errand.JobFilter{DueFrom: day, DueBefore: day.Add(-1)}, []fault{{"due_before", "2026-01-01T23:59:59.999999999Z", "must not be before due_from 2026-01-02T00:00:00Z"}}},
		{errand.JobFilter{OlderThan: time.Hour, Queue: "?"}, []fault{{"queue", `"?"`, "must match"}, {"older_than", "1h0m0s", ended}}},
	} {
		r, err := g.RunNow(t.Context(), c.f, &errand.RunNowOptions{FirstRuns: true})
		wantFaults(t, err, c.want...)
		if !reflect.DeepEqual(r, errand.RunNowResult{}) {
			t.Errorf("RunNow of %+v gave %+v", c.f, r)
		}
	}
	if _, err := g.RunNow(t.Context(), errand.JobFilter{IDs: []errand.ID{}}, nil); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("RunNow of no IDs: %v", err)
	}
	if j := lookUp(t, g.Queue, id); j.State != errand.Scheduled {
		t.Errorf("the job is %s", j.State)
	}
}

// hasty has each step of RunNow make one job ready, after which a further one is
// enqueued and time passes.
type hasty struct {
	storage.Store
	after func()
	at    []time.Time // the now of each step
	fails int         // after so many steps; 0: none does
}

func (s *hasty) RunNow(ctx context.Context, now time.Time, sel storage.Selection, which storage.Waiting) (storage.Step, error) {
	if s.fails > 0 && len(s.at) == s.fails {
		return storage.Step{}, storage.ErrFull
	}
	defer s.after()
	s.at = append(s.at, now)
	if len(s.at) > 100 {
		return storage.Step{}, errors.New("no end")
	}
	sel.Limit = 1
	return s.Store.RunNow(ctx, now, sel, which)
}

// All jobs that there are at the call come to be due at the same time, and no more.
func TestRunNow_ends(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := &hasty{Store: store}
	q, err := errand.New(t.Context(), s, &errand.Options{Clock: func() time.Time { return now }, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	later := func() errand.ID { return enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour}) }
	ids := []errand.ID{later(), later(), later()}
	s.after = func() {
		later()
		now = now.Add(time.Second)
	}
	o := &errand.RunNowOptions{FirstRuns: true}
	began := now
	r, err := q.RunNow(t.Context(), errand.JobFilter{Kind: "note"}, o)
	if err != nil || r.Ready != 3 || len(s.at) != 3 {
		t.Errorf("RunNow gave %+v, %v in %d steps: want 3 in 3", r, err, len(s.at))
	}
	for _, id := range ids {
		if j := lookUp(t, q, id); j.State != errand.Ready || !j.DueAt.Equal(began) {
			t.Errorf("a job is %s, due at %v: want ready, %v", j.State, j.DueAt, began)
		}
	}
	s.at, s.fails = nil, 2
	r, err = q.RunNow(t.Context(), errand.JobFilter{Kind: "note"}, o)
	if !errors.Is(err, errand.ErrFull) || r.Ready != 2 {
		t.Errorf("RunNow that fails at the third step gave %+v, %v", r, err)
	}
}
