package sqlite

import (
	"database/sql"
	"errors"

	"github.com/errandq/errand/storage"
)

// change is what a delta sets, and so by which statement.
type change uint8

const (
	// setLease has a job run that is ready, or blocked behind one that is leased with it.
	setLease   change = iota + 1
	setBack           // a leased job waits again, unless it was asked to stop
	setRunNow         // a scheduled job is ready, due at a time at the latest
	setLetIn          // a blocked job is ready or scheduled, due at a time at the earliest
	setBlocked        // a ready or scheduled job
	setWork           // a job that waits does what another one was to do
	setPlace          // a job that waits, or is dead, is changed

	// The next leave a job in its state.

	setUntil  // of a lease
	setHolder // of a lease, which its own holder passes on
	setTaken  // a lease passes to another holder, with another token
	setStop   // a job that runs is to stop
	setKept   // errand_kept has a row of a leased job

	// The next are about all jobs of a range.

	setReady   // those that are due
	setEarly   // those with keys in the range are due earlier, as the clock was set back
	setHolders // those that an instance has leased go to another one
)

// audience is who is told of a job that comes to wait.
type audience uint8

const (
	everybody  audience = iota // the workers of all processes
	ownWorkers                 // those of this process
	nobody
)

// delta is a change of errand_job, which [tx.apply] makes. Its statement sets nothing else
// than what changes: a wide one would cost each job.
type delta struct {
	change change
	// was is the job as it is, as far as it is known. Key, token and state are the fence, as
	// far as the statement has them.
	was facts
	row *jobRow // the job as it comes to be

	to        *grant
	outOfTurn bool // the lineups do not expect the lease

	at, up    int64 // a time, and rounded up
	low, high int64 // the range: of keys, or from one instance to another
	holder    int64 // an instance
	fate      storage.Fate
	until     int64          // of a lease that is taken: as it was seen, which is a fence too
	effect    storage.Effect // of an outcome; whether the due time stays, and the counters
	stays     bool           // in its place in its group, see [storage.Finish]
	role      role           // that it comes to have in its group; noRole: as it was
	tell      audience
	rest      *rewrite // of setWork and setPlace

	// The next are answers.

	cancelling bool    // the job was asked to stop
	members    []facts // jobs that may be members of groups and are ready now
}

// rewrite is what a delta has for a job whose place may be another, or its args.
type rewrite struct {
	due, delay any        // nil: as they were
	args       bool       // args and headers are others
	member     membership // of the job as it was
	moves      bool       // the group has to be looked at
	queue      string     // "": as it was
	as         role       // that [tx.place] has returned
}

// grant is to whom jobs are leased, and until when: made an interface once for many. It is
// apart from delta, since what that points to would be on the heap.
type grant struct{ holder, until any }

// back is where statements return what a row has: memory that changes share.
type back struct {
	jobRow
	cancelling bool
}

// apply makes a change of errand_job, with all that belongs to it: what is counted and
// remembered of the job, what few jobs have, and who is told. Nothing else writes to that
// table. It reports whether the job was there, as the change says.
func (t *tx) apply(d *delta) (found bool, err error) {
	if d.change >= setReady {
		return true, t.applyRange(d)
	}
	if d.role != noRole { // also of a job that is missing: damage need not stop the others
		t.groups.moved++
		if _, err := t.exec(sqlSetRole, d.was.ID, d.role); err != nil {
			return false, err
		}
	}
	rewritten := d.rest != nil && d.rest.args
	if rewritten { // while the payload is there
		if err := t.weigh(&d.was, -1); err != nil {
			return false, err
		}
	}
	if found, err = t.write(d); err != nil || !found || d.change >= setUntil {
		if found {
			t.noted(d)
		}
		return found, err
	}
	r, from := d.row, d.was.State
	to := r.State
	lane := r.Lane
	if d.rest != nil {
		lane = d.was.Lane
	}
	if from == ready && to != ready && t.mayHurry() {
		if err := t.calm(r.ID); err != nil {
			return false, err
		}
	}
	if !rewritten && (from.waits() != to.waits() || lane != r.Lane) {
		rewritten = true
		if err := t.weigh(&d.was, -1); err != nil {
			return false, err
		}
	}
	if rewritten {
		if err := t.weigh(&r.facts, 1); err != nil {
			return false, err
		}
	}
	if d.rest != nil {
		t.replaced(d)
	} else {
		t.move(lane, from, to)
	}
	switch {
	case to == running:
		return true, t.runs(d)
	case to == scheduled:
		t.told(d.tell, storage.Event{Due: fromMicros(r.DueAt)})
	case to == ready:
		t.told(d.tell, storage.Event{})
	}
	switch {
	case from == running:
		return true, t.waitsAgain(d)
	case d.rest != nil && d.rest.moves:
		return true, t.placed(&d.was, &r.facts, d.rest.member, d.rest.queue, d.rest.as)
	}
	return true, nil
}

// replaced counts a job whose lane, place or policy may be another.
func (t *tx) replaced(d *delta) {
	was, r := &d.was, d.row
	t.move(was.Lane, was.State, 0) // also of one that stays: its place may be another
	t.move(r.Lane, 0, r.State)
	t.transferred(was, r)
	if r.Policy != was.Policy {
		t.refer(was.Policy, -1)
		t.refer(r.Policy, 1)
		t.tidy = true
	}
}

// told tells an audience of e after the commit.
func (t *tx) told(a audience, e storage.Event) {
	switch a {
	case everybody:
		t.notifyAll(e)
	case ownWorkers:
		t.notify(e)
	}
}

// write runs the statement of a change.
func (t *tx) write(d *delta) (found bool, err error) {
	var n int64
	r, was := d.row, &d.was
	switch d.change {
	case setLease:
		text := sqlLease
		if was.State == blocked {
			text = sqlLeaseBlocked
		}
		n, err = t.execCount(text, r.Token, d.to.holder, d.to.until, r.ID)
	case setBack:
		b, add := t.returned(), &d.effect.Add
		var due any // as it was
		if !d.effect.KeepPlace {
			due = r.DueAt
		}
		err = t.row(sqlReschedule, []any{was.ID, was.Token, r.State, due, add.Attempt, add.Retry, add.Snoozes, d.effect.KeepCrashes, add.Crashes, r.Delay},
			&b.Lane, &b.Attempt, &b.Options, &b.Beside, &b.Size)
		r.ID, r.Lane, r.Attempt, r.Options, r.Beside, r.Size = was.ID, b.Lane, b.Attempt, b.Options, b.Beside, b.Size
		n = 1
	case setRunNow:
		n, err = t.execCount(sqlRunNow, was.ID, d.at)
	case setLetIn:
		b := t.returned()
		err = t.row(sqlLetIn, []any{was.ID, d.at}, &b.Lane, &b.State, &b.DueAt)
		r.ID, r.Lane, r.State, r.DueAt = was.ID, b.Lane, b.State, b.DueAt
		n = 1
	case setBlocked:
		n, err = t.execCount(sqlBlock, was.ID)
	case setWork, setPlace:
		return true, t.rewrite(d)
	case setUntil:
		b := t.returned()
		err = t.row(sqlExtend, []any{was.ID, was.Token, d.at}, &b.cancelling)
		d.cancelling = b.cancelling
		n = 1
	case setHolder:
		n, err = t.execCount(sqlHandBack, was.ID, was.Token, d.holder, d.fate)
	case setTaken:
		b := t.returned()
		err = t.row(sqlTake, []any{was.ID, was.Token, d.until, r.Token, d.holder, d.at, d.fate}, b.dest(&b.cancelling)...)
		*r, d.cancelling = b.jobRow, b.cancelling
		n = 1
	case setStop:
		n, err = t.execCount(sqlAskToStop, was.ID)
	case setKept:
		n, err = t.execCount(sqlMarkKept, was.ID, was.Token, was.State, d.effect.KeepCrashes)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return n > 0, err
}

// rewrite is write for a job whose place may be another, or its args.
func (t *tx) rewrite(d *delta) (err error) {
	r, rest := d.row, d.rest
	var headers, args any
	if rest.args {
		if d.was.Beside {
			if _, err := t.exec(sqlDeletePayload, r.ID); err != nil {
				return err
			}
		}
		r.Size = int64(len(r.Args) + len(r.Headers))
		r.Beside = r.Size > inlineLimit
		if headers, args, err = t.payload(r); err != nil {
			return err
		}
	}
	if d.change == setWork {
		_, err = t.exec(sqlReplace, r.ID, r.Priority, headers, args, r.State, r.DueAt, rest.delay, r.Retry, r.Crashes, r.Snoozes)
		return err
	}
	place, edit := sqlChangeJob, sqlEditJob
	values := []any{r.ID, r.Lane, r.Priority, r.Policy, r.State, rest.due, rest.delay}
	if r.State == dead {
		place, edit, values = sqlChangeDead, sqlEditDead, values[:4]
	}
	if rest.args {
		if _, err = t.exec(edit, r.ID, headers, args, hasEdits); err != nil {
			return err
		}
	}
	_, err = t.exec(place, values...)
	return err
}

// returned returns where a statement may return what a row has, until the next one does.
func (t *tx) returned() *back {
	if t.stmts == nil {
		return &back{}
	}
	t.stmts.back = back{}
	return &t.stmts.back
}

// runs is the part of apply for a job that begins to run.
func (t *tx) runs(d *delta) error {
	r := d.row
	t.stmts.leased = append(t.stmts.leased, r.facts)
	if d.outOfTurn {
		t.stmts.lineups.stir(r.Lane)
	}
	if r.option != nil && r.option.StartBy|r.option.Deadline != 0 {
		if _, err := t.exec(sqlRuns, r.ID); err != nil {
			return err
		}
	}
	return nil
}

// waitsAgain is the part of apply for a job that has run, or was to, and waits again.
func (t *tx) waitsAgain(d *delta) error {
	f := &d.row.facts
	if f.Options&hasOption == 0 {
		return nil
	}
	if _, err := t.exec(sqlWaitsAgain, f.ID, f.Attempt == 0); err != nil {
		return err
	}
	return t.regroupOf(f, d.stays)
}

// noted is the part of apply for a job that stays in its state.
func (t *tx) noted(d *delta) {
	switch d.change {
	case setHolder:
		t.told(everybody, storage.Event{})
	case setStop:
		t.meta.asked++ // so that the holder looks, in whatever process it is
		t.told(everybody, storage.Event{Cancel: true})
	case setKept:
		t.store.self.forgetFacts(d.was.Token)
	}
}

// applyRange is apply for a range of jobs.
func (t *tx) applyRange(d *delta) error {
	switch d.change {
	case setHolders:
		_, err := t.exec(sqlMoveLeases, d.low, d.high)
		return err
	case setEarly:
		return t.shift(d)
	}
	var lane int64
	var members []facts // not d.members: d would escape to the heap
	err := t.each(sqlPromote, []any{d.at}, []any{&lane}, func() {
		if lane < 0 {
			members = append(members, facts{ID: -lane})
			return
		}
		t.move(lane, scheduled, ready)
	})
	d.members = members
	for i := range members {
		f := &members[i]
		if err == nil {
			err = t.row(sqlLaneOfJob, []any{f.ID}, &f.Lane, &f.Options)
		}
		if err == nil {
			t.move(f.Lane, scheduled, ready)
		}
	}
	return err
}

// shift has jobs be due earlier: those of a delay at its end, others now.
func (t *tx) shift(d *delta) error {
	t.stmts.lineups.forget() // ready jobs may come to be due earlier
	var state stateCode
	var due, first int64
	err := t.each(sqlShift, []any{d.low, d.high, d.at, d.up}, []any{&state, &due}, func() {
		if state == scheduled && (first == 0 || due < first) {
			first = due
		}
	})
	if first != 0 { // earlier than anybody waits for
		t.told(everybody, storage.Event{Due: fromMicros(first)})
	}
	return err
}
