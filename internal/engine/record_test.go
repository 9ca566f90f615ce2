package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/internal/schedule"
	"github.com/errandq/errand/storage"
)

// declare adds a schedule as the queue does: it fires from now on. What is left
// empty is every minute, UTC, One, a job of kind k in q.
func (r *rig) declare(s storage.Schedule) storage.Schedule {
	r.t.Helper()
	now := r.now()
	if s.Spec == "" {
		s.Spec = "* * * * *"
	}
	if s.Missed == "" {
		s.Missed = "one"
	}
	s.Job = storage.NewJob{Queue: "q", Kind: "k", Args: []byte(`{}`), Headers: s.Job.Headers, Unique: s.Job.Unique}
	if spec, err := schedule.Parse(s.Spec, s.Zone); err == nil {
		s.Plan = storage.Plan{Revision: s.Revision, Paused: s.Paused, Next: spec.Next(now), Through: now}
	}
	return r.put(s)
}

// put writes a schedule as it is.
func (r *rig) put(s storage.Schedule) storage.Schedule {
	r.t.Helper()
	revision, err := r.app.(storage.Scheduler).PutSchedule(r.t.Context(), r.now(), s)
	if err != nil || revision == 0 {
		r.t.Fatalf("schedule %q was not taken: %v", s.Name, err)
	}
	s.Revision = revision
	synctest.Wait()
	return s
}

// schedule returns a schedule as it is in the store.
func (r *rig) schedule(name string) storage.ScheduleRecord {
	r.t.Helper()
	all, err := r.app.(storage.Scheduler).Schedules(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	r.t.Fatalf("there is no schedule %q", name)
	return storage.ScheduleRecord{}
}

// history returns the entries of a schedule, the oldest first.
func (r *rig) history(name string) []storage.Tick {
	r.t.Helper()
	ticks, err := r.app.(storage.Scheduler).Ticks(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(ticks)
	return ticks
}

// wantHistory compares a history with lines of tick, number and outcome.
func (r *rig) wantHistory(name string, want ...string) {
	r.t.Helper()
	var got []string
	for _, t := range r.history(name) {
		got = append(got, fmt.Sprintf("%s %d %s", t.At.UTC().Format("15:04:05"), t.N, t.Taken))
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("history of %q:\n got %q\nwant %q", name, got, want)
	}
}

// run is a job of a tick that was run.
type run struct {
	tick, at time.Time
	due      time.Time
	headers  map[string]string
}

// record collects what schedules have had run, by their names.
type record struct {
	mu   sync.Mutex
	runs map[string][]run
}

// record has the jobs of schedules recorded.
func (r *rig) record() *record {
	rec := &record{runs: map[string][]run{}}
	r.handle("k", rec.handle(r.t))
	return rec
}

func (rec *record) handle(t *testing.T) handle {
	return func(_ context.Context, job *storage.Leased) error {
		headers := map[string]string{}
		if err := json.Unmarshal(job.Headers, &headers); err != nil {
			t.Errorf("headers %q: %v", job.Headers, err)
		}
		tick, err := time.Parse(time.RFC3339, headers[engine.HeaderTick])
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		defer rec.mu.Unlock()
		name := headers[engine.HeaderSchedule]
		rec.runs[name] = append(rec.runs[name], run{tick, time.Now(), job.DueAt, headers})
		return nil
	}
}

// take returns what was run for a schedule since the last call.
func (rec *record) take(name string) []run {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	runs := rec.runs[name]
	delete(rec.runs, name)
	return runs
}

// wantEvery checks that the runs are those of n ticks, one each so often, the
// first of them at a time, and that each ran at its tick.
func wantEvery(t *testing.T, runs []run, every time.Duration, n int, first time.Time) {
	t.Helper()
	if len(runs) != n {
		t.Errorf("%d runs, want %d", len(runs), n)
	}
	for i, run := range runs {
		want := first.Add(time.Duration(i) * every)
		if !run.tick.Equal(want) || !run.at.Equal(want) {
			t.Fatalf("run %d is of %v, at %v; want %v", i, run.tick, run.at, want)
		}
	}
}
