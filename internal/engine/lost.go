package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/errandq/errand/storage"
)

// ask has an exchange made.
func (l *loop) ask(x *exchange) {
	l.sources.leasing = x.asks()
	l.exchanges.do(func(ctx context.Context) func(time.Time) {
		if x.Repeats == 0 {
			x.sent = time.Now()
		}
		res, err := l.cfg.Store.Exchange(ctx, x.clock, x.Exchange)
		return func(now time.Time) {
			if l.loses(x, err, now) {
				return
			}
			l.sources.leasing = false
			if err != nil {
				l.failed(x, err, now)
				return
			}
			l.exchanged(x, &res, now)
		}
	})
}

// failed keeps what an exchange that failed was about, to try again later.
func (l *loop) failed(x *exchange, err error, now time.Time) {
	again := errors.Is(err, storage.ErrFull) && l.fitsBetter(x, now)
	l.outcomes.putBack(l.watch.setBack - x.setBack)
	l.notStarted()
	l.ready.holds.rulings.putBack()
	if len(x.Extend) > 0 {
		l.leases.extended()
		l.leases.heartbeatAt = now
	}
	l.hurried(x, nil, true)
	l.sources.leased(x, nil, true)
	if !l.endsWork(err, x.asks(), now) {
		l.trouble(err, false, x.asks(), now)
		l.findsNoRoom(x, now)
		if again {
			l.health.retryAt, l.health.backoff = now, l.health.backoff/2
		}
	}
}

// fitsBetter reports whether what an exchange for which the disk has no room was about is worth
// another try at once: without jobs to lease, with half of the outcomes, or with a single
// one that has become smaller, or with the others.
func (l *loop) fitsBetter(x *exchange, now time.Time) bool {
	all := l.outcomes.flight
	if x.asks() || len(all) == 0 {
		return len(all) > 0
	}
	if l.outcomes.halve(now) {
		return true
	}
	f := &all[0]
	whole := min(keptWhole, l.cfg.LeaseDuration/3)
	if l.shutdown.working() && now.Sub(f.noRoom) < whole {
		return l.outcomes.defers()
	}
	text := f.lessen(l.clock().Add(backDelay))
	if text == "" {
		return l.outcomes.defers()
	}
	if text != f.lessened { // texts become shorter in steps
		f.lessened = text
		l.reports.outcome(slog.LevelWarn, f.lessened, f)
	}
	return true
}

// loses reports whether err leaves open whether an exchange took effect. If so the exchange is
// to be repeated, and nothing else is asked before: what it was about stays in flight. The leases
// that it may have brought are not extended meanwhile; they are safe for as long as if
// the first try had brought them.
func (l *loop) loses(x *exchange, err error, now time.Time) bool {
	lost, ok := errors.AsType[*storage.UnknownOutcomeError](err)
	if !ok {
		return false
	}
	x.Repeats = lost.Call
	l.outcomes.lost = x
	l.trouble(err, false, x.asks(), now)
	return true
}

// repeat makes the exchange again whose answer was lost.
func (l *loop) repeat() {
	x := l.outcomes.lost
	l.outcomes.lost = nil
	x.clock = l.clock()
	l.ask(x)
}

// asking reports whether an exchange is under way, or is to be repeated.
func (l *loop) asking() bool { return l.exchanges.busy || l.outcomes.lost != nil }
