package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlNext    = `SELECT due_at FROM main.errand_job WHERE state = 1 ORDER BY due_at LIMIT 1`
	sqlPayload = `SELECT headers, args FROM main.errand_payload WHERE job = ?`
)

// promoteStep is how many scheduled jobs one exchange makes ready.
const promoteStep = 1000

// Exchange implements [storage.Store].
func (s *Store) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	var out storage.ExchangeResult
	if x.Repeats != 0 { // a lost answer closes the Store
		return out, cmp.Or(s.idle(ctx), storage.ErrNotFound)
	}
	wanted := x.Wanted() + max(x.Urgent, 0)
	writes := len(x.Extend) + len(x.Start) + len(x.Finish) + len(x.Hold) + len(x.Release)
	r := &request{ends: wanted == 0, urgent: true, leases: wanted > 0, work: writes + wanted}
	for i := range x.Finish {
		r.work += x.Finish[i].Bytes() / jobBytes
	}
	if wanted > 0 {
		r.step = promoteStep
	}
	r.run = func(t *tx) (err error) {
		t.deciding.at = micros(now)
		out, err = t.exchange(now, &x, max(r.step, 1))
		if t.deciding.at = 0; err != nil {
			return err
		}
		return t.evictDead(now)
	}
	if writes == 0 {
		if wanted == 0 {
			return out, s.idle(ctx)
		}
		r.probe = func(t *tx) (found bool, err error) {
			if t.store.cache.settles(micros(now), x.Doubtful) || t.store.mayBegin(&x) {
				return true, nil
			}
			if found, out.NextDue, err = t.due(now, x.Wants); err == nil && !found && x.Urgent > 0 {
				err = t.row(sqlAnyUrgent, nil, &found)
			}
			return found, err
		}
	}
	if err := s.submit(ctx, r); err != nil {
		return storage.ExchangeResult{}, err
	}
	s.self.forget(&x, &out)
	return out, nil
}

// exchange leases one job of a lane that is ajar, or none if step is 0. Else it makes no more
// than that many jobs ready, nor has more end as it is too late for them.
func (t *tx) exchange(now time.Time, x *storage.Exchange, step int) (out storage.ExchangeResult, err error) {
	ajar := step > 0
	at, until := t.seen(now), micros(now.Add(x.LeaseDuration))
	if n := len(x.Extend); n > 0 {
		if _, err = t.register(x.LeaseDuration); err != nil {
			return out, err
		}
		out.Extended = make([]storage.ItemResult, n)
		for i, l := range x.Extend {
			if out.Extended[i], err = t.extend(l, until); err != nil {
				return out, err
			}
		}
	}
	if out.Started, err = t.starting(x.Start); err != nil {
		return out, err
	}
	if err := t.finishAll(now, x, &out); err != nil {
		return out, err
	}
	if err := t.changeHolds(now, x); err != nil || x.Wanted()+x.Urgent <= 0 {
		return out, err
	}
	if ajar { // else now is that of a call which does not know
		if err := errors.Join(t.settleHolds(now, x), t.settleWindows(now, x)); err != nil {
			return out, err
		}
	}
	if err := t.forgetHolds(at); err != nil {
		return out, err
	}
	next, err := t.promote(at, step)
	var late *tooLate
	if err == nil && ajar {
		late = &tooLate{most: min(step, expiryStep)}
		err = t.sweep(x, at, late)
	}
	if err != nil {
		return out, err
	}
	var urgent []storage.Leased
	var bytes int
	var kept int64
	if x.Urgent > 0 {
		urgent, bytes, err = t.leaseUrgent(x, at, until, late)
	}
	if err == nil && bytes < storage.LeaseBytes {
		out.Leased, kept, err = t.leaseBounded(x, at, until, late, bytes)
	}
	if len(urgent) > 0 {
		out.Leased = append(urgent, out.Leased...)
	}
	if err != nil {
		return out, err
	}
	if late != nil && len(late.jobs) > 0 { // which may have let in others of their groups
		if next, err = t.nextDue(); err != nil {
			return out, err
		}
	}
	if out.NextDue, err = t.nextChance(earlier(next, kept), x.Wants, at); late != nil && late.again {
		out.NextDue = fromMicros(at)
	}
	if late != nil {
		out.Expired = late.jobs
	}
	return out, err
}

func (t *tx) extend(l storage.Lease, until int64) (storage.ItemResult, error) {
	d := delta{change: setUntil, was: &facts{ID: l.Key, Token: l.Token}, at: until}
	found, err := t.apply(&d)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return t.notHeld(l)
	case d.cancelling:
		return storage.Cancelling, nil
	}
	return storage.Applied, nil
}

func timeOrZero(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return fromMicros(us)
}

// nextDue returns the due time of the first scheduled job, 0 if there is none.
func (t *tx) nextDue() (int64, error) {
	var us int64
	err := t.row(sqlNext, nil, &us)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return us, err
}

// promote makes due scheduled jobs ready, step of them at most, unless that is 0. It returns the
// due time of the first that stays scheduled, 0 if none does.
func (t *tx) promote(at int64, step int) (int64, error) {
	next, err := t.nextDue()
	if err != nil || next == 0 || next > at {
		return next, err
	}
	d := delta{change: setReady, at: at, high: int64(step)}
	if _, err = t.apply(&d); err == nil && d.jobs != nil {
		err = t.findPlaces(d.jobs)
	}
	if err != nil {
		return 0, err
	}
	return t.nextDue()
}

// lease takes the first jobs that are wanted, but none of lanes that are ajar if late is
// nil. It returns until when the first of those are that are kept back, 0 if none are.
func (t *tx) lease(x *storage.Exchange, at, until int64, late *tooLate, bytes int, room *leaseRoom) (out []storage.Leased, kept int64, err error) {
	defer func() {
		if err != nil { // the transaction may go on without it
			t.stmts.lineups.forget()
		}
	}()
	l, err := t.lineup(x.Wants, at, late != nil)
	if err == nil && l.unsure > fewLanes {
		err = t.survey(l)
	}
	if err == nil {
		kept, err = t.keepBack(l, at)
	}
	if err != nil {
		return nil, 0, err
	}
	k, err := t.tokens(l, at)
	if err != nil {
		return nil, 0, err
	}
	rows, left, token, err := t.stmts.merge(l, x.Wants, k, room)
	kept = earlier(kept, token)
	if err != nil || len(rows) == 0 {
		return nil, kept, err
	}
	holder, err := t.register(x.LeaseDuration)
	if err != nil {
		return nil, 0, err
	}
	if rows, err = t.inTime(rows, x, at, late); err != nil || len(rows) == 0 {
		return nil, kept, err
	}
	g := &granting{tx: t, grant: grant{holder, until}, at: at, first: len(t.stmts.leased), bytes: bytes, room: room}
	if err = g.leaseAll(x, rows, left, k); err != nil {
		return nil, 0, err
	}
	if room != nil && room.short {
		kept = earlier(kept, at)
	}
	if l.ajar > 0 {
		err = t.letThrough(l, g.out, t.stmts.leased[g.first:], until, at)
	}
	return g.out, kept, err
}

// leaseRow leases the job of a row, and fills in l.
func (t *tx) leaseRow(l *storage.Leased, r *jobRow, to *grant, outOfTurn bool) error {
	was := r.facts
	d := delta{change: setLease, was: &was, row: r, to: to, outOfTurn: outOfTurn}
	if r.State == blocked {
		d.role = rules.Placed
	}
	l.Previous = r.Token
	r.State, r.Token = running, t.token()
	r.Attempt++
	if err := t.fill(l, r); err != nil {
		return err
	}
	r.Size = int64(l.Weight())
	was.Size = r.Size
	found, err := t.apply(&d)
	if err == nil && !found {
		err = fmt.Errorf("%w: job %d is not ready: an index has it as ready", storage.ErrCorrupt, r.ID)
	}
	return err
}

// fill fills in what a worker gets of a row, with its args from wherever they are.
func (t *tx) fill(l *storage.Leased, r *jobRow) error {
	l.Lease, l.ID = storage.Lease{Key: r.ID, Token: r.Token}, r.id()
	l.Priority, l.Counters = r.Priority, r.counters()
	l.CreatedAt, l.DueAt = fromMicros(r.CreatedAt), fromMicros(r.DueAt)
	l.Timeout = time.Duration(r.Timeout) * time.Microsecond
	l.Headers, l.Args, l.Redriven = r.Headers, r.Args, r.Options&wasRedriven != 0
	if err := t.fillOption(l, r); err != nil {
		return err
	}
	name, err := t.laneName(r.Lane)
	if err != nil {
		return err
	}
	l.Queue, l.Kind = name.Queue, name.Kind
	if l.Policy, err = t.policyDoc(r.Policy); err != nil {
		return err
	}
	if r.Beside && r.Args == nil {
		var headers, args []byte // l itself would escape to the heap
		err = t.row(sqlPayload, []any{r.ID}, &headers, &args)
		l.Headers, l.Args = headers, args
	}
	return err
}
