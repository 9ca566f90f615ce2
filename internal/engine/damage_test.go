package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A store in which damage was found begins no work: the worker ends, but not
// before what is running has ended, and its outcomes are written.
func TestDamage_WhatRunsIsFinished(t *testing.T) {
	for name, alone := range map[string]bool{"refused a lease": true, "refused to reclaim": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.store.alone = alone
				r.handle("k", work(grace/2))
				ids := r.enqueue("k", 4)
				r.start()
				r.store.damaged.Store(true)
				waiting := r.enqueue("k", 3)[0]
				pass(grace / 4)
				select {
				case <-r.ended:
					t.Fatalf("Run has ended with %v while handlers ran", r.err)
				default:
				}
				<-r.ended
				if !errors.Is(r.err, storage.ErrCorrupt) {
					t.Errorf("Run: %v, want ErrCorrupt", r.err)
				}
				for _, id := range ids {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
				}
				r.wantState(waiting, storage.Ready, storage.Counters{})
				if n := len(r.logs.with("takes no more work")); n != 1 {
					t.Errorf("said %d times that the store takes no more work, want once", n)
				}
			})
		})
	}
}

// A worker that has nothing to do ends at once.
func TestDamage_IdleWorkerEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.store.damaged.Store(true)
		began := time.Now()
		id := r.enqueue("k", 1)[0]
		<-r.ended
		if d := time.Since(began); !errors.Is(r.err, storage.ErrCorrupt) || d > time.Second {
			t.Errorf("Run: %v after %v, want ErrCorrupt at once", r.err, d)
		}
		r.wantState(id, storage.Ready, storage.Counters{})
	})
}
