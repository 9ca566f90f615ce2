package errand_test

import (
	"context"
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
		{Lane: errand.Lane{Queue: "b", Kind: "k"}, Settings: errand.Settings{Retention: new(time.Hour)}},
	} {
		if err := q.Configure(ctx, c.Lane, c.Settings); err != nil {
			t.Fatal(err)
		}
	}
	const want = `[{"max_bytes":1099511627776},{"kind":"k","retention":-1000},` +
		`{"queue":"b","max_bytes":5,"when_full":"evict-lowest"},{"queue":"b","kind":"k","retention":3600000000000}]`
	settingsAre(t, q, want)

	wantFaults(t, q.Configure(ctx, errand.Lane{Queue: "b"}, errand.Settings{MaxJobs: new(-1), MaxBytes: new(int64(-2)), WhenFull: new(errand.WhenFull(3))}),
		fault{"max_jobs", "-1", "must not be negative"},
		fault{"max_bytes", "-2", "must not be negative"},
		fault{"when_full", "3", "must be Refuse (0), EvictOldest (1) or EvictLowest (2)"})
	wantFaults(t, q.Configure(ctx, errand.Lane{Queue: "b", Kind: "no kind"}, errand.Settings{MaxJobs: new(1)}),
		fault{"lane.kind", `"no kind"`, ""},
		fault{"max_jobs", "1", "must be set for the whole file or a queue"})
	wantFaults(t, q.Configure(ctx, errand.Lane{}, errand.Settings{}), fault{"settings", "nil", "must set at least one"})
	settingsAre(t, q, want)
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
