package engine

import (
	"context"
	"errors"
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
	l.outcomes.putBack(l.watch.setBack - x.setBack)
	l.notStarted()
	l.ready.holds.rulings.putBack()
	if len(l.leases.extending) > 0 {
		l.leases.extended()
		l.leases.heartbeatAt = now
	}
	l.hurried(x, nil, true)
	l.sources.leased(x, nil, true)
	if !l.endsWork(err, x.asks(), now) {
		l.trouble(err, false, x.asks(), now)
	}
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
