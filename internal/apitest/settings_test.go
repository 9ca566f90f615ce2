package apitest

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// settingsAre checks all settings, as JSON.
func settingsAre(t *testing.T, q *errand.Queue, want string) {
	t.Helper()
	got, err := q.Settings(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil || string(text) != want {
		t.Errorf("settings are\n%s (%v), want\n%s", text, err, want)
	}
}

func TestQueue_Configure(t *testing.T) {
	q := openQueue(t, nil)
	ctx := t.Context()
	settingsAre(t, q, `null`)
	for _, c := range []errand.LaneSettings{
		{Lane: errand.Lane{Queue: "b"}, Settings: errand.Settings{MaxJobs: new(7), WhenFull: new(errand.EvictLowest)}},
		{Settings: errand.Settings{MaxBytes: new(int64(1 << 40))}},
		{Lane: errand.Lane{Queue: "b"}, Settings: errand.Settings{MaxJobs: new(0), MaxBytes: new(int64(5))}},
		{Lane: errand.Lane{Queue: "c"}, Settings: errand.Settings{MaxJobs: new(0)}},
		{Lane: errand.Lane{Kind: "k"}, Settings: errand.Settings{Retention: new(-time.Nanosecond)}},
		{Lane: errand.Lane{Queue: "b", Kind: "k"}, Settings: errand.Settings{Retention: new(time.Hour), StartWithin: new(time.Minute)}},
		{Lane: errand.Lane{Queue: "b", Kind: "k"}, Settings: errand.Settings{FinishWithin: new(24 * time.Hour), OnExpire: new(errand.Dead)}},
	} {
		if err := q.Configure(ctx, c.Lane, c.Settings); err != nil {
			t.Fatal(err)
		}
	}
	const want = `[{"max_bytes":1099511627776},{"kind":"k","retention_s":-0.000001},` +
		`{"queue":"b","max_bytes":5,"when_full":"evict-lowest"},{"queue":"b","kind":"k","retention_s":3600,"start_within_s":60,"finish_within_s":86400,"on_expire":"dead"}]`
	settingsAre(t, q, want)

	wantFaults(t, q.Configure(ctx, errand.Lane{Queue: "b"}, errand.Settings{MaxJobs: new(-1), MaxBytes: new(int64(-2)), WhenFull: new(errand.WhenFull(3))}),
		fault{"max_jobs", "-1", "must not be negative"},
		fault{"max_bytes", "-2", "must not be negative"},
		fault{"when_full", "3", "must be Refuse (0), EvictOldest (1) or EvictLowest (2)"})
	wantFaults(t, q.Configure(ctx, errand.Lane{}, errand.Settings{MinFree: new(int64(-1)), MinFreePriority: new(101)}),
		fault{"min_free", "-1", "must not be negative"},
		fault{"min_free_priority", "101", "must be between -100 and 100"})
	wantFaults(t, q.Configure(ctx, errand.Lane{Kind: "k"}, errand.Settings{MaxDead: new(-1), WhenDeadFull: new(errand.WhenDeadFull(2))}),
		fault{"max_dead", "-1", "must be set for the whole file or a queue or a kind in a queue, not for a kind"},
		fault{"when_dead_full", "2", "must be set for the whole file or a queue or a kind in a queue, not for a kind"})
	wantFaults(t, q.Configure(ctx, errand.Lane{Queue: "b", Kind: "k"}, errand.Settings{MaxDead: new(-1), WhenDeadFull: new(errand.WhenDeadFull(2))}),
		fault{"max_dead", "-1", "must not be negative"},
		fault{"when_dead_full", "2", "must be KeepDead (0) or EvictDead (1)"})
	wantFaults(t, q.Configure(ctx, errand.Lane{Queue: "b", Kind: "no kind"}, errand.Settings{MaxJobs: new(1)}),
		fault{"lane.kind", `"no kind"`, ""},
		fault{"max_jobs", "1", "must be set for the whole file or a queue, not for a kind in a queue"})
	wantFaults(t, q.Configure(ctx, errand.Lane{}, errand.Settings{StartWithin: new(time.Nanosecond), FinishWithin: new(-time.Hour), OnExpire: new(errand.Done)}),
		fault{"start_within", "1ns", "must be zero or between 1s and 876000h (100 years)"},
		fault{"finish_within", "-1h0m0s", "must be zero or between 1s and 876000h (100 years)"},
		fault{"on_expire", `"done"`, "must be empty, expired or dead"})
	wantFaults(t, q.Configure(ctx, errand.Lane{}, errand.Settings{}), fault{"settings", "nil", "must set at least one"})
	settingsAre(t, q, want)
}

// What is set for a lane is for jobs that have none of their own, in whatever way they
// are enqueued.
func TestQueue_Configure_windows(t *testing.T) {
	q := openQueue(t, nil)
	set := errand.Settings{StartWithin: new(time.Minute), FinishWithin: new(time.Hour), OnExpire: new(errand.Dead)}
	if err := q.Configure(t.Context(), errand.Lane{Kind: note{}.Kind()}, set); err != nil {
		t.Fatal(err)
	}
	is := func(id errand.ID, start, finish time.Duration, on errand.State) {
		t.Helper()
		j, err := q.Job(t.Context(), id)
		after := func(end time.Time) time.Duration { return end.Sub(j.DueAt).Truncate(time.Millisecond) } // it is rounded up
		if err != nil || after(j.StartBy) != start || after(j.Deadline) != finish || j.OnExpire != on {
			t.Errorf("%v after it is due, %v, then %q (%v), want %v, %v, %q", after(j.StartBy), after(j.Deadline), j.OnExpire, err, start, finish, on)
		}
	}
	is(enqueue(t, q, note{}, nil), time.Minute, time.Hour, errand.Dead)
	is(enqueue(t, q, note{}, &errand.JobOptions{StartWithin: time.Second, OnExpire: errand.Expired}), time.Second, time.Hour, errand.Expired)
	is(enqueue(t, q, note{}, &errand.JobOptions{OnExpire: errand.Expired}), time.Minute, time.Hour, errand.Expired)
	var inside errand.ID
	err := q.Tx(t.Context(), func(tx *sql.Tx) error {
		e, err := q.EnqueueTx(t.Context(), tx, note{}, &errand.JobOptions{Delay: time.Hour, FinishWithin: 2 * time.Hour})
		inside = e.ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	is(inside, time.Minute, 2*time.Hour, errand.Dead)
}

// A worker writes the settings of its own queues and of the file when it runs, and keeps
// the others.
func TestWorker_Settings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := new(5)
		q, _ := memoryQueue(t, errand.Options{
			Settings: errand.Settings{MaxJobs: new(100)},
			Queues: map[string]errand.QueueOptions{
				"own":    {Settings: errand.Settings{MaxJobs: jobs}},
				"others": {Settings: errand.Settings{MaxJobs: new(6)}},
			},
		})
		*jobs = 1000 // it is the caller's
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		check(q.Configure(t.Context(), errand.Lane{Queue: "own"}, errand.Settings{MaxJobs: new(1), MaxBytes: new(int64(2))}))
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"own", "plain"}})
		stop := run(t, w)
		synctest.Wait()
		settingsAre(t, q, `[{"max_jobs":100},`+
			`{"queue":"own","max_jobs":5,"max_bytes":2}]`)
		check(stop())
		check(q.Close())
	})
	bad := errand.Settings{MaxJobs: new(-1)}
	_, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), &errand.Options{Settings: bad, Queues: map[string]errand.QueueOptions{"a": {Settings: bad}}})
	wantFaults(t, err, fault{"settings.max_jobs", "-1", "must not be negative"},
		fault{`queues["a"].settings.max_jobs`, "-1", "must not be negative"})
}
