package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// narrowSpy is a spy on a store that is a [storage.Promoter].
type narrowSpy struct{ *spy }

func (s narrowSpy) Promote(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
	if err := s.note("promote", storage.Exchange{}); err != nil {
		return storage.Promoted{}, err
	}
	return s.Store.(storage.Promoter).Promote(ctx, now, p)
}

// narrow has the engine work on a store whose exchanges leave other lanes as they are.
func (r *rig) narrow() {
	r.store.Store = r.db.OpenNarrow()
	r.cfg.Store = narrowSpy{r.store}
}

// unwanted are jobs of lanes that no engine works for: two that will be due, and two that
// have to begin or end in time.
func (r *rig) unwanted(in time.Duration) []storage.ID {
	return r.add(
		storage.NewJob{Queue: "elsewhere", Kind: "k", Delay: in}, storage.NewJob{Queue: "q", Kind: "other", Delay: in},
		storage.NewJob{Queue: "elsewhere", Kind: "k", StartWithin: in}, storage.NewJob{Queue: "q", Kind: "other", FinishWithin: in},
	)
}

// While any worker runs, what is due or late in lanes that nobody leases from is made ready,
// or ended, within a second.
func TestPromote_LanesOfNobody(t *testing.T) {
	for name, prepare := range map[string]func(r *rig){
		"events": func(*rig) {},
		"polling": func(r *rig) {
			r.cfg.Store = struct {
				storage.Promoter
				storage.Store
			}{narrowSpy{r.store}, r.store.Store}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.narrow()
				prepare(r)
				events, asked := &listener{}, r.followed()
				r.cfg.Events = events
				r.handle("k", func(context.Context, *storage.Leased) error { return nil })
				for i, in := range []time.Duration{500 * time.Millisecond, time.Second, 20 * time.Second, time.Millisecond} {
					ids := r.unwanted(in)
					if i == 0 {
						r.start()
					}
					due := r.job(ids[0]).DueAt
					pass(due.Add(time.Second).Sub(r.now()))
					r.wantState(ids[0], storage.Ready, storage.Counters{})
					r.wantState(ids[1], storage.Ready, storage.Counters{})
					for id, state := range map[storage.ID]storage.State{ids[2]: storage.Expired, ids[3]: storage.Dead} {
						if rec := r.wantState(id, state, storage.Counters{}); rec.EndedAt.Before(due) {
							t.Errorf("a job has ended at %v, and was to at %v", rec.EndedAt, due)
						}
						want := map[storage.State]string{storage.Expired: "expired", storage.Dead: "dead"}[state]
						if got := events.types(id); !slices.Equal(got, []string{want}) {
							t.Errorf("events of a job that is %s: %q", state, got)
						}
					}
				}
				pass(time.Minute)
				alone := r.add(storage.NewJob{Queue: "elsewhere", Kind: "k", Delay: 5 * time.Second})[0]
				pass(6 * time.Second)
				r.wantState(alone, storage.Ready, storage.Counters{})
				if n := len(asked()); n != 4 || len(r.notices()) != 4 {
					t.Errorf("it was asked %d times what follows, want 4", n)
				}
			})
		})
	}
}

// Without news the chore is done in time too if its calls take a while, whenever a job comes.
func TestPromote_Polls(t *testing.T) {
	for phase := time.Duration(0); phase < time.Second; phase += 50 * time.Millisecond {
		bubble(t, func(t *testing.T, r *rig) {
			r.narrow()
			r.cfg.Store = struct {
				storage.Promoter
				storage.Store
			}{slowPromoter{narrowSpy{r.store}}, r.store.Store}
			r.handle("k", func(context.Context, *storage.Leased) error { return nil })
			r.start()
			pass(10*time.Second + phase)
			ids := r.unwanted(time.Millisecond)
			pass(time.Millisecond + time.Second)
			r.wantState(ids[0], storage.Ready, storage.Counters{})
			r.wantState(ids[1], storage.Ready, storage.Counters{})
			r.wantState(ids[2], storage.Expired, storage.Counters{})
			r.wantState(ids[3], storage.Dead, storage.Counters{})
		})
	}
}

// slowPromoter is a [storage.Promoter] each call of which takes effect late.
type slowPromoter struct{ narrowSpy }

func (s slowPromoter) Promote(ctx context.Context, now time.Time, p storage.Promotion) (storage.Promoted, error) {
	time.Sleep(100 * time.Millisecond)
	return s.narrowSpy.Promote(ctx, now, p)
}

// The chore is called seldom: when something is due, and soon after news. A store whose
// exchanges do all lanes is not called for it, nor by an engine for bulk jobs.
func TestPromote_Calls(t *testing.T) {
	for name, c := range map[string]struct {
		prepare    func(r *rig)
		idle, busy int // calls
	}{
		"a promoter": {(*rig).narrow, 1, 13},
		"no other":   {func(r *rig) { r.cfg.Store = narrowSpy{r.store}.spy }, 0, 0},
		"bulk jobs": {func(r *rig) {
			r.narrow()
			r.cfg.Bulk = true
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				c.prepare(r)
				r.handle("k", func(context.Context, *storage.Leased) error { return nil })
				r.start()
				pass(time.Hour)
				if n := len(r.store.of("promote", 0)); n != c.idle {
					t.Errorf("%d calls in an hour without jobs, want %d", n, c.idle)
				}
				before := r.store.count()
				for range 1000 {
					r.enqueue("k", 1)
					pass(10 * time.Millisecond)
				}
				if n := len(r.store.of("promote", before)); n > c.busy || n < c.busy-1 {
					t.Errorf("%d calls in 10 seconds with 1000 jobs, want %d", n, c.busy)
				}
			})
		})
	}
}

// A chore that fails is done again.
func TestPromote_Fails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.narrow()
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.store.failing(func(op string) error {
			if op == "promote" {
				return errors.New("no")
			}
			return nil
		})
		ids := r.unwanted(time.Second)
		pass(3 * time.Second)
		r.wantState(ids[0], storage.Scheduled, storage.Counters{})
		r.store.failing(nil)
		pass(time.Minute)
		r.wantState(ids[0], storage.Ready, storage.Counters{})
		r.wantState(ids[2], storage.Expired, storage.Counters{})
	})
}

// Many steps follow each other, and leave the store to others in between.
func TestPromote_Steps(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.narrow()
		r.handle("k", func(context.Context, *storage.Leased) error { return nil })
		const steps = 3
		n := steps*r.db.Bounds().Promoted - 1
		ids := r.add(slices.Repeat([]storage.NewJob{{Queue: "elsewhere", Kind: "k", Delay: time.Second}}, n)...)
		r.start()
		pass(1500 * time.Millisecond)
		for _, id := range ids {
			r.wantState(id, storage.Ready, storage.Counters{})
		}
		if n := len(r.store.of("promote", 0)); n != 1+steps {
			t.Errorf("%d calls, want %d: one at the start, and %d steps", n, 1+steps, steps)
		}
	})
}
