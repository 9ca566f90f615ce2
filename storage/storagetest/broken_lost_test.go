package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// repeating has f answer exchanges that repeat another one.
func repeating(f func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error)) func(*instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.exchange = func(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
			if x.Repeats == 0 {
				return h.amnesiac.Exchange(ctx, now, x)
			}
			return f(h, ctx, now, x)
		}
		return h
	}
}

// reanswering has f change the answers to exchanges that repeat another one.
func reanswering(f func(h *hooks, now time.Time, x storage.Exchange, res *storage.ExchangeResult)) func(*instance) storage.Store {
	return repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		res, err := h.amnesiac.Exchange(ctx, now, x)
		if err == nil {
			f(h, now, x, &res)
		}
		return res, err
	})
}

// losing has f look at the calls whose answer is to be lost, and change what becomes of them.
func losing(f func(l *loss)) func(*instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.loses = f
		return h
	}
}

var lostFaults = []fault{
	{"lost_made_anew", "lost_exchange_committed", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		x.Repeats = 0
		return h.amnesiac.Exchange(ctx, now, x)
	})},
	{"lost_leases_twice", "lost_exchange_committed", reanswering(func(h *hooks, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		_, _ = h.instance.Exchange(context.Background(), now, storage.Exchange{LeaseDuration: hold, Wants: x.Wants})
	})},
	{"lost_finishes_twice", "lost_exchange_committed", reanswering(func(h *hooks, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		for _, f := range x.Finish {
			h.m.locked(func() { h.m.enqueueThen(now, f.Then) })
		}
	})},
	{"lost_forgets_leases", "lost_exchange_committed", reanswering(func(_ *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		res.Leased = nil
	})},
	{"lost_says_lost", "lost_exchange_committed", reanswering(func(_ *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		for i := range res.Finished {
			res.Finished[i] = storage.Lost
		}
	})},
	{"lost_says_applied", "lost_exchange_answers_committed", reanswering(func(_ *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		clear(res.Finished)
	})},
	{"lost_forgets_cancelling", "lost_exchange_answers_committed", reanswering(func(_ *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		clear(res.Extended[1:])
	})},
	{"lost_forgets_then", "lost_exchange_committed", reanswering(func(_ *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		res.Then = nil
	})},
	{"lost_holds_anew", "lost_exchange_holds_committed", reanswering(func(h *hooks, now time.Time, x storage.Exchange, _ *storage.ExchangeResult) {
		_, _ = h.instance.Exchange(context.Background(), now, storage.Exchange{Hold: x.Hold})
	})},
	{"lost_takes_no_effect_later", "lost_exchange_undone", repeating(func(h *hooks, ctx context.Context, _ time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		known, err := h.remember(ctx, x.Repeats)
		if err != nil {
			return storage.ExchangeResult{}, err
		}
		if known.ExchangeResult != nil {
			return *known.ExchangeResult, nil
		}
		return storage.ExchangeResult{Extended: make([]storage.ItemResult, len(x.Extend)), Finished: make([]storage.ItemResult, len(x.Finish))}, nil
	})},
	{"lost_takes_lapsed_leases_again", "lost_exchange_meanwhile_committed", reanswering(func(h *hooks, _ time.Time, _ storage.Exchange, res *storage.ExchangeResult) {
		h.m.locked(func() {
			for i := range res.Leased {
				j := h.m.jobs[res.Leased[i].Key]
				j.lease.token, j.lease.holder = res.Leased[i].Token, h.instance
			}
		})
	})},
	{"lost_withdrawn_for_good", "lost_exchange_withdrawn_committed", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		if err := ctx.Err(); err != nil {
			return storage.ExchangeResult{}, err
		}
		return h.amnesiac.Exchange(ctx, now, x)
	})},
	{"lost_answered_for_ever", "exchange_repeats", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		res, err := h.amnesiac.Exchange(ctx, now, x)
		if errors.Is(err, storage.ErrNotFound) {
			return res, nil
		}
		return res, err
	})},
	{"lost_anew_if_not_known", "exchange_repeats", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		res, err := h.amnesiac.Exchange(ctx, now, x)
		if errors.Is(err, storage.ErrNotFound) {
			_, _ = h.instance.Exchange(ctx, now, storage.Exchange{LeaseDuration: hold, Wants: x.Wants})
		}
		return res, err
	})},
	{"lost_second_loss_forgotten", "lost_exchange_again_committed", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		res, err := h.amnesiac.Exchange(ctx, now, x)
		var lost *storage.UnknownOutcomeError
		if errors.As(err, &lost) && lost.Call != x.Repeats {
			h.keepExchange(storage.ExchangeResult{}, false)
			lost.Call++
		}
		return res, err
	})},
	{"lost_closed_all_the_same", "lost_closed", repeating(func(h *hooks, ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
		res, err := h.amnesiac.Exchange(ctx, now, x)
		if errors.Is(err, storage.ErrClosed) {
			err = &storage.UnknownOutcomeError{Call: x.Repeats}
		}
		return res, err
	})},
	{"lost_never_looked_for", "lost_found_out_committed", losing(func(l *loss) { l.calls = max(l.calls, 1) })},
	{"lost_said_to_be_undone", "lost_found_out_undone", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			h.mu.Lock()
			undone := h.next != nil && h.next.calls == 0 && !h.next.commits
			h.mu.Unlock()
			out, err := h.amnesiac.Enqueue(ctx, now, jobs)
			if undone && err == nil { // it takes effect although it said that it had not
				return nil, storage.ErrIO
			}
			return out, err
		}
		return h
	}},
	{"lost_enqueue_made_again", "lost_found_out_committed", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			h.mu.Lock()
			found := h.next != nil && h.next.calls == 0 && h.next.commits
			h.mu.Unlock()
			out, err := h.amnesiac.Enqueue(ctx, now, jobs)
			if found && err == nil {
				return h.amnesiac.Enqueue(ctx, now, jobs) // a duplicate, of itself
			}
			return out, err
		}
		return h
	}},
	{"lost_enqueue_undone_and_known", "lost_enqueue_undone", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := h.amnesiac.Enqueue(ctx, now, jobs)
			if errors.Is(err, storage.ErrUnknownOutcome) && jobs[0].Unique != "" {
				_, _ = h.instance.Enqueue(ctx, now, jobs)
			}
			return out, err
		}
		return h
	}},
	{"lost_reclaim_strands", "lost_reclaim_committed", unfetched(func(h *hooks, _ []storage.Reclaimed) { h.untold = nil })},
	{"lost_reclaim_above_its_limit", "lost_reclaim_committed", func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			all := slices.Clone(h.untold)
			out, err := h.amnesiac.Reclaim(ctx, now, mono, lease, limit)
			if err == nil && len(all) > limit {
				h.untold = nil
				return all, nil
			}
			return out, err
		}
		return h
	}},
	{"lost_reclaim_told_twice", "lost_reclaim_committed", unfetched(func(h *hooks, out []storage.Reclaimed) { h.untold = append(h.untold, out...) })},
	{"lost_reclaim_alone", "lost_reclaim_committed", func(in *instance) storage.Store { return loneLoser{sound(in)} }},
	{"lost_reclaim_cut", "lost_reclaim_committed", unfetched(func(_ *hooks, out []storage.Reclaimed) {
		for i := range out {
			out[i].Fate = storage.Cut
		}
	})},
	{"lost_handoff_stranded", "lost_handoff_committed", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			out, err := h.amnesiac.Enqueue(ctx, now, jobs)
			if errors.Is(err, storage.ErrUnknownOutcome) {
				_, _ = in.Exchange(ctx, now, storage.Exchange{LeaseDuration: hold, Wants: wants(1)})
			}
			return out, err
		}
		return h
	}},
	{"lost_cancel_unrepeatable", "lost_others_committed", func(in *instance) storage.Store {
		h := sound(in)
		lost := false
		h.cancel = func(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
			if lost {
				return "", storage.ErrNotFound
			}
			state, err := h.amnesiac.Cancel(ctx, now, id, keep)
			lost = errors.Is(err, storage.ErrUnknownOutcome)
			return state, err
		}
		return h
	}},
	{"lost_redrive_remembered", "lost_others_committed", func(in *instance) storage.Store {
		h := sound(in)
		h.redrive = func(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
			step, err := h.amnesiac.Redrive(ctx, now, sel, queue)
			step.N = len(sel.IDs)
			return step, err
		}
		return h
	}},
	{"lost_fire_twice", "lost_revision_committed", func(in *instance) storage.Store {
		h := sound(in)
		h.fire = func(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
			fired, err := h.amnesiac.Fire(ctx, now, firings)
			if err == nil && !fired[0].Applied {
				_, err = in.Enqueue(ctx, now, []storage.NewJob{*firings[0].Ticks[0].Job})
			}
			return fired, err
		}
		return h
	}},
	{"lost_tx_forgets_its_end", "lost_tx_committed", func(in *instance) storage.Store { return lostTx{sound(in), false} }},
	{"lost_tx_told", "lost_tx_undone", func(in *instance) storage.Store { return lostTx{sound(in), true} }},
}

// unfetched has f change what is left after a Reclaim that was answered.
func unfetched(f func(h *hooks, out []storage.Reclaimed)) func(*instance) storage.Store {
	return func(in *instance) storage.Store {
		h := sound(in)
		h.reclaim = func(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
			out, err := h.amnesiac.Reclaim(ctx, now, mono, lease, limit)
			f(h, out)
			return out, err
		}
		return h
	}
}

// loneLoser takes no account of what a lost Reclaim took.
type loneLoser struct{ *hooks }

func (s loneLoser) Alone() bool { return s.instance.Alone() }

// lostTx forgets which leases have ended in a transaction whose commit is not known, or tells it.
type lostTx struct {
	*hooks
	tells bool
}

func (s lostTx) FinishTx(ctx context.Context, tx any, now time.Time, ends []storage.Finish, keep storage.Retention, committed func(i int)) ([]storage.ItemResult, map[int][]storage.Enqueued, error) {
	r, then, err := s.hooks.FinishTx(ctx, tx, now, ends, keep, committed)
	if s.tells && committed != nil {
		for i := range ends {
			committed(i)
		}
	}
	return r, then, err
}

func (s lostTx) Tx(ctx context.Context, fn func(tx any) error) error {
	err := s.hooks.Tx(ctx, fn)
	if errors.Is(err, storage.ErrUnknownOutcome) && !s.tells {
		clear(s.ended)
	}
	return err
}
