package engine_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// ringing is a latch that asks nobody, and has to be asked again every 15 s.
type ringing struct{ latch }

func (*ringing) AsksNobody() {}

func (g *ringing) State() (open bool, reason string, changed <-chan struct{}) {
	open, reason, _ = g.latch.State()
	again := make(chan struct{})
	time.AfterFunc(15*time.Second, func() { close(again) })
	return open, reason, again
}

// A gate that asks nobody is asked without a look whether jobs wait, so they begin when they are
// due, and behind one that is closed nothing begins.
func TestGate_AsksNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g, other := &ringing{}, &latch{}
		var late []time.Duration
		due := map[storage.ID]time.Time{}
		r.handle("k", func(_ context.Context, job *storage.Leased) error {
			late = append(late, r.now().Sub(due[job.ID]))
			return nil
		})
		r.handle("both", work(time.Millisecond))
		r.handle("free", work(time.Millisecond)) // whose exchanges void the looks
		r.gate("k", g)
		r.gate("both", other)
		r.cfg.Settings = map[string]engine.QueueSettings{"p": {Gate: g}}
		r.cfg.Queues = []string{"q", "p"}
		for i := range 20 {
			at := r.now().Add(time.Duration(i+1) * time.Minute)
			due[r.add(storage.NewJob{Queue: "q", Kind: "k", DueAt: at})[0]] = at
			r.add(storage.NewJob{Queue: "q", Kind: "free", DueAt: at})
		}
		r.add(storage.NewJob{Queue: "q", Kind: "both"}, storage.NewJob{Queue: "p", Kind: "both"}) // so that all are asked
		r.start()
		pass(time.Minute / 2)
		calls := r.store.count()
		pass(time.Hour)
		if len(late) != 20 || slices.Max(late) > 0 {
			t.Errorf("of 20 jobs began, after they were due: %v", late)
		}
		if n := len(r.store.of("counts", calls)); n > 30 { // 20 are of other chores
			t.Errorf("%d looks whether jobs wait, in an hour", n)
		}
		g.close("no")
		pass(15 * time.Second)
		asked := other.count()
		ids := append(r.enqueue("k", 1), r.add(storage.NewJob{Queue: "p", Kind: "both"})...)
		pass(time.Hour)
		if n := r.states(ids...); n[storage.Ready] != 2 || other.count() != asked {
			t.Errorf("states %v behind a closed gate; that behind it was asked %d times", n, other.count()-asked)
		}
		g.close("")
		pass(16 * time.Second)
		if n := r.states(ids...); n[storage.Done] != 2 {
			t.Errorf("states %v, want 2 done", n)
		}
	})
}
