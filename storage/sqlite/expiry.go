package sqlite

import (
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlWindowed     = `SELECT EXISTS (SELECT 1 FROM main.errand_number WHERE id = 8)`
	sqlFirstWindow  = `INSERT INTO main.errand_number (id, n) VALUES (8, 1) ON CONFLICT DO NOTHING`
	sqlEpochs       = `SELECT epoch, base FROM main.errand_epoch`
	sqlEpoch        = `SELECT epoch FROM main.errand_epoch WHERE base = 0`
	sqlAddEpoch     = `INSERT INTO main.errand_epoch (epoch, base) VALUES (?1, 0)`
	sqlSettleEpochs = `UPDATE main.errand_epoch SET base = ?1 WHERE base = 0`
	sqlDropEpoch    = `DELETE FROM main.errand_epoch WHERE epoch = ?1 AND NOT EXISTS (SELECT 1 FROM main.errand_option WHERE epoch = ?1 AND epoch > 0)`

	// The limit is expiryStep; why it is no parameter see sqlPromote.
	sqlStarts       = `SELECT job FROM main.errand_option WHERE epoch = ?1 AND start_by > 0 AND start_by <= ?2 ORDER BY start_by LIMIT 250`
	sqlDeadlines    = `SELECT job FROM main.errand_option WHERE epoch = ?1 AND deadline > 0 AND deadline <= ?2 ORDER BY deadline LIMIT 250`
	sqlNextStart    = `SELECT start_by FROM main.errand_option WHERE epoch = ?1 AND start_by > 0 ORDER BY start_by LIMIT 1`
	sqlNextDeadline = `SELECT deadline FROM main.errand_option WHERE epoch = ?1 AND deadline > 0 ORDER BY deadline LIMIT 1`

	sqlRuns       = `UPDATE main.errand_option SET start_by = -ABS(start_by), deadline = -ABS(deadline) WHERE job = ?1 AND (start_by <> 0 OR deadline <> 0)`
	sqlWaitsAgain = `UPDATE main.errand_option SET start_by = CASE WHEN ?2 THEN ABS(start_by) ELSE 0 END, deadline = ABS(deadline)
WHERE job = ?1 AND (start_by <> 0 OR deadline <> 0)`
	sqlStateOf    = `SELECT state FROM main.errand_job WHERE id = ?1`
	sqlSetWindows = `UPDATE main.errand_option SET since = ?2, start_by = ?3, deadline = ?4, epoch = ?5 WHERE job = ?1`

	// Of an epoch that has a base only that counts.
	sqlShiftEpochs  = `UPDATE main.errand_epoch SET base = ?1 WHERE base > ?1`
	sqlShiftWindows = `UPDATE main.errand_option SET since = ?3,
start_by = CASE WHEN epoch <> 0 THEN start_by ELSE start_by - SIGN(start_by) * (since - ?3) END,
deadline = CASE WHEN epoch <> 0 THEN deadline ELSE deadline - SIGN(deadline) * (since - ?3) END
WHERE job > ?1 AND job <= ?2 AND since > ?3`
)

// expiryStep is how many jobs one exchange ends as it is too late for them.
const expiryStep = 250

// windows are until when a job may begin and may go on, see errand_option. Base is
// that of the epoch, 0 if the job has none or its clock is not believed yet.
type windows struct {
	Since        int64
	StartBy      int64 `db:"start_by"`
	StartWithin  int64 `db:"start_within"`
	Deadline     int64
	FinishWithin int64 `db:"finish_within"`
	Epoch        int64
	Base         int64
}

// windowed reports whether a window is under way.
func (w *windows) windowed() bool { return w.StartBy|w.Deadline|w.Epoch != 0 }

// begin has the windows count from at, or from due if that is later; of a date
// unless delayed. In an epoch they are lengths, which end after the delay too.
func (w *windows) begin(at, due int64, delayed bool, epoch int64) {
	from := max(at, due)
	w.Since, w.Epoch, w.Base = at, epoch, 0
	switch {
	case from > at && !delayed: // wherever the clock goes
		w.Since, w.Epoch = 0, 0
	case epoch != 0:
		from -= at
	}
	w.StartBy, w.Deadline = 0, 0
	if w.StartWithin > 0 {
		w.StartBy = from + w.StartWithin
	}
	if w.FinishWithin > 0 {
		w.Deadline = from + w.FinishWithin
	}
}

// unsettled reports whether the windows may begin anew.
func (w *windows) unsettled() bool {
	return w.Epoch != 0 && w.Base == 0 && (w.StartBy != 0 || w.Deadline != 0)
}

// times returns when the windows end, 0 for those that there are not. While the base of
// their epoch is not known they are taken to have begun when the job was enqueued.
func (w *windows) times() (startBy, deadline int64) {
	base := w.Base
	if w.unsettled() {
		base = w.Since
	}
	if startBy = max(w.StartBy, -w.StartBy); startBy != 0 {
		startBy += base
	}
	if deadline = max(w.Deadline, -w.Deadline); deadline != 0 {
		deadline += base
	}
	return startBy, deadline
}

// show fills in what a record has of a row.
func (o *option) show(r *storage.Record) {
	startBy, deadline := o.times()
	r.StartBy, r.Deadline = timeOrZero(startBy), timeOrZero(deadline)
	r.OnExpire = onExpire(o.Flags)
	r.Group = o.group()
}

// fillOption fills in what a worker gets of what few jobs have.
func (t *tx) fillOption(l *storage.Leased, r *jobRow) (err error) {
	if r.Options&hasKept != 0 {
		var data []byte // l itself would escape to the heap
		if err := t.row(sqlResumeFrom, []any{r.ID}, &data); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		l.Checkpoint = data
	}
	if r.Options&wasPassedOn != 0 {
		if l.Origin, err = t.originOf(r); err != nil {
			return err
		}
	}
	if r.Options&hasOption == 0 {
		return nil
	}
	if r.option == nil {
		if r.option, err = t.option(r.ID); err != nil {
			return err
		}
	}
	startBy, deadline := r.option.times()
	l.Group = r.option.group()
	l.StartBy, l.Deadline, l.Unsettled = timeOrZero(startBy), timeOrZero(deadline), r.option.unsettled()
	return nil
}

// epochs are the bases of epochs, 0 of one that is not over.
type epochs map[int64]int64

func readEpochs(db asker) (epochs, error) {
	all := epochs{}
	var epoch, base int64
	err := db.each(sqlEpochs, nil, []any{&epoch, &base}, func() { all[epoch] = base })
	return all, err
}

// windowed reports whether some job has had a window, and returns the epochs, if a
// transaction began with this generation.
func (c *cache) windowing(generation int64) (windowed bool, all epochs, known bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.windowed, c.epochs, c.generation == generation
}

// windowing is that of the cache, as the transaction has left it. A job that had no
// window then has none that is over.
func (t *tx) windowing() (windowed bool, all epochs, err error) {
	windowed, all, known := t.store.cache.windowing(t.was.gen)
	if known && t.meta.gen == t.was.gen {
		return windowed, all, nil
	}
	if err = t.row(sqlWindowed, nil, &windowed); err != nil || !windowed {
		return false, nil, err
	}
	all, err = readEpochs(t)
	return true, all, err
}

// hasWindows notes for all processes that a job has a window.
func (t *tx) hasWindows() error {
	if windowed, _, known := t.store.cache.windowing(t.was.gen); windowed && known {
		return nil
	}
	n, err := t.execCount(sqlFirstWindow)
	if n > 0 {
		t.meta.gen++
	}
	return err
}

// epoch returns the epoch of jobs that are enqueued while the clock is not believed.
func (t *tx) epoch() (epoch int64, err error) {
	if err = t.row(sqlEpoch, nil, &epoch); !errors.Is(err, sql.ErrNoRows) {
		return epoch, err
	}
	epoch = t.token()
	t.meta.gen++ // for all caches
	_, err = t.exec(sqlAddEpoch, epoch)
	return epoch, err
}

// mayBegin reports whether x sets the base of an epoch.
func (s *Store) mayBegin(x *storage.Exchange) bool {
	if x.Doubtful {
		return false
	}
	s.cache.mu.RLock()
	defer s.cache.mu.RUnlock()
	for _, base := range s.cache.epochs {
		if base == 0 {
			return true
		}
	}
	return false
}

// settleWindows has the windows of jobs begin anew that were enqueued while the clock
// was not believed, if it is now.
func (t *tx) settleWindows(now time.Time, x *storage.Exchange) error {
	if x.Doubtful {
		return nil
	}
	_, all, err := t.windowing()
	for _, base := range all {
		if err == nil && base == 0 {
			t.meta.gen++
			_, err = t.exec(sqlSettleEpochs, rules.Due(now))
		}
	}
	return err
}

// tooLate are the jobs that an exchange has ended since it was too late for them.
type tooLate struct {
	most  int // of the jobs whose time is over this many are looked at
	jobs  []storage.ExpiredJob
	again bool // there may be more, or others to lease
}

// eachEnd calls f with the two kinds of windows of each epoch that has a base.
func (t *tx) eachEnd(f func(epoch, base int64, next, over string) error) error {
	windowed, all, err := t.windowing()
	if err != nil || !windowed {
		return err
	}
	one := func(epoch, base int64) error {
		return errors.Join(f(epoch, base, sqlNextStart, sqlStarts), f(epoch, base, sqlNextDeadline, sqlDeadlines))
	}
	err = one(0, 0)
	for epoch, base := range all {
		if err == nil && base != 0 {
			err = one(epoch, base)
		}
	}
	return err
}

// first returns the first end of a window in an epoch, 0 if there is none.
func (t *tx) firstEnd(text string, epoch, base int64) (int64, error) {
	var at int64
	err := t.row(text, []any{epoch}, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return base + at, err
}

// nextEnd returns when the first window of a job that waits is over, 0 if none has one.
func (t *tx) nextEnd() (next int64, err error) {
	err = t.eachEnd(func(epoch, base int64, first, _ string) error {
		at, err := t.firstEnd(first, epoch, base)
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
		return err
	})
	return next, err
}

// sweep ends jobs that wait and whose windows are over, in the order of their keys.
func (t *tx) sweep(x *storage.Exchange, at int64, late *tooLate) error {
	var all []int64
	left := map[int64]int{} // windows of each epoch
	err := t.eachEnd(func(epoch, base int64, first, over string) error {
		next, err := t.firstEnd(first, epoch, base)
		if next != 0 {
			left[epoch]++
		}
		if err != nil || next == 0 || next > at {
			return err
		}
		if len(all) < late.most {
			var job int64
			err = t.each(over, []any{epoch, at - base}, []any{&job}, func() { all = append(all, job) })
		}
		late.again = len(all) >= late.most
		return err
	})
	slices.Sort(all)
	all = slices.Compact(all)
	for _, job := range all[:min(len(all), late.most)] {
		if err == nil {
			err = t.sweepOne(job, x, at, late)
		}
	}
	if err != nil {
		return err
	}
	return t.dropEpochs(left)
}

// dropEpochs deletes the epochs that no job is of any more. Of some jobs that wait are
// left.
func (t *tx) dropEpochs(left map[int64]int) error {
	_, all, err := t.windowing()
	for epoch, base := range all {
		if err != nil || base == 0 || left[epoch] > 0 {
			continue
		}
		var n int64
		if n, err = t.execCount(sqlDropEpoch, epoch); n > 0 {
			t.meta.gen++
		}
	}
	return err
}

func (t *tx) sweepOne(job int64, x *storage.Exchange, at int64, late *tooLate) error {
	var r jobRow
	err := t.row(sqlJob, []any{job}, r.dest(&r.State)...)
	if errors.Is(err, sql.ErrNoRows) { // damage, which need not stop the others
		_, err = t.exec(sqlEndOption, job)
		return err
	}
	if err != nil {
		return err
	}
	_, err = t.endIfOver(&r, x, at, late)
	return err
}

// endIfOver ends a job that waits if a window of it is over, unless late is nil. It
// reports whether one is.
func (t *tx) endIfOver(r *jobRow, x *storage.Exchange, at int64, late *tooLate) (bool, error) {
	if r.Options&hasOption == 0 {
		return false, nil
	}
	if r.option == nil {
		var err error
		if r.option, err = t.option(r.ID); err != nil {
			return false, err
		}
	}
	o := r.option
	startBy, deadline := o.times()
	ended := storage.ExpiredJob{ID: r.id(), Counters: r.counters(), CreatedAt: fromMicros(r.CreatedAt), State: storage.Dead}
	e := departure{state: dead, at: at, effect: storage.Effect{KeepCrashes: true}, inEffect: r.Policy}
	switch {
	case startBy != 0 && startBy <= at:
		ended.Reason, ended.Error = storage.ReasonExpired, storage.ErrorExpired
		if o.Flags&diesUnstarted == 0 {
			ended.State, ended.Reason, e.state, e.keep = storage.Expired, "", expired, &x.Retention
		}
	case deadline != 0 && deadline <= at:
		ended.Reason, ended.Error = storage.ReasonDeadline, storage.ErrorDeadline
	default:
		return false, nil
	}
	if late == nil {
		return true, nil
	}
	if !r.Beside { // it may be that of a head, which has none
		r.Size = int64(len(r.Args) + len(r.Headers))
	}
	e.reason, e.error = string(ended.Reason), ended.Error
	name, err := t.laneName(r.Lane)
	if err != nil {
		return true, err
	}
	ended.Queue, ended.Kind = name.Queue, name.Kind
	if err := t.blame(&r.facts, e.error, &e); err != nil {
		return true, err
	}
	late.jobs = append(late.jobs, ended)
	if _, err = t.leave(&r.facts, &e); err != nil || x.Follow == nil || e.state != dead {
		return true, err
	}
	if then := x.Follow(&ended); then != nil {
		_, err = t.enqueue(time.UnixMicro(at), []storage.NewJob{*then}, nil) // whatever the caps
		t.announce()
	}
	return true, err
}

// inTime returns the rows of jobs that can be leased. Those whose windows are over are
// ended, or left as they are if late is nil.
func (t *tx) inTime(rows []jobRow, x *storage.Exchange, at int64, late *tooLate) ([]jobRow, error) {
	n := 0
	for i := range rows {
		over := false
		if rows[i].Options&hasOption != 0 {
			var err error
			if over, err = t.endIfOver(&rows[i], x, at, late); err != nil {
				return nil, err
			}
		}
		if over {
			t.stmts.lineups.forget() // which take it for leased
			if late != nil {
				late.again = true
			}
			continue
		}
		if n != i {
			rows[n] = rows[i]
		}
		n++
	}
	if n == len(rows) {
		return rows, nil
	}
	return t.stillReady(rows[:n])
}

// stillReady returns the jobs that are ready: one that has ended may have had others of its
// group blocked.
func (t *tx) stillReady(rows []jobRow) ([]jobRow, error) {
	kept := rows[:0]
	for _, r := range rows {
		state := ready
		if r.Options&hasOption != 0 {
			if err := t.row(sqlStateOf, []any{r.ID}, &state); err != nil {
				return nil, err
			}
		}
		if state == ready {
			kept = append(kept, r)
		}
	}
	return kept, nil
}

// beginAnew has the windows of a job that waits begin anew: those of one that has run
// or was redriven, but for its first.
func (t *tx) beginAnew(now time.Time, r *jobRow, doubtful bool) error {
	o, err := t.option(r.ID)
	if err != nil {
		return err
	}
	if r.Attempt > 0 || r.Options&wasRedriven != 0 {
		o.StartWithin = 0
	}
	var epoch int64
	if doubtful {
		if epoch, err = t.epoch(); err != nil {
			return err
		}
	}
	o.begin(rules.Due(now), r.DueAt, r.Delay > 0, epoch)
	_, err = t.exec(sqlSetWindows, r.ID, o.Since, o.StartBy, o.Deadline, o.Epoch)
	return err
}

// shiftWindows has windows that began later than now begin now: those of the jobs
// with these keys, and all whose epoch has begun.
func (t *tx) shiftWindows(now time.Time, after, end int64) error {
	windowed, all, err := t.windowing()
	if err != nil || !windowed {
		return err
	}
	at := rules.Due(now)
	if len(all) > 0 {
		n, err := t.execCount(sqlShiftEpochs, at)
		if err != nil {
			return err
		}
		if n > 0 {
			t.meta.gen++
		}
	}
	n, err := t.execCount(sqlShiftWindows, after, end, at)
	if n > 0 {
		t.notifyAll(storage.Event{}) // a window may be over earlier than anybody waits for
	}
	return err
}
