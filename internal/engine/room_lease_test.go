package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// note has an attempt leave behind what has no room in 300 bytes, and cannot be smaller.
func note(ctx context.Context) { engine.AttemptOf(ctx).Progress(1, 2, strings.Repeat("n", 250)) }

// While an outcome that cannot be smaller waits for room, neither its job nor one that runs loses its
// lease.
func TestRoom_KeepsLeases(t *testing.T) {
	for _, beside := range []int{0, 1} {
		t.Run(fmt.Sprint(beside), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				var runs atomic.Int32
				run := func(ctx context.Context, _ *storage.Leased) error {
					if runs.Add(1) == 1 {
						note(ctx)
						return nil
					}
					select {
					case <-ctx.Done():
						t.Errorf("a handler has lost its lease: %v", context.Cause(ctx))
					case <-time.After(3 * lease):
					}
					return nil
				}
				r.handle("k", run)
				ids := r.enqueue("k", 1+beside)
				r.store.room.Store(300)
				r.start()
				other := r.another()
				other.handle("k", run)
				other.start()
				pass(4 * lease)
				r.store.room.Store(0)
				pass(lease)
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
				}
				if n := runs.Load(); n != int32(1+beside) {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// noExtend is a store on whose disk no heartbeat has room.
type noExtend struct{ *spy }

func (s noExtend) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	if len(x.Extend) > 0 {
		return storage.ExchangeResult{}, storage.ErrFull
	}
	return s.spy.Exchange(ctx, now, x)
}

// Outcomes do not wait behind a heartbeat that finds no room.
func TestRoom_NoneForHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Store = noExtend{r.store}
		r.handle("long", work(lease))
		r.handle("k", work(lease/3+time.Second))
		id := r.enqueue("k", 1)[0]
		r.enqueue("long", 1)
		r.start()
		pass(lease * 2 / 3)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

// However many outcomes wait for room, few are tried at once. One that has room finds it all the same.
func TestRoom_FewTriesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 100
		r.cfg.Concurrency = n
		var ran atomic.Int32
		all := make(chan struct{})
		var ids []storage.ID
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			if job.ID != ids[n-1] {
				note(ctx)
			}
			if ran.Add(1) == n {
				close(all)
			}
			<-all
			return nil
		})
		ids = r.enqueue("k", n)
		r.store.room.Store(300)
		r.start()
		pass(30 * time.Second)
		r.wantState(ids[n-1], storage.Done, storage.Counters{Attempt: 1})
		at, most := map[time.Time]int{}, 0
		for _, c := range r.store.of("exchange", 0) {
			at[c.at]++
			most = max(most, at[c.at])
		}
		if most > n/2 { // 43 at most, by the order in which handlers end
			t.Errorf("%d exchanges at once", most)
		}
		r.store.room.Store(0)
		pass(10 * time.Second)
		if done := r.count(storage.Done); done != n {
			t.Errorf("%d jobs are done, want %d", done, n)
		}
	})
}
