//go:build unix

package torture_test

import (
	"context"
	"errors"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["bulk"] = runBulk }

// broken is a job that dies at once.
type broken struct{ N int }

func (broken) Kind() string { return "broken" }

// refusing returns a worker for broken jobs.
func refusing(q *errand.Queue) *errand.Worker {
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 20, LeaseDuration: time.Minute})
	errand.Handle(w, func(context.Context, *errand.Job[broken]) error { return errand.Permanent(errors.New("no")) })
	return w
}

// runBulk is the program: a worker whose queue has no jobs.
func runBulk(p part, v *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	q, err := errand.Open(ctx, p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	v.say("ready")
	return errors.Join(refusing(q).Run(ctx), q.Close())
}

// Programs that work on a bulk job are killed one after the other: it goes on with the next,
// and each job is put back once.
func TestKill_Bulk(t *testing.T) {
	t.Parallel()
	const n = 4000
	random := dice(t)
	path := filepath.Join(ramDir(t), "jobs.db")
	q, err := errand.Open(t.Context(), path, groupOptions(true))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	jobs := make([]errand.NewJob, n)
	for i := range jobs {
		jobs[i].Args = broken{i}
	}
	added, err := q.EnqueueMany(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	w, stopped := refusing(q), make(chan error, 1)
	go func() { stopped <- w.Run(t.Context()) }()
	in := func(queue string, state errand.State) (jobs int64) {
		counts, err := q.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counts {
			if c.Queue == queue && c.State == state {
				jobs += c.N
			}
		}
		return jobs
	}
	await(t, time.Minute, "all are dead", func() bool { return in("default", errand.Dead) == n })
	if err := errors.Join(w.Shutdown(t.Context()), <-stopped); err != nil {
		t.Fatal(err)
	}

	order := errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Redrive: errand.RedriveOptions{Queue: "again"}, Rate: 1500}
	bulk, err := q.StartBulk(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	for bulk.EndedAt.IsZero() {
		c := start(t, newLedger(), part{Role: "bulk", DB: path, Relaxed: true})
		c.hears("ready")
		if kills < 10 {
			<-time.After(between(random, 100*time.Millisecond, 400*time.Millisecond))
			c.kill()
			kills++
		} else {
			await(t, time.Minute, "the bulk job has ended", func() bool { return theBulk(t, q, bulk.ID) })
			c.finishSoon(time.Minute)
		}
		all, err := q.Bulks(t.Context(), bulk.ID)
		if err != nil || len(all) != 1 {
			t.Fatalf("Bulks gave %v, %v", all, err)
		}
		bulk = all[0]
	}
	if bulk.State != errand.Done || in("again", errand.Ready) != n || in("default", errand.Dead) != 0 || bulk.Changed != n {
		t.Errorf("%d kills: %+v, %d ready again, %d dead", kills, bulk, in("again", errand.Ready), in("default", errand.Dead))
	}
	for _, e := range added {
		if j, err := q.Job(t.Context(), e.ID); err != nil || j.State != errand.Ready || j.Attempt != 1 {
			t.Fatalf("a job is %+v, %v", j, err)
		}
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	wantRules(t, path)
	t.Logf("%d kills: %d jobs put back, %d counted", kills, n, bulk.Changed)
}

// theBulk reports whether a bulk job has ended.
func theBulk(t *testing.T, q *errand.Queue, id errand.ID) bool {
	t.Helper()
	all, err := q.Bulks(t.Context(), id)
	return err == nil && len(all) == 1 && !all[0].EndedAt.IsZero()
}
