package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// What waits for a runner goes back if its lane is held, or if it has waited for long,
// with nothing used up. One that is cancelled leaves the others of its call alone.
func TestBatch_GoesBack(t *testing.T) {
	paused := storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: storage.HoldPaused}
	for name, c := range map[string]struct {
		do   func(r *rig, ids []storage.ID)
		want []storage.State
	}{
		"hold": {func(r *rig, _ []storage.ID) {
			r.hold(paused)
			pass(10 * time.Millisecond)
		}, []storage.State{storage.Ready, storage.Ready, storage.Ready}},
		"yield":         {func(*rig, []storage.ID) { pass(200 * time.Millisecond) }, []storage.State{storage.Ready, storage.Ready, storage.Ready}},
		"cancel first":  {func(r *rig, ids []storage.ID) { r.cancelJob(ids[0]) }, []storage.State{storage.Cancelled, storage.Running, storage.Running}},
		"cancel second": {func(r *rig, ids []storage.ID) { r.cancelJob(ids[1]) }, []storage.State{storage.Running, storage.Cancelled, storage.Running}},
		"cancel all": {func(r *rig, ids []storage.ID) {
			for _, id := range ids {
				r.cancelJob(id)
			}
		}, []storage.State{storage.Cancelled, storage.Cancelled, storage.Cancelled}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Concurrency = 1
				calls := r.many("k", engine.Batch{Max: 6, MaxBytes: 6}, lasting(time.Second))
				ids := r.enqueue("k", 6)[3:] // of two bytes each, which are leased before that is known
				r.start()
				calls.want(t, 3)
				r.wantState(ids[0], storage.Running, storage.Counters{Attempt: 1})
				c.do(r, ids)
				left := 0
				for i, id := range ids {
					if got := r.job(id).State; got != c.want[i] {
						t.Errorf("job %d is %s, want %s", i, got, c.want[i])
					}
					if c.want[i] != storage.Cancelled {
						left++
					}
				}
				if name == "hold" {
					r.release(paused)
				}
				pass(10 * time.Second)
				if n := r.count(storage.Done); n != 3+left || calls.most != 1 || left > 0 && len(calls.sizes) != 2 {
					t.Errorf("%d jobs are done, want %d; calls of %v jobs", n, 3+left, calls.sizes)
				}
				for _, id := range ids {
					if c := r.job(id).Counters; c.Attempt > 1 {
						t.Errorf("attempt %d of a job", c.Attempt)
					}
				}
			})
		})
	}
}

func (r *rig) cancelJob(id storage.ID) {
	r.t.Helper()
	if _, err := r.app.Cancel(r.t.Context(), r.now(), id, storage.Retention{Default: time.Hour}); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// A stop waits for a call, and then interrupts all its jobs.
func TestBatch_Shutdown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.many("k", engine.Batch{Max: 3}, func(ctx context.Context, items []engine.Item) {
			<-ctx.Done()
			for i := range items {
				items[i].Err = ctx.Err()
			}
		})
		ids := r.enqueue("k", 3)
		r.start()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		for _, id := range ids {
			r.wantState(id, storage.Ready, storage.Counters{Attempt: 1})
		}
	})
}

// A handler that is stuck is told of once, whatever it was called with.
func TestBatch_Stuck(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		free := make(chan struct{})
		calls := r.many("k", engine.Batch{Max: 3}, func(context.Context, []engine.Item) { <-free })
		r.enqueue("k", 3)
		r.start()
		err := r.stop()
		if n := strings.Count(fmt.Sprint(err), "stuck"); !errors.Is(err, engine.ErrStuck) || n != 1 {
			t.Errorf("Run returns %v", err)
		}
		if lines := r.logs.with("handler is stuck"); len(lines) != 1 || !strings.Contains(lines[0], "TestBatch_Stuck") {
			t.Errorf("logged: %q", lines)
		}
		close(free)
		calls.want(t, 3)
	})
}

// A throttle counts jobs.
func TestBatch_Throttle(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		calls := r.many("k", engine.Batch{Max: 1000}, lasting(0))
		r.cfg.Settings = map[string]engine.QueueSettings{"q": {Throttle: engine.NewThrottle(100)}}
		r.enqueue("k", 500)
		r.start()
		pass(2*time.Second + time.Millisecond)
		if n := r.count(storage.Done); n < 190 || n > 211 || len(calls.sizes) > 50 {
			t.Errorf("%d jobs ran within 2 s by %d calls", n, len(calls.sizes))
		}
	})
}

// Of an outage one call is one sign, and jobs that die beside one that is done did not die
// one after the other.
func TestBatch_Signs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		err := error(&engine.UnavailableError{})
		calls := r.many("k", engine.Batch{Max: 100}, func(_ context.Context, items []engine.Item) {
			for i := range items[1:] {
				items[i+1].Err = err
			}
			if errors.As(err, new(*engine.UnavailableError)) {
				items[0].Err = err
			}
		})
		ids := r.enqueue("k", 100)
		r.start()
		if held := r.held(); len(held) > 0 {
			t.Errorf("held after one call: %v", held)
		}
		pass(time.Minute)
		if held := r.held(); len(held) == 0 || len(calls.sizes) < 3 {
			t.Errorf("not held after %d calls", len(calls.sizes))
		}
		for _, id := range ids {
			if got := r.job(id).Retry; got > 0 {
				t.Fatalf("job has retry %d", got)
			}
		}
	})
	bubble(t, func(t *testing.T, r *rig) {
		r.many("k", engine.Batch{Max: 100}, func(_ context.Context, items []engine.Item) {
			for i := range items[1:] {
				items[i+1].Err = &engine.PermanentError{}
			}
		})
		r.enqueue("k", 100)
		r.start()
		if held := r.held(); len(held) > 0 || r.count(storage.Dead) != 99 {
			t.Errorf("%d are dead, held: %v", r.count(storage.Dead), held)
		}
	})
}

// A batch is not handed over as it is enqueued, as more may come.
func TestBatch_MakesNoOffer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.handOver()
		calls := r.many("k", engine.Batch{Max: 3}, lasting(0))
		r.handle("other", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.enqueue("k", 3)
		r.enqueue("other", 1)
		calls.want(t, 3)
		if n := s.count(); s.open() != 1 || n != 1 {
			t.Errorf("%d offers, %d jobs handed over, want one", s.open(), n)
		}
	})
}

// The parts of a call are not given back because they wait for a runner: what the call has shown
// would be lost, and their jobs would be called together again.
func TestBatch_PartsDoNotYield(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 2
		calls := r.many("k", engine.Batch{Max: 4}, func(_ context.Context, items []engine.Item) {
			time.Sleep(time.Second)
			if len(items) == 1 {
				return
			}
			for i := range items {
				items[i].Err, items[i].Shared = &engine.PermanentError{Err: errOops}, true
			}
		})
		r.handle("slow", work(30*time.Second))
		ids := r.enqueue("k", 4)
		r.enqueue("slow", 1)
		r.start()
		r.engine.SetConcurrency(1)
		pass(20 * time.Second)
		for _, id := range ids {
			r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
		}
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		calls.want(t, 4, 2, 1, 1, 1, 1)
	})
}

// unread is a store of which no job can be read.
type unread struct {
	*spy
	err error // of Job; nil: it hangs until the context ends
}

func (s *unread) Job(ctx context.Context, _ storage.ID) (storage.Record, error) {
	if s.err == nil {
		<-ctx.Done()
		return storage.Record{}, ctx.Err()
	}
	return storage.Record{}, s.err
}

// A job whose checkpoint of a call that has failed cannot be read is not called again as if it had
// none: it goes back, and its next attempt has it.
func TestBatch_CheckpointUnread(t *testing.T) {
	for _, fails := range []error{storage.ErrIO, nil} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Store = &unread{r.store, fails}
				kept := map[storage.ID]string{}
				r.many("k", engine.Batch{Max: 2}, func(_ context.Context, items []engine.Item) {
					for i := range items {
						item := &items[i]
						if _, again := kept[item.Job.ID]; again {
							kept[item.Job.ID] = string(item.Job.Checkpoint)
							continue
						}
						kept[item.Job.ID] = ""
						item.Err, item.Shared = &engine.PermanentError{Err: errOops}, true
						if err := engine.AttemptOf(item.Ctx).Checkpoint(item.Ctx, []byte("half")); err != nil {
							t.Error(err)
						}
					}
				})
				ids := r.enqueue("k", 2)
				r.start()
				pass(lease)
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
					if kept[id] != "half" {
						t.Errorf("the next call has the checkpoint %q", kept[id])
					}
				}
			})
		})
	}
}

// refusing runs a batch of which each call keeps checkpoints and fails for good, up to the tenth.
func (r *rig) refusing(fails error) []storage.ID {
	r.cfg.Store = &unread{r.store, fails}
	calls := 0
	r.many("k", engine.Batch{Max: 2}, func(_ context.Context, items []engine.Item) {
		if calls++; calls > 10 {
			return
		}
		for i := range items {
			if err := engine.AttemptOf(items[i].Ctx).Checkpoint(items[i].Ctx, []byte("half")); err != nil {
				r.t.Error(err)
			}
		}
		refuseAll(items)
	})
	return r.enqueue("k", 2)
}

// A job that can never be read uses up retries, and so does not run again for ever; it does not
// die at once of what may be the fault of another job, or of the file.
func TestBatch_CheckpointDamaged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.refusing(storage.ErrCorrupt)
		r.start()
		for _, id := range ids {
			rec := r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 2, Retry: 2})
			if !strings.Contains(rec.Error, "could not be read") {
				t.Errorf("the error is %q", rec.Error)
			}
		}
	})
}

// A stop does not wait for a checkpoint that cannot be read.
func TestBatch_CheckpointUnreadAtStop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.refusing(nil)
		r.start()
		began := time.Now()
		if err := r.stop(); err != nil || time.Since(began) > 0 {
			t.Errorf("Run has returned %v after %v", err, time.Since(began))
		}
	})
}

// A transaction that completes a job is not forgotten if holds change between two calls of a batch.
func TestBatch_OpenOverAHold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := r.store.Store.(storage.TxEnqueuer)
		commit, committed := make(chan struct{}), make(chan error, 1)
		calls := 0
		r.many("k", engine.Batch{Max: 2}, func(_ context.Context, items []engine.Item) {
			if calls++; calls > 1 {
				return
			}
			open := make(chan struct{})
			go func() {
				committed <- store.Tx(context.Background(), func(tx any) error {
					err := engine.CompleteTx(items[0].Ctx, store, tx, engine.AttemptOf(items[0].Ctx))
					close(open)
					<-commit
					return err
				})
			}()
			<-open
			for i := range items {
				items[i].Err, items[i].Shared = &engine.PermanentError{Err: errOops}, true
			}
		})
		ids := r.enqueue("k", 2)
		starts := 0
		r.store.failing(func(op string) error {
			if op != "started" {
				return nil
			}
			if starts++; starts == 3 { // of the first half
				close(commit)
				if err := <-committed; err != nil {
					t.Error(err)
				}
				r.hold(pause)
				r.release(pause)
			}
			return nil
		})
		r.start()
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if lines := r.logs.with("refused an outcome"); len(lines) > 0 || starts < 4 {
			t.Errorf("%d starts, and the log has %q", starts, lines)
		}
	})
}
