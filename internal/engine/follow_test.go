package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// followed has each death followed by a job that nobody runs, and returns what was asked
// for that: the outcomes and their times.
func (r *rig) followed() (asked func() []string) {
	var mu sync.Mutex
	var all []string
	r.cfg.OnDeath = func(job *storage.Leased, f *storage.Finish, at time.Time) *storage.NewJob {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, fmt.Sprint(job.ID.Key(), " ", f.Outcome, " ", f.Reason))
		return &storage.NewJob{Queue: "notices", Kind: "notice", Args: fmt.Appendf(nil, "[%d,%d]", job.ID.Key(), at.UnixMicro())}
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// notices returns the jobs that followed deaths, which are leased for it.
func (r *rig) notices() []storage.Leased {
	r.t.Helper()
	res, err := r.app.Exchange(r.t.Context(), r.now(), storage.Exchange{
		LeaseDuration: time.Hour, Wants: []storage.Want{{Queues: []string{"notices"}, Kinds: []string{"notice"}, N: 100}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return res.Leased
}

// Only for a death it is asked what follows, and for an attempt which may turn out to be
// one, as others are more successful.
func TestFollow_DeathsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		doc   policy.Policy
		asked string
	}{
		"done":                   {},
		"retried":                {err: errOops, doc: thrice},
		"dead":                   {err: errOops, asked: "1 dead exhausted"},
		"snoozed":                {err: &engine.SnoozeError{For: time.Hour}},
		"unavailable":            {err: errUnreached, doc: thrice},
		"unavailable at the end": {err: errUnreached, asked: "1 dead exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Policy = c.doc.Delivery()
				r.handle("k", func(context.Context, *storage.Leased) error { return c.err })
				asked := r.followed()
				r.enqueue("k", 1)
				r.start()
				pass(100 * time.Millisecond)
				if all := asked(); strings.Join(all, ", ") != c.asked {
					t.Errorf("it was asked what follows %q, want %q", all, c.asked)
				}
				want := 0
				if c.asked != "" && !errors.Is(c.err, errUnreached) {
					want = 1
				}
				if n := len(r.notices()); n != want {
					t.Errorf("%d jobs follow, want %d", n, want)
				}
			})
		})
	}
}

// An exchange that fails is repeated later. Each job that follows says when its death was
// written, on the clock that the store was told, and is there once.
func TestFollow_ExchangeThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.cfg.Clock = engine.Wall(func() time.Time { return time.Now().Add(time.Hour) })
		r.handle("k", func(context.Context, *storage.Leased) error {
			r.store.failing(func(op string) error {
				if op == "exchange" {
					return storage.ErrBusy
				}
				return nil
			})
			return errOops
		})
		asked := r.followed()
		ids := r.enqueue("k", 4)
		r.start()
		pass(5 * time.Second)
		r.wantState(ids[0], storage.Running, storage.Counters{Attempt: 1})
		r.store.failing(nil)
		pass(5 * time.Second)
		want, got := map[string]bool{}, map[string]bool{}
		for _, id := range ids {
			died := r.wantState(id, storage.Dead, storage.Counters{Attempt: 1}).EndedAt
			want[fmt.Sprintf("[%d,%d]", id.Key(), died.UnixMicro())] = true
		}
		all := r.notices()
		for _, n := range all {
			got[string(n.Args)] = true
		}
		if len(all) != len(ids) || !maps.Equal(got, want) || len(asked()) < 2*len(ids) {
			t.Errorf("the deaths %v are followed by %v, after %q was asked", want, got, asked())
		}
	})
}

// amnesiac does not know what became of the exchange that buries a job.
type amnesiac struct {
	*spy
	commits bool
}

func (s *amnesiac) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (res storage.ExchangeResult, err error) {
	if len(x.Finish) == 0 {
		return s.spy.Exchange(ctx, now, x)
	}
	if s.commits {
		if _, err := s.spy.Exchange(ctx, now, x); err != nil {
			return res, err
		}
	}
	return res, storage.ErrUnknownOutcome
}

// A worker ends when it does not know whether a death was written. Either it was, with
// the job that follows, or neither: then the job dies with the next worker.
func TestFollow_CommitOfUnknownFate(t *testing.T) {
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("committed ", commits), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.cfg.Store, r.cfg.Policy = &amnesiac{r.store, commits}, noRetry.Delivery()
				r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
				r.followed()
				id := r.enqueue("k", 1)[0]
				r.start()
				pass(time.Minute)
				if err := r.stop(); !errors.Is(err, storage.ErrUnknownOutcome) {
					t.Fatalf("Run returned %v", err)
				}
				if state := r.job(id).State; (state == storage.Dead) != commits {
					t.Errorf("the job is %s", state)
				}
				r.db.Kill(r.store.Store)
				next := r.another()
				next.cfg.Policy, next.cfg.Handlers, next.cfg.OnDeath = r.cfg.Policy, r.cfg.Handlers, r.cfg.OnDeath
				next.start()
				pass(time.Minute)
				if rec := r.job(id); rec.State != storage.Dead || commits && rec.Attempt != 1 {
					t.Errorf("the job is %+v", rec)
				}
				if n := len(r.notices()); n != 1 {
					t.Errorf("%d jobs follow, want 1", n)
				}
			})
		})
	}
}
