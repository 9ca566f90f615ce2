package engine

import (
	"log/slog"
	"time"

	"github.com/errandq/errand/storage"
)

// exchange is one call of Store.Exchange. At most one is under way, so that
// outcomes pile up meanwhile and go in one commit.
type exchange struct {
	storage.Exchange
	from    []*source     // those of Wants that are asked for jobs
	clock   time.Time     // the time that the store is told
	setBack time.Duration // watch.setBack at that time
	sent    time.Time     // the first time, if it is repeated
	apart   bool          // it extends leases without the outcomes that wait
}

// send makes the next calls of the store, if there is anything to call it for.
func (l *loop) send(now time.Time) {
	if l.shutdown.fatal != nil {
		return
	}
	if !l.shutdown.working() && l.sources.offering && !l.exchanges.busy {
		l.endOffers()
		return
	}
	if now.Before(l.health.retryAt) {
		return
	}
	// Chores come first: one of them waits until no exchange is under way.
	if !l.side.busy {
		l.sendChore(now)
	}
	switch {
	case l.exchanges.busy:
	case l.outcomes.lost != nil:
		l.repeat()
	default:
		l.sendExchange(now)
	}
}

func (l *loop) sendExchange(now time.Time) {
	if len(l.leases.held) == 0 && !l.lacksRoom() { // nothing to extend
		l.leases.heartbeatAt = time.Time{}
	}
	l.spare()
	from := l.pick(now, false)
	// On a full disk outcomes may go through where a lease does not.
	alone := l.health.cannotLease && (len(l.outcomes.waiting) > 0 || reached(l.leases.heartbeatAt, now))
	urgent := l.urgentNow()
	if alone = alone || l.extendsApart(now); alone {
		from, urgent = nil, 0
	}
	if len(l.outcomes.waiting) == 0 && !reached(l.leases.heartbeatAt, now) && len(from)+urgent+len(l.ready.starts.waiting) == 0 && !l.ready.starts.stop && len(l.ready.holds.rulings.waiting) == 0 {
		return
	}
	if len(from) == 0 && !alone {
		from = l.pick(now, true) // to ask costs little more here, and saves an exchange
	}
	if urgent > 0 && len(l.ready.holds.spared) > 0 {
		from = nil // urgent jobs come from all lanes: the others are asked for next
	}
	x := l.exchange(from, now)
	l.askUrgent(&x, urgent)
	if !x.asks() && len(x.Start)+len(x.Stop)+len(x.Finish)+len(x.Extend)+len(x.Hold)+len(x.Release) == 0 {
		return // jobs that were handed over meanwhile have taken all runners
	}
	l.ask(&x)
}

// asks reports whether the exchange asks for jobs.
func (x *exchange) asks() bool { return len(x.from)+x.Urgent > 0 }

// exchange prepares the next exchange, which leases from these sources.
func (l *loop) exchange(from []*source, now time.Time) exchange {
	x := exchange{clock: l.clock()}
	x.setBack, x.Doubtful = l.watch.setBack, l.watch.doubtful
	x.LeaseDuration, x.Retention, x.apart = l.cfg.LeaseDuration, l.cfg.Retention, l.extendsApart(now)
	if !x.apart {
		x.Finish = l.outcomes.send()
	}
	if l.cfg.OnDeath != nil {
		l.follow(x.Finish, x.clock)
		x.Follow = l.cfg.followsExpired(x.clock)
	}
	if reached(l.leases.heartbeatAt, now) && !l.outcomes.alone {
		x.Extend = l.leases.extend()
		if x.apart {
			x.Extend = l.outcomes.extend(x.Extend)
		}
		l.extendProbes()
		l.leases.heartbeatAt = now.Add(l.cfg.LeaseDuration / 3)
	}
	x.Start, x.Stop = l.ready.starts.send(), l.stops()
	l.ready.holds.rulings.send(&x.Exchange)
	l.lease(from, now, &x)
	return x
}

// exchanged takes the answer of an exchange.
func (l *loop) exchanged(x *exchange, res *storage.ExchangeResult, now time.Time) {
	l.chores.worked(x.sent)
	l.health.doubt = nil
	// On a full disk an exchange that leases nothing may succeed all the same.
	if !l.health.atStart && !x.apart && (!l.health.cannotLease || x.asks() || !l.shutdown.working()) {
		l.worksAgain()
	}
	if x.Repeats == 0 {
		l.ready.pace.exchanged(now.Sub(x.sent), len(l.outcomes.waiting), len(l.leases.held))
	}
	l.extended(res.Extended, x.sent, now)
	l.ready.starts.stop = l.ready.starts.stop && len(x.Stop) == 0
	l.started(res.Started, now)
	l.finished(res.Finished, res.Then, now)
	if !x.asks() {
		return
	}
	l.expired(res.Expired, now)
	l.hurried(x, res.Leased, false)
	l.sources.leased(x, res.Leased, l.ready.pace.weighed(res.Leased) >= storage.LeaseBytes)
	if l.sources.due {
		l.sources.recount()
	}
	l.sources.due = !res.NextDue.IsZero() && !res.NextDue.After(x.clock)
	if !res.NextDue.IsZero() {
		l.sources.nextDue.sooner(res.NextDue, now, l.clock())
	}
	l.admit(res.Leased, x.sent)
}

// finished takes the results of the outcomes.
func (l *loop) finished(results []storage.ItemResult, then map[int][]storage.Enqueued, now time.Time) {
	l.taken(l.outcomes.flight, results, then, now)
	l.tellRulings()
	l.outcomes.written()
	l.ready.holds.rulings.written(l.runners.holds.n.Load(), l.ready.holds.heeded)
}

// taken takes notice of what the store has answered to outcomes.
func (l *loop) taken(all []outcome, results []storage.ItemResult, then map[int][]storage.Enqueued, now time.Time) {
	l.cfg.Lanes.meters.count(all, results)
	l.tellWritten(all, results, then)
	if len(all) == 0 {
		return
	}
	clock := l.clock()
	for i := range all {
		f := &all[i]
		f.open.end()
		l.reports.warnUsed(f, results[i])
		switch r := results[i]; {
		case r == storage.Lost:
			l.reports.outcome(slog.LevelWarn, tooLate, f)
		case r == storage.Ended && f.open != nil:
			l.complete(f.open.attempt)
		case r == storage.Spent:
			l.reports.spent(f)
		case r == storage.Unable && l.spareUnable(f):
		case r != storage.Applied:
			l.reports.outcome(slog.LevelError, notTaken, f)
		case f.Outcome == storage.OutcomeDone, f.Outcome == storage.OutcomeCancelled,
			f.Outcome == storage.OutcomeReturned && f.Error != "": // cancelled before its start
			l.purgeAfter(f.job.Queue, f.job.Kind, now, clock)
		}
	}
}
