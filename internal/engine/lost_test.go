package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// lossyRig is a rig on a store that can lose answers.
type lossyRig struct {
	*rig
	db  storagetest.Lossy
	own storage.Store // of the engine

	mu   sync.Mutex
	runs map[storage.ID]int
}

// lossyBubble is bubble for a rig on a store that can lose answers.
func lossyBubble(t *testing.T, test func(t *testing.T, r *lossyRig)) {
	t.Helper()
	bubble(t, func(t *testing.T, _ *rig) {
		db := storagetest.NewLossy()
		test(t, newLossyRig(t, db, db.Memory.Open()))
	})
}

// eitherWay is lossyBubble for a commit that takes place, and for one that does not.
func eitherWay(t *testing.T, test func(t *testing.T, r *lossyRig, commits bool)) {
	t.Helper()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", commits), func(t *testing.T) {
			lossyBubble(t, func(t *testing.T, r *lossyRig) { test(t, r, commits) })
		})
	}
}

func newLossyRig(t *testing.T, db storagetest.Lossy, app storage.Store) *lossyRig {
	r := &lossyRig{rig: newRigOn(t, db.Memory, app), db: db, own: db.Open(), runs: map[storage.ID]int{}}
	r.store.Store = r.own
	return r
}

// lose has some of the commits of the engine lose their answers.
func (r *lossyRig) lose(rnd *rand.Rand) {
	var mu sync.Mutex
	r.store.failing(func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(3) == 0 {
			r.db.Lose(r.own, rnd.IntN(2) == 0, rnd.IntN(4))
		}
		return nil
	})
}

// counted handles a kind, and counts the runs of each job: run is told of which run it is.
func (r *lossyRig) counted(kind string, run func(n int) error) {
	r.handle(kind, func(_ context.Context, job *storage.Leased) error {
		r.mu.Lock()
		r.runs[job.ID]++
		n := r.runs[job.ID]
		r.mu.Unlock()
		time.Sleep(time.Second)
		return run(n)
	})
}

// ran checks how often the handlers of jobs were called.
func (r *lossyRig) ran(want int, ids ...storage.ID) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if got := r.runs[id]; got != want {
			r.t.Errorf("the handler of job %d was called %d times, want %d", id.Key(), got, want)
		}
	}
}

// handleAll handles the kinds of enqueueAll.
func (r *lossyRig) handleAll() {
	r.counted("done", func(int) error { return nil })
	r.counted("twice", func(n int) error {
		if n == 1 {
			return errOops
		}
		return nil
	})
	r.counted("dies", func(int) error { return errOops })
}

// Each job ends once and none is stranded, whichever answers are lost.
func TestLost_RandomAnswers(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lossyBubble(t, func(t *testing.T, r *lossyRig) {
				r.handleAll()
				r.lose(rand.New(rand.NewPCG(seed, 1)))
				done, twice, dies := r.enqueue("done", 40), r.enqueue("twice", 20), r.enqueue("dies", 10)
				r.start()
				pass(20 * time.Minute)
				for _, id := range done {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
				}
				for _, id := range twice {
					r.wantState(id, storage.Done, storage.Counters{Attempt: 2, Retry: 1})
				}
				for _, id := range dies {
					r.wantState(id, storage.Dead, storage.Counters{Attempt: 4, Retry: 3})
				}
				r.ran(1, done...)
				r.ran(2, twice...)
				r.ran(4, dies...)
				r.store.failing(nil)
				if err := r.stop(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				if lost := r.logs.with("lease"); len(lost) > 0 {
					t.Errorf("%q", lost)
				}
			})
		})
	}
}

// A process that recovers the jobs of another one ends each of them, whichever answers are lost.
func TestLost_RandomAnswersOfRecovery(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lossyBubble(t, func(t *testing.T, r *lossyRig) {
				r.handleAll()
				ids := r.enqueue("done", 40)
				r.start()
				pass(1500 * time.Millisecond)
				r.db.Kill(r.own)
				next := newLossyRig(t, r.db, r.app)
				next.handleAll()
				rnd := rand.New(rand.NewPCG(seed, 2))
				next.lose(rnd)
				next.start()
				pass(20 * time.Minute)
				for _, id := range ids {
					if rec := r.job(id); rec.State != storage.Done {
						t.Errorf("job %d is %s after %d attempts", id.Key(), rec.State, rec.Attempt)
					}
				}
				for id, n := range next.runs {
					if n != 1 {
						t.Errorf("the handler of job %d was called %d times", id.Key(), n)
					}
				}
				_ = r.stop()
			})
		})
	}
}

// An exchange is repeated at intervals that grow, and nothing else is asked of the store.
func TestLost_RepeatsTheSameExchange(t *testing.T) {
	eitherWay(t, func(t *testing.T, r *lossyRig, commits bool) {
		r.counted("done", func(int) error { return nil })
		r.start()
		pass(time.Second)
		n := r.store.count()
		r.db.Lose(r.own, commits, 6)
		ids := r.enqueue("done", 3)
		pass(time.Minute)
		r.ran(1, ids...)
		calls := r.store.of("exchange", n)
		tries := 1
		for wait := 50 * time.Millisecond; calls[tries].x.Repeats != 0; tries, wait = tries+1, 2*wait {
			if got := calls[tries].at.Sub(calls[tries-1].at); got != wait {
				t.Errorf("try %d came after %v, want %v", tries, got, wait)
			}
		}
		if tries < 4 {
			t.Errorf("the exchange was tried %d times", tries)
		}
		for _, c := range calls[tries:] {
			if c.x.Repeats != 0 {
				t.Errorf("an exchange that was answered is repeated")
			}
		}
		for _, text := range []string{"the store failed", "the store works again"} {
			if got := r.logs.with(text); len(got) != 1 {
				t.Errorf("%d lines say %q, want 1", len(got), text)
			}
		}
	})
}

// A lease whose answer comes after it may have lapsed is extended before its handler is called.
func TestLost_AnswerAfterTheLease(t *testing.T) {
	eitherWay(t, func(t *testing.T, r *lossyRig, commits bool) {
		var cause causes
		r.handle("long", untilDone(&cause))
		r.counted("done", func(int) error { return nil })
		r.enqueue("long", 1)
		r.start()
		pass(time.Second)
		r.db.Lose(r.own, commits, 40) // for more than a minute, as chores ask too
		id := r.enqueue("done", 1)[0]
		pass(2 * lease)
		if !errors.Is(cause.err(), engine.ErrLeaseLost) {
			t.Errorf("the handler that could not be sure of its lease ended by %v", cause.err())
		}
		r.ran(0, id)
		n := r.store.count()
		pass(3 * time.Minute)
		r.ran(1, id)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		for _, c := range r.store.of("exchange", n) {
			if c.x.Repeats != 0 {
				continue
			}
			if len(c.x.Extend) == 0 {
				t.Errorf("the first exchange after the answer extends nothing")
			}
			break
		}
	})
}

// A stop waits for the outcome, and gives back what the lost answer had brought.
func TestLost_Stop(t *testing.T) {
	eitherWay(t, func(t *testing.T, r *lossyRig, commits bool) {
		r.counted("done", func(int) error { return nil })
		r.start()
		pass(time.Second)
		r.db.Lose(r.own, commits, 8)
		id := r.enqueue("done", 1)[0]
		if err := r.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		r.ran(0, id)
		r.wantState(id, storage.Ready, storage.Counters{})
	})
}

// A handler whose transaction has an unknown outcome is called again only if its job has not
// been completed.
func TestLost_Completion(t *testing.T) {
	for _, commits := range []bool{true, false} {
		for _, calls := range []int{1, 5} {
			t.Run(fmt.Sprint("committed ", commits, " calls ", calls), func(t *testing.T) {
				lossyBubble(t, func(t *testing.T, r *lossyRig) {
					r.cfg.Store = r.own
					runs := 0
					r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
						if runs++; runs == 1 {
							time.Sleep(time.Second) // of the bubble: a call of the loop could be the one that is lost
							r.db.Lose(r.own, commits, calls)
						}
						err := engine.AttemptOf(ctx).Finish(ctx, r.own.(storage.TxEnqueuer), func(any) error { return nil })
						if (runs == 1) != errors.Is(err, storage.ErrUnknownOutcome) {
							t.Errorf("in run %d Finish returned %v", runs, err)
						}
						return err
					})
					id := r.enqueue("k", 1)[0]
					r.start()
					pass(time.Minute)
					want := storage.Counters{Attempt: 1}
					if !commits {
						want = storage.Counters{Attempt: 2, Retry: 1}
					}
					r.wantState(id, storage.Done, want)
					if runs != want.Attempt {
						t.Errorf("the handler was called %d times, want %d", runs, want.Attempt)
					}
				})
			})
		}
	}
}

// Chores whose answer is lost are done again: ticks of a schedule become one job each.
func TestLost_Firing(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lossyBubble(t, func(t *testing.T, r *lossyRig) {
				rec := r.record()
				r.declare(storage.Schedule{Name: "s", Spec: "@every 1m", Missed: "all(10)"})
				r.lose(rand.New(rand.NewPCG(seed, 3)))
				r.start()
				pass(time.Hour + 30*time.Second)
				r.store.failing(nil)
				ticks := map[string]bool{}
				for _, run := range rec.take("s") {
					tick := fmt.Sprintf("%+v", run)
					if ticks[tick] {
						t.Errorf("a second run of %s", tick)
					}
					ticks[tick] = true
				}
				if len(ticks) < 59 || len(ticks) > 61 {
					t.Errorf("%d ticks of an hour became jobs", len(ticks))
				}
			})
		})
	}
}
