package engine_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// completedLate runs a batch of four jobs whose calls of more than two fail for good. In the first
// one, the job with this index is completed in a transaction that commits when commit is called.
func (r *rig) completedLate(index int, call func(n int, items []engine.Item, commit func())) (ids []storage.ID, calls *callLog) {
	r.t.Helper()
	store := r.store.Store.(storage.TxEnqueuer)
	goOn, committed := make(chan struct{}), make(chan error, 1)
	n := 0
	calls = r.many("k", engine.Batch{Max: 4}, func(_ context.Context, items []engine.Item) {
		if n++; n > 1 {
			call(n, items, func() {
				close(goOn)
				if err := <-committed; err != nil {
					r.t.Error(err)
				}
			})
			return
		}
		open := make(chan struct{})
		go func() {
			committed <- store.Tx(context.Background(), func(tx any) error {
				err := engine.CompleteTx(items[index].Ctx, store, tx, engine.AttemptOf(items[index].Ctx))
				close(open)
				<-goOn
				return err
			})
		}()
		<-open
		refuseAll(items)
	})
	return r.enqueue("k", 4), calls
}

func refuseAll(items []engine.Item) {
	for i := range items {
		items[i].Err, items[i].Shared = &engine.PermanentError{Err: errOops}, true
	}
}

// A job that an earlier call has completed is not called again, and its end is told once, whether it
// is in the call that runs when the transaction commits, or waits for the next one.
func TestParts_CompletedMeanwhile(t *testing.T) {
	for name, index := range map[string]int{"in the call": 0, "waiting": 3} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				events := &listener{}
				r.cfg.Events = events
				ids, calls := r.completedLate(index, func(n int, items []engine.Item, commit func()) {
					if n > 2 {
						return
					}
					commit()
					refuseAll(items)
				})
				r.start()
				pass(time.Minute)
				for i, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
					if got := events.types(id); !slices.Equal(got, []string{engine.EventStarted, "done"}) {
						t.Errorf("job %d: told were %q", i, got)
					}
				}
				calls.want(t, 4, 2, 1, 1, 1)
			})
		})
	}
}

// A job that an earlier call has completed can be given back while it waits for the next call.
func TestParts_CompletedGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids, _ := r.completedLate(3, func(_ int, _ []engine.Item, commit func()) {
			commit()
			r.cancel()
			time.Sleep(time.Second)
		})
		r.start()
		<-r.ended
		r.wantState(ids[3], storage.Done, storage.Counters{Attempt: 1})
		if lines := r.logs.with("refused an outcome"); len(lines) > 0 {
			t.Errorf("the log has %q", lines)
		}
	})
}

// failsToNote notes the starts of no job while fails is set.
type failsToNote struct {
	*spy
	fails atomic.Bool
}

func (s *failsToNote) Started(l storage.Lease, now time.Time) error {
	if s.fails.Load() {
		return errOops
	}
	return s.spy.Started(l, now)
}

// A job whose start cannot be noted for a further call has been called before: its attempt counts.
func TestParts_StartNotNoted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := &failsToNote{spy: r.store}
		r.cfg.Store = store
		first := true
		calls := r.many("k", engine.Batch{Max: 2}, func(_ context.Context, items []engine.Item) {
			if first {
				first = false
				store.fails.Store(true)
				refuseAll(items)
			}
		})
		ids := r.enqueue("k", 2)
		r.start()
		pass(100 * time.Millisecond)
		calls.want(t, 2)
		for _, id := range ids {
			r.wantState(id, storage.Scheduled, storage.Counters{Attempt: 1})
		}
		store.fails.Store(false)
		pass(time.Minute)
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 2})
		}
	})
}
