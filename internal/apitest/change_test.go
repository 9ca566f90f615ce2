package apitest

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

func ids(all ...errand.ID) errand.JobFilter { return errand.JobFilter{IDs: all} }

// change changes jobs, which must go well.
func change(t *testing.T, q *errand.Queue, f errand.JobFilter, c errand.JobChange, want errand.ChangeResult) {
	t.Helper()
	if r, err := q.Change(t.Context(), f, c); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("Change gave %+v, %v: want %+v", r, err, want)
	}
}

var one = errand.ChangeResult{Changed: 1}

// What is changed while workers wait takes effect at once, and the job goes on where it
// was.
func TestChange_withAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: hourly})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "other"}, Concurrency: 1})
		var mu sync.Mutex
		var ran []string
		fails := errors.New("offline")
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			mu.Lock()
			ran = append(ran, job.Queue+" "+job.Args.Text)
			mu.Unlock()
			if strings.HasPrefix(job.Args.Text, "bad") {
				return fails
			}
			return nil
		})
		started := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(ran, want) {
				t.Errorf("ran %q, want %q", ran, want)
			}
			ran = nil
		}
		stop := run(t, w)
		bad := enqueue(t, q, note{Text: "bad"}, nil)
		later := enqueue(t, q, note{Text: "later"}, &errand.JobOptions{Delay: 24 * time.Hour})
		parked := enqueue(t, q, note{Text: "parked"}, &errand.JobOptions{Queue: "nobody"})
		started("default bad")

		change(t, q, ids(bad), errand.JobChange{DueAt: time.Now()}, one)
		started("default bad")
		if j := lookUp(t, q, bad); j.Retry != 2 || time.Until(j.DueAt).Round(time.Second) != 2*time.Hour {
			t.Errorf("after two failures: %+v, due in %v", j, time.Until(j.DueAt))
		}
		change(t, q, ids(parked), errand.JobChange{Queue: "other"}, one)
		started("other parked")
		change(t, q, ids(later), errand.JobChange{Delay: time.Minute}, one)
		time.Sleep(time.Minute - 1)
		started()
		time.Sleep(time.Nanosecond)
		started("default later")

		// Retry 3 would come after three hours by the policy of the queue.
		own := policy.Policy{Retries: 9, MinDelay: time.Second, MaxDelay: time.Second, Jitter: policy.NoJitter}
		change(t, q, ids(bad), errand.JobChange{Policy: own, Args: note{Text: "bad again"}, DueAt: time.Now()}, one)
		started("default bad again")
		time.Sleep(time.Second)
		started("default bad again")
		change(t, q, ids(bad), errand.JobChange{Policy: policy.Document{}, Args: note{Text: "good"}}, one)
		if j := lookUp(t, q, bad); j.Policy != nil || j.Retry != 4 || j.Error != "offline" || len(j.History) != 6 {
			t.Errorf("before its last attempt: %+v", j)
		}
		time.Sleep(time.Second)
		started("default good")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestChange_byID(t *testing.T) {
	g := newGraveyard(t)
	dead := g.bury(note{}, nil, errand.ReasonExhausted, "x")
	running := enqueue(t, g.Queue, value{1}, nil)
	if _, err := g.store.Exchange(t.Context(), g.now, storage.Exchange{
		LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"default"}, Kinds: []string{"value"}, N: 1}},
	}); err != nil {
		t.Fatal(err)
	}
	var all []errand.ID
	for range 300 { // more than one step by ID
		all = append(all, enqueue(t, g.Queue, note{}, &errand.JobOptions{Priority: 1}))
	}
	named := append([]errand.ID{{1}, dead, running, all[0]}, all[:260]...)
	change(t, g.Queue, ids(named...), errand.JobChange{Priority: new(0)},
		errand.ChangeResult{Changed: 261, Running: []errand.ID{running}, NotFound: []errand.ID{{1}}})
	change(t, g.Queue, ids(named[:4]...), errand.JobChange{Delay: time.Hour},
		errand.ChangeResult{Changed: 1, Running: []errand.ID{running}, NotFound: []errand.ID{{1}, dead}})
	for i, want := range map[int]int{0: 0, 259: 0, 260: 1} {
		if j := lookUp(t, g.Queue, all[i]); j.Priority != want {
			t.Errorf("job %d has priority %d, want %d", i, j.Priority, want)
		}
	}
	r, err := g.CancelAll(t.Context(), ids(named...))
	if want := (errand.ChangeResult{Changed: 260, Running: []errand.ID{running}, NotFound: []errand.ID{{1}, dead}}); err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("CancelAll returned %+v, %v: want %+v", r, err, want)
	}
	n, err := g.Delete(t.Context(), ids(named...))
	if !errors.Is(err, errand.ErrLive) || n != 261 || !strings.Contains(err.Error(), running.String()) {
		t.Errorf("Delete gave %d, %v: want 261, and that one has not ended", n, err)
	}
	if n, err := g.Delete(t.Context(), ids(named[1], all[0])); err != nil || n != 0 {
		t.Errorf("Delete of what is gone gave %d, %v", n, err)
	}
}

// Args are changed by a value of their type or as JSON, in a job that waits or that is
// dead, and the old ones are kept.
func TestChange_args(t *testing.T) {
	g := newGraveyard(t)
	large := strings.Repeat("x", 5000)
	waits := enqueue(t, g.Queue, note{"a", 1}, &errand.JobOptions{Headers: map[string]string{"k": "v"}})
	for _, c := range []struct {
		args errand.Args
		want string
	}{
		{note{"b", 2}, `{"Text":"b","N":2}`},
		{&note{"b", 2}, `{"Text":"b","N":2}`}, // the same
		{errand.RawArgs{OfKind: "note", JSON: []byte(`{ "Text": "c" }`)}, `{"Text":"c"}`},
		{note{large, 0}, `{"Text":"` + large + `","N":0}`},
		{errand.RawArgs{OfKind: "note", JSON: []byte(`[]`)}, `[]`},
	} {
		change(t, g.Queue, ids(waits), errand.JobChange{Args: c.args}, one)
		if j := lookUp(t, g.Queue, waits); string(j.Args) != c.want || j.Headers["k"] != "v" {
			t.Errorf("the args are %.99s, the headers %v", j.Args, j.Headers)
		}
	}
	var old []string
	for _, h := range lookUp(t, g.Queue, waits).History {
		if h.Phase != errand.PhaseEdited || !h.At.Equal(g.now) || h.Attempt != 0 || h.Instance == "" {
			t.Errorf("an edit is %+v", h)
		}
		old = append(old, string(h.Args[:min(len(h.Args), 20)]))
	}
	if want := []string{`{"Text":"a","N":1}`, `{"Text":"b","N":2}`, `{"Text":"c"}`, `{"Text":"xxxxxxxxxxx`}; !slices.Equal(old, want) {
		t.Errorf("the old args are %q, want %q", old, want)
	}

	dead := g.bury(value{1}, nil, errand.ReasonDecode, "bad")
	change(t, g.Queue, ids(dead), errand.JobChange{Args: value{2}, Queue: "mended"}, one)
	if r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{Queue: "mended"}, nil); err != nil || r.Redriven != 1 {
		t.Errorf("Redrive gave %+v, %v", r, err)
	}
	if j := lookUp(t, g.Queue, dead); j.State != errand.Ready || string(j.Args) != `{"V":2}` || j.Queue != "mended" || j.Error != "bad" || len(j.History) != 2 {
		t.Errorf("the job is %+v", j)
	}
}

func TestChange_refusesBadInput(t *testing.T) {
	g := newGraveyard(t)
	id := enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour})
	dead := g.bury(value{1}, nil, errand.ReasonExhausted, "x")
	before := lookUp(t, g.Queue, id)
	all, day := errand.JobFilter{All: true}, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	raw := func(json string) errand.JobChange {
		return errand.JobChange{Args: errand.RawArgs{OfKind: "note", JSON: []byte(json)}}
	}
	off := errand.JobChange{Delay: time.Hour}
	for _, c := range []struct {
		f    errand.JobFilter
		c    errand.JobChange
		want []fault
	}{
		{all, errand.JobChange{}, []fault{{"change", "nil", "must set a field"}}},
		{all, errand.JobChange{Policy: (*policy.Policy)(nil), Args: (*note)(nil)}, []fault{{"change", "nil", "must set a field"}}},
		{all, errand.JobChange{DueAt: day, Delay: 1}, []fault{{"delay", "1ns", "must be zero if due_at is set"}}},
		{all, errand.JobChange{Delay: -1}, []fault{{"delay", "-1ns", "must not be negative"}}},
		{all, errand.JobChange{DueAt: time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)}, []fault{{"due_at", "1960-01-01T00:00:00Z", "must be in the years 1970 to 9999"}}},
		{all, errand.JobChange{Priority: new(101)}, []fault{{"priority", "101", "must be between -100 and 100"}}},
		{all, errand.JobChange{Queue: "a b"}, []fault{{"queue", `"a b"`, "must match"}}},
		{all, errand.JobChange{Policy: policy.Policy{Retries: -1}}, []fault{{"policy.retries", "-1", "must be"}}},
		{all, errand.JobChange{Args: note{}}, []fault{{"args", `"note"`, "must be nil unless the jobs are named by IDs"}}},
		{ids(id), raw("{"), []fault{{"args", `"errand.RawArgs"`, "must marshal to JSON"}}},
		{ids(id), raw(`"` + strings.Repeat("x", 256<<10) + `"`), []fault{{"args", "262146", "must be at most 262144 bytes of JSON"}}},
		{ids(id), raw("\"\xff\""), []fault{{"args", `"errand.RawArgs"`, "must marshal to valid UTF-8"}}},
		{ids(id, errand.ID{1}, dead), errand.JobChange{Args: note{"x", 1}, Priority: new(1)}, []fault{{"args", `"note"`, "must be of the kind of job " + dead.String() + ", value"}}},
		{errand.JobFilter{}, off, []fault{{"all", "false", "must be true if there is no other condition"}}},
		{errand.JobFilter{IDs: make([]errand.ID, 10_001)}, off, []fault{{"ids", "10001", "must be at most 10000 in one call"}}},
		{errand.JobFilter{IDs: []errand.ID{id}, Queue: "q"}, off, []fault{{"ids", "1", "must be the only condition"}}},
		{errand.JobFilter{States: []errand.State{errand.Dead}}, off, []fault{{"states[0]", `"dead"`, "must be one of scheduled, ready"}}},
		{errand.JobFilter{Reason: errand.ReasonExhausted}, off, []fault{{"reason", `"exhausted"`, "must be zero: only jobs that have ended match"}}},
	} {
		r, err := g.Change(t.Context(), c.f, c.c)
		wantFaults(t, err, c.want...)
		if !reflect.DeepEqual(r, errand.ChangeResult{}) {
			t.Errorf("Change of %+v gave %+v", c.f, r)
		}
	}
	_, err := g.CancelAll(t.Context(), errand.JobFilter{})
	wantFaults(t, err, fault{"all", "false", "must be true if there is no other condition"})
	_, err = g.CancelAll(t.Context(), errand.JobFilter{States: []errand.State{errand.Done}})
	wantFaults(t, err, fault{"states[0]", `"done"`, "must be one of scheduled, ready, blocked, running"})
	_, err = g.Delete(t.Context(), errand.JobFilter{})
	wantFaults(t, err, fault{"all", "false", "must be true if there is no other condition"})
	_, err = g.Delete(t.Context(), errand.JobFilter{States: []errand.State{errand.Ready}})
	wantFaults(t, err, fault{"states[0]", `"ready"`, "must be one of done, cancelled, expired, dead"})
	if j := lookUp(t, g.Queue, id); !reflect.DeepEqual(j, before) {
		t.Errorf("the job is %+v, want as it was, %+v", j, before)
	}
}

// A filter of CancelAll asks running jobs, and ends the others.
func TestCancelAll_withAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 2})
		causes := make(chan error, 9)
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		})
		first := enqueue(t, q, note{}, nil)
		stop := run(t, w)
		synctest.Wait()
		later := enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		other := enqueue(t, q, note{}, &errand.JobOptions{Queue: "other"})
		r, err := q.CancelAll(t.Context(), errand.JobFilter{Queue: "default"})
		if want := (errand.ChangeResult{Changed: 1, Running: []errand.ID{first}}); err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("CancelAll returned %+v, %v: want %+v", r, err, want)
		}
		if cause := <-causes; !errors.Is(cause, errand.ErrCancelled) {
			t.Errorf("the handler ended with the cause %v", cause)
		}
		synctest.Wait()
		for id, want := range map[errand.ID]errand.State{first: errand.Cancelled, later: errand.Cancelled, other: errand.Ready} {
			if j := lookUp(t, q, id); j.State != want {
				t.Errorf("job %v is %s, want %s", id, j.State, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The handler of a job learns of a Cancel in another process long before its lease would
// be extended. Two queues on one file stand for two processes.
func TestCancel_otherProcess(t *testing.T) {
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
	w := errand.NewWorker(there, &errand.WorkerOptions{LeaseDuration: 24 * time.Hour})
	started, ended := make(chan struct{}), make(chan error)
	errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
		started <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	stop := run(t, w)
	for i, cancel := range []func(id errand.ID) error{
		func(id errand.ID) error { _, err := here.Cancel(t.Context(), id); return err },
		func(errand.ID) error {
			_, err := here.CancelAll(t.Context(), errand.JobFilter{Kind: "note"})
			return err
		},
	} {
		id := enqueue(t, here, note{}, nil)
		<-started
		began := time.Now()
		if err := cancel(id); err != nil {
			t.Fatal(err)
		}
		if cause := <-ended; !errors.Is(cause, errand.ErrCancelled) {
			t.Errorf("the handler ended with the cause %v", cause)
		}
		t.Logf("%d: after %v", i, time.Since(began))
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// slow has each step of Change make one job another one, after which f is called.
type slow struct {
	storage.Store
	after func()
	at    []time.Time
	fails int
}

func (s *slow) Change(ctx context.Context, now time.Time, sel storage.Selection, e storage.Edit) (storage.Step, error) {
	if s.fails > 0 && len(s.at) == s.fails {
		return storage.Step{}, storage.ErrFull
	}
	defer s.after()
	s.at = append(s.at, now)
	if len(s.at) > 100 {
		return storage.Step{}, errors.New("no end")
	}
	sel.Limit = 1
	return s.Store.Change(ctx, now, sel, e)
}

// All jobs that there are at the call come to be due at the same time, and no more.
func TestChange_ends(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := &slow{Store: store}
	q, err := errand.New(t.Context(), s, &errand.Options{Clock: func() time.Time { return now }, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	all := []errand.ID{enqueue(t, q, note{}, nil), enqueue(t, q, note{}, nil), enqueue(t, q, note{}, nil)}
	s.after = func() {
		enqueue(t, q, note{}, nil)
		now = now.Add(time.Second)
	}
	began := now
	change(t, q, errand.JobFilter{Kind: "note"}, errand.JobChange{Delay: time.Hour}, errand.ChangeResult{Changed: 3})
	for _, id := range all {
		if j := lookUp(t, q, id); j.State != errand.Scheduled || !j.DueAt.Equal(began.Add(time.Hour)) {
			t.Errorf("a job is %s, due at %v: want scheduled, %v", j.State, j.DueAt, began.Add(time.Hour))
		}
	}
	s.at, s.fails = nil, 2
	r, err := q.CancelAll(t.Context(), errand.JobFilter{All: true})
	if !errors.Is(err, errand.ErrFull) || r.Changed != 2 {
		t.Errorf("CancelAll that fails at the third step gave %+v, %v", r, err)
	}
}

// Delete takes what has ended, in all tables, and nothing else.
func TestDelete_byFilter(t *testing.T) {
	g := newGraveyard(t)
	a := g.bury(note{}, nil, errand.ReasonExhausted, "x")
	b := g.bury(value{1}, nil, errand.ReasonPermanent, "y")
	live := enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour})
	var cancelled []errand.ID
	for _, args := range []errand.Args{note{}, value{1}, note{}} {
		id := enqueue(t, g.Queue, args, nil)
		if _, err := g.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		cancelled = append(cancelled, id)
	}
	if n, err := g.DeadLetters().Purge(t.Context(), ids(cancelled[0], live)); n != 0 || err != nil {
		t.Errorf("Purge of jobs that are not dead gave %d, %v", n, err)
	}
	for i, c := range []struct {
		f    errand.JobFilter
		want int
		gone []errand.ID
	}{
		{errand.JobFilter{States: []errand.State{errand.Done}}, 0, nil},
		{errand.JobFilter{Reason: errand.ReasonPermanent}, 1, []errand.ID{b}},
		{errand.JobFilter{Kind: "value"}, 1, cancelled[1:2]},
		{errand.JobFilter{OlderThan: 90 * time.Second}, 0, nil},
		{errand.JobFilter{States: []errand.State{errand.Cancelled}, Kind: "note"}, 2, []errand.ID{cancelled[0], cancelled[2]}},
		{errand.JobFilter{All: true}, 1, []errand.ID{a}},
	} {
		if n, err := g.Delete(t.Context(), c.f); n != c.want || err != nil {
			t.Errorf("%d: Delete gave %d, %v: want %d", i, n, err, c.want)
		}
		for _, id := range c.gone {
			if _, err := g.Job(t.Context(), id); !errors.Is(err, errand.ErrNotFound) {
				t.Errorf("%d: Job gave %v", i, err)
			}
		}
	}
	if j := lookUp(t, g.Queue, live); j.State != errand.Scheduled {
		t.Errorf("the live job is %s", j.State)
	}
}
