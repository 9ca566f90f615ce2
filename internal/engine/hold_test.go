package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// pause is a hold of queue q.
var pause = storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: storage.HoldPaused}

func (r *rig) hold(h storage.Hold) {
	r.t.Helper()
	if err := r.app.Hold(context.Background(), r.now(), h); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) release(h storage.Hold) {
	r.t.Helper()
	if was, err := r.app.Release(context.Background(), r.now(), h.Lane, h.Reason); !was || err != nil {
		r.t.Fatalf("Release returned %v, %v", was, err)
	}
}

// An idle worker starts the jobs when the time of a hold is over, and asks the store
// for nothing before.
func TestHold_IsOver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.store.alone = true
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.hold(storage.Hold{Lane: storage.Lane{Queue: "q"}, Reason: "a", For: time.Hour})
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "k"}, Reason: "b", Until: r.now().Add(2 * time.Hour)})
		r.hold(storage.Hold{Lane: storage.Lane{Kind: "other"}, Reason: "b", For: time.Minute})
		id := r.enqueue("k", 1)[0]
		n := r.store.count()
		pass(2*time.Hour - time.Nanosecond)
		r.wantState(id, storage.Ready, storage.Counters{})
		if asked := r.store.of("exchange", n); len(asked) > 1 { // when the first is over
			t.Errorf("%d exchanges while nothing could be leased: %v", len(asked), asked)
		}
		pass(time.Nanosecond)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}
