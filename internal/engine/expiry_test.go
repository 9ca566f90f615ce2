package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// A job that was leased ahead of its handler does not begin at its StartBy: it is given
// back, and ends as if it had never been leased. The loop wakes for jobs that nobody asks for.
//
//errand:shows [late] | | jobs wait, leased ahead, until it is too late; attempts last until the deadline
func TestExpiry_LeasedAhead(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		events := &listener{}
		r.cfg.Events, r.cfg.Concurrency = events, 1
		began := 0
		r.handle("slow", func(context.Context, *storage.Leased) error {
			began++
			time.Sleep(time.Second)
			return nil
		})
		ahead := r.add(slices.Repeat([]storage.NewJob{{Queue: "q", Kind: "slow", StartWithin: 1500 * time.Millisecond}}, 4)...)
		other := r.add(storage.NewJob{Queue: "other", Kind: "other", FinishWithin: 10 * time.Second})[0]
		r.start()
		pass(5 * time.Second)
		for i, id := range ahead {
			if i < 2 {
				r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
			} else {
				r.wantState(id, storage.Expired, storage.Counters{})
				if got := events.types(id); !slices.Equal(got, []string{"expired"}) {
					t.Errorf("events of a job that expired: %q", got)
				}
			}
		}
		if began != 2 {
			t.Errorf("%d handlers were called, want 2", began)
		}
		pass(5 * time.Second)
		if rec := r.wantState(other, storage.Dead, storage.Counters{}); !rec.EndedAt.Equal(r.now().UTC()) {
			t.Errorf("the job of another queue died at %v, now is %v", rec.EndedAt, r.now().UTC())
		}
	})
}

// slowToStart is a Store that takes a while to note that a handler is about to be called.
type slowToStart struct {
	*spy
	by time.Duration
}

func (s slowToStart) Started(l storage.Lease, now time.Time) error {
	time.Sleep(s.by)
	return s.spy.Started(l, now)
}

// A job whose StartBy or deadline comes between its lease and the call is not passed to
// the handler, also if others of its batch are.
func TestExpiry_BeforeTheCall(t *testing.T) {
	const by = 50 * time.Millisecond
	for kind, before := range map[string]time.Duration{"single": by, "batch": 4 * by} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Store = slowToStart{r.store, by}
				var called sync.Map // of storage.ID
				r.handle("single", func(_ context.Context, job *storage.Leased) error {
					called.Store(job.ID, true)
					return nil
				})
				r.many("batch", engine.Batch{Max: 4}, func(_ context.Context, items []engine.Item) {
					for _, i := range items {
						called.Store(i.Job.ID, true)
					}
				})
				jobs := []storage.NewJob{{StartWithin: before}, {FinishWithin: before}, {StartWithin: before + by}, {FinishWithin: before + by}}
				for i := range jobs {
					jobs[i].Queue, jobs[i].Kind = "q", kind
				}
				r.cfg.Concurrency = len(jobs)
				ids := r.add(jobs...)
				r.start()
				pass(2 * time.Second)
				for i, want := range []storage.State{storage.Expired, storage.Dead, storage.Done, storage.Done} {
					_, was := called.Load(ids[i])
					if got := r.job(ids[i]); got.State != want || was != (want == storage.Done) {
						t.Errorf("job %d is %s, want %s; called: %t", i, got.State, want, was)
					}
				}
			})
		})
	}
}

// The context of a handler ends at the deadline of its job. An attempt that would begin
// later does not: the job is dead at once.
//
//errand:shows [late]
func TestExpiry_Deadline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.OnDeath = func(job *storage.Leased, f *storage.Finish, _ time.Time) *storage.NewJob {
			return &storage.NewJob{Queue: "notices", Kind: string(f.Reason), Args: []byte("{}"), Priority: job.Attempt}
		}
		var left time.Duration
		r.handle("long", func(ctx context.Context, _ *storage.Leased) error {
			end, _ := ctx.Deadline()
			left = time.Until(end)
			<-ctx.Done()
			return ctx.Err()
		})
		r.handle("fails", func(context.Context, *storage.Leased) error { return errOops })
		jobs := r.add(storage.NewJob{Queue: "q", Kind: "long", FinishWithin: 5 * time.Second, Timeout: time.Minute},
			storage.NewJob{Queue: "q", Kind: "fails", FinishWithin: 8 * time.Second},
			storage.NewJob{Queue: "q", Kind: "fails", FinishWithin: 15 * time.Second},
			storage.NewJob{Queue: "none", Kind: "none", StartWithin: time.Second, OnExpire: storage.Dead})
		r.start()
		pass(time.Second)
		if left != 5*time.Second {
			t.Errorf("the handler had %v, want 5s", left)
		}
		// Its first retry is at once; the next would come 10 s later.
		rec := r.wantState(jobs[1], storage.Dead, storage.Counters{Attempt: 2, Retry: 1})
		if rec.Reason != storage.ReasonDeadline || rec.Error != errOops.Error() || len(rec.History) != 2 {
			t.Errorf("dead of %q, %q, with a history of %d", rec.Reason, rec.Error, len(rec.History))
		}
		r.wantState(jobs[2], storage.Scheduled, storage.Counters{Attempt: 2, Retry: 2})
		r.wantState(jobs[3], storage.Dead, storage.Counters{})
		pass(4 * time.Second)
		if rec := r.wantState(jobs[0], storage.Dead, storage.Counters{Attempt: 1}); rec.Reason != storage.ReasonDeadline {
			t.Errorf("dead of %q", rec.Reason)
		}
		counts, err := r.app.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []storage.Count{
			{Queue: "notices", Kind: "deadline", State: storage.Ready, N: 2}, {Queue: "notices", Kind: "expired", State: storage.Ready, N: 1},
		} {
			if !slices.Contains(counts, want) {
				t.Errorf("counts %v, want %v", counts, want)
			}
		}
	})
}
