package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlIsCancelling = `SELECT cancelling FROM main.errand_job WHERE id = ? AND token = ? AND state = 3`
	sqlAddHistory   = `INSERT INTO main.errand_history (job, n, attempt, at, phase, error, stack, duration, instance, retry_after)
SELECT ?, COALESCE(MAX(n), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ? FROM main.errand_history WHERE job = ?`
	// The offset is storage.HistoryLimit. There may be gaps, see sqlTrimEdits.
	sqlTrimHistory = `DELETE FROM main.errand_history WHERE job = ?1
AND n <= (SELECT n FROM main.errand_history WHERE job = ?1 ORDER BY n DESC LIMIT 1 OFFSET 20)`
)

// finish ends one lease.
func (t *tx) finish(now time.Time, f *storage.Finish, keep *storage.Retention) (storage.ItemResult, error) {
	at := micros(now)
	switch e := f.Effect(false); e.State { // whether it was asked to stop turns out later
	case storage.Done, storage.Cancelled:
		return t.end(at, f, e, keep)
	case storage.Dead:
		return t.bury(now, f, e)
	case storage.Ready:
		if f.Outcome == storage.OutcomeUnavailable {
			return t.unavailable(now, f, e, keep)
		}
		return t.reschedule(now, f, e, keep)
	}
	return storage.Refused, nil
}

func (t *tx) reschedule(now time.Time, f *storage.Finish, e storage.Effect, keep *storage.Retention) (storage.ItemResult, error) {
	at := micros(now)
	was, result, err := t.leased(f.Lease)
	if err != nil || result != storage.Applied {
		return result, err
	}
	r := jobRow{facts: was}
	d := delta{change: setBack, was: &was, row: &r, stays: f.Stays, tell: ownWorkers}
	state, due, delay := rules.BackAt(now, f.DueAt, e, was.DueAt)
	r.State, r.DueAt, r.Delay = codeOf(state), due, delay
	r.count(e.Counters(was.counters()))
	if f.Outcome == storage.OutcomeReturned || f.Outcome == storage.OutcomeInterrupted {
		d.tell = everybody // this worker is done with it
	}
	found, err := t.apply(&d)
	if err != nil {
		return 0, err
	}
	if !found {
		return t.endIfCancelling(at, f, keep)
	}
	t.store.marks.brings(r.Lane, int64(f.Bytes()))
	if f.Outcome == storage.OutcomeReturned {
		if err := t.giveBack(r.Lane); err != nil {
			return 0, err
		}
	}
	return storage.Applied, t.addHistory(at, f, r.Lane, r.Attempt)
}

// endIfCancelling takes over when a job could not be put back: it was asked to
// stop, or the lease is lost.
func (t *tx) endIfCancelling(at int64, f *storage.Finish, keep *storage.Retention) (storage.ItemResult, error) {
	var asked bool
	err := t.row(sqlIsCancelling, []any{f.Key, f.Token}, &asked)
	if errors.Is(err, sql.ErrNoRows) {
		return t.notHeld(f.Lease)
	}
	if err != nil {
		return 0, err
	}
	return t.end(at, f, f.Effect(true), keep)
}

// end finishes a job for good, keeping its row for a while or not.
func (t *tx) end(at int64, f *storage.Finish, to storage.Effect, keep *storage.Retention) (storage.ItemResult, error) {
	e := departure{state: done, at: at, error: f.Error, keep: keep, effect: to}
	if to.State == storage.Cancelled {
		e.state = cancelled
	}
	return t.leaveLeased(at, f, &e)
}

func (t *tx) bury(now time.Time, f *storage.Finish, to storage.Effect) (r storage.ItemResult, err error) {
	at := micros(now)
	e := departure{state: dead, at: at, error: f.Error, reason: string(f.Reason), effect: to}
	if e.inEffect, err = t.policy(f.Policy); err != nil {
		return 0, err
	}
	return t.leaveLeased(at, f, &e)
}

// leased returns what is known of a job that is leased: this instance knows it of its own leases. The
// statement that uses it is fenced by the token. The lease may be lost, also if leased says Applied.
func (t *tx) leased(l storage.Lease) (facts, storage.ItemResult, error) {
	if f, known := t.store.self.holds(l.Token); known && f.ID == l.Key {
		return f, storage.Applied, nil
	}
	var r jobRow
	err := t.row(sqlJob, []any{l.Key}, r.dest(&r.State)...)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (r.Token != l.Token || r.State != running) {
		result, err := t.notHeld(l)
		return r.facts, result, err
	}
	return r.facts, storage.Applied, err
}

// leaveLeased is leave for a job that is leased, if it is still that.
func (t *tx) leaveLeased(at int64, f *storage.Finish, e *departure) (storage.ItemResult, error) {
	gone, result, err := t.leased(f.Lease)
	if err != nil || result != storage.Applied {
		return result, err
	}
	gone.together = gone.together && f.Then == nil // what follows is enqueued once the job is gone
	t.store.marks.brings(gone.Lane, int64(f.Bytes()))
	if err := t.blame(&gone, f.Cause, e); err != nil {
		return 0, err
	}
	found, err := t.keepEnd(&gone, f, e)
	if err == nil && found {
		found, err = t.leave(&gone, e)
	}
	if err != nil {
		return 0, err
	}
	if !found {
		return t.notHeld(f.Lease)
	}
	if e.state == 0 {
		return storage.Applied, nil
	}
	return storage.Applied, t.addHistory(at, f, gone.Lane, gone.Attempt)
}

// leave takes a job out of its table. It reports whether the job was there, with
// this token and in this state.
func (t *tx) leave(f *facts, e *departure) (found bool, err error) {
	if e.keep != nil {
		kept, err := t.kept(f.Lane, e.keep)
		if err != nil {
			return false, err
		}
		if e.purgeAt = e.at + kept; kept <= 0 {
			e.state, e.unkept = 0, e.state
		}
	}
	return t.apply(&delta{change: setGone, was: f, end: e})
}

// kept returns for how many microseconds the finished jobs of a lane are kept.
func (t *tx) kept(lane int64, r *storage.Retention) (int64, error) {
	all, err := t.settings()
	if err != nil || len(r.Lanes) == 0 && len(all) == 0 {
		return r.Default.Microseconds(), err
	}
	name, err := t.laneName(lane)
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		return r.Default.Microseconds(), nil
	}
	if kept := all.of(name, storage.SettingRetention); kept != 0 {
		return max(kept, 0), err
	}
	return r.Of(name.Queue, name.Kind).Microseconds(), err
}

func (t *tx) addHistory(at int64, f *storage.Finish, lane int64, attempt int) error {
	h := f.Failure
	if h == nil || f.Outcome == storage.OutcomeReturned { // there was no attempt that could have failed
		return nil
	}
	t.lasts.failure(lane, f.Key, at)
	if f.Outcome == storage.OutcomeRetry || f.Outcome == storage.OutcomeCrashed || f.Outcome == storage.OutcomeDead {
		t.counts[laneState{lane, failuresNumber}]++
	}
	instance := h.Instance
	if instance == "" {
		instance = t.store.self.title()
	}
	_, err := t.exec(sqlAddHistory, f.Key, attempt, at, h.Phase, h.Error, h.Stack, h.Duration.Microseconds(), instance, h.RetryAfter, f.Key)
	if err != nil || attempt <= storage.HistoryLimit-storage.EditLimit { // so few failures, and as many edits as there can be
		return err
	}
	_, err = t.exec(sqlTrimHistory, f.Key)
	return err
}

func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}
