package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
)

// heldReclaim is a store whose Reclaim returns when it is let go.
type heldReclaim struct {
	*spy
	release chan struct{}
}

func (s *heldReclaim) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	<-s.release
	return s.spy.Reclaim(ctx, now, mono, lease, limit)
}

//errand:shows slow chores of a worker | | heartbeats and outcomes go on; a chore is called beside them
func TestChore_SlowHoldsUpNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &heldReclaim{spy: r.store, release: make(chan struct{})}
		r.cfg.Store = slow
		end := make(chan struct{})
		r.handle("long", func(ctx context.Context, _ *storage.Leased) error {
			select {
			case <-end:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		r.handle("short", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		long := r.enqueue("long", 1)[0]
		pass(3 * lease)
		short := r.enqueue("short", 1)[0]
		pass(time.Second)
		r.wantState(short, storage.Done, storage.Counters{Attempt: 1})
		close(end)
		pass(time.Second)
		r.wantState(long, storage.Done, storage.Counters{Attempt: 1})

		// A stop waits for it, as for all that Run has started.
		r.cancel()
		synctest.Wait()
		select {
		case <-r.ended:
			t.Error("Run has returned before a call of the store")
		default:
		}
		close(slow.release)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A store that fails for good in one call is asked for nothing more, whatever
// the other call that was under way returns.
//
//errand:shows slow chores of a worker
func TestChore_FatalBesideAnExchange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		slow := &slowStore{spy: r.store}
		r.cfg.Store = slow
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		goOn := slow.keepBack()
		r.enqueue("k", 2)
		r.store.failing(func(op string) error {
			if op == "reclaim" {
				return storage.ErrClosed
			}
			return nil
		})
		pass(time.Second)
		n := r.store.count()
		goOn()
		<-r.ended
		if !errors.Is(r.err, storage.ErrClosed) {
			t.Errorf("Run: %v", r.err)
		}
		if lines := r.logs.with("the queue was closed while the worker ran"); len(lines) != 1 {
			t.Errorf("the log says it %d times", len(lines))
		}
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("calls after the end: %v", calls)
		}
	})
}
