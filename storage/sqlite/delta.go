package sqlite

import (
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// change is what a delta sets, and so by which statement.
type change uint8

const (
	setRow  change = iota + 1 // all: the job is new in errand_job
	setGone                   // the job leaves its table, whichever that is
	// setLease has a job run that is ready, or blocked behind one that is leased with it.
	setLease
	setBack   // a leased job waits again, unless it was asked to stop
	setRunNow // a scheduled job is ready, due at a time at the latest
	setWork   // a job that waits does what another one was to do
	setPlace  // a job that waits, or is dead, is changed

	// The next leave a job in its state.

	setUntil  // of a lease
	setHolder // of a lease, which its own holder passes on
	setTaken  // a lease passes to another holder, with another token
	setStop   // a job that runs is to stop
	setKept   // errand_kept has a row of a leased job

	// The next are about many jobs: setMoved about a list of them, the others about all of a range.
	setMoved   // jobs that wait have another state or role
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
	was *facts
	row *jobRow // the job as it comes to be

	to        *grant
	outOfTurn bool // the lineups do not expect the lease

	at, up    int64 // a time, for a lease that until which it is to be; and rounded up
	low, high int64 // the range: of keys, or from one instance to another; high of setReady is a number of jobs
	holder    int64 // an instance
	fate      storage.Fate
	seenUntil int64      // of a lease that is taken: as it was seen, which is a fence too
	clears    bool       // of setKept: the crashes of the job become zero
	stays     bool       // in its place in its group, see [storage.Finish]
	role      rules.Role // that it comes to have in its group; rules.NoRole: as it was
	tell      audience
	rest      *rewrite     // of setWork and setPlace
	end       *departure   // of setGone
	moved     []*rules.Row // of setMoved: the jobs
	answers
}

// answers are what apply answers in a delta.
type answers struct {
	cancelling bool    // the job was asked to stop
	jobs       []facts // of setReady, those that may be members of groups and are ready now
}

// rewrite is what a delta has for a job whose place may be another, or its args.
type rewrite struct {
	due, delay any  // nil: as they were
	args       bool // args and headers are others
	moves      bool // the group has to be looked at
	was, is    membership
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
// remembered of the job, what few jobs have, the places of its group, and who is told.
// Nothing else writes to that table. It reports whether the job was there, as was says.
func (t *tx) apply(d *delta) (found bool, err error) {
	t.uncounted.changes(d)
	switch {
	case d.change >= setMoved:
		return true, t.applyMany(d)
	case d.change == setGone:
		return t.depart(d)
	}
	if d.role != rules.NoRole { // also of a job that is missing: damage need not stop the others
		if _, err := t.exec(sqlSetRole, d.role, d.was.ID); err != nil {
			return false, err
		}
	}
	weighs := d.rest != nil && d.rest.args
	if weighs { // while the args are there
		if err := t.weigh(d.was, -1); err != nil {
			return false, err
		}
	}
	found, err = t.write(d)
	switch {
	case err != nil || !found:
		return false, err
	case d.change >= setUntil:
		t.noted(d)
		return true, nil
	}
	was, r := d.was, d.row
	moves, unready := d.rest != nil && d.rest.moves, d.was.State == ready && d.row.State != ready
	if unready && !moves {
		if err := t.calm(r.ID); err != nil {
			return false, err
		}
	}
	if !weighs && (was.State.waits() != r.State.waits() || was.Lane != r.Lane) {
		weighs = true
		if err := t.weigh(was, -1); err != nil {
			return false, err
		}
	}
	if weighs {
		if err := t.weigh(&r.facts, 1); err != nil {
			return false, err
		}
	}
	if r.Policy != was.Policy {
		t.refer(was.Policy, -1)
		t.refer(r.Policy, 1)
		t.tidy = t.tidy || was.Policy != 0
	}
	t.move(was.Lane, was.State, r.Lane, r.State)
	t.transferred(was, r)
	t.tell(d)
	switch {
	case r.State == running:
		return true, t.runs(d)
	case was.State == running:
		return true, t.waitsAgain(d)
	case moves:
		err = t.placed(r.ID, d.rest.was, d.rest.is)
		if unready && err == nil { // unless it has a place at once
			err = t.calm(r.ID)
		}
	}
	return true, err
}

// tell tells workers, after the commit, of a job that comes to wait.
func (t *tx) tell(d *delta) {
	r := d.row
	if d.change == setRow && r.Queue == storage.BulkQueue { // few look at it
		t.meta.gen++
		t.notifyAll(storage.Event{Schedules: true})
	}
	var e storage.Event
	switch {
	case r.State == ready && d.change == setRow: // it may be leased before the commit
		t.fresh.add(r.ID, storage.Lane{Queue: r.Queue, Kind: r.Kind})
		return
	case r.State == scheduled:
		e.Due = fromMicros(r.DueAt)
	case r.State != ready:
		return
	}
	switch d.tell {
	case everybody:
		t.notifyAll(e)
	case ownWorkers:
		t.notify(e)
	}
}

// runs is the part of apply for a job that begins to run.
func (t *tx) runs(d *delta) error {
	r := d.row
	if r.option != nil && d.role != rules.NoRole {
		r.option.Role = d.role
	}
	r.together = !r.UniqueKey.Valid
	t.stmts.leased = append(t.stmts.leased, r.facts)
	if d.outOfTurn {
		t.stmts.lineups.stir(r.Lane)
	}
	if d.change != setRow && r.option != nil && r.option.StartBy|r.option.Deadline != 0 {
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
		t.notifyAll(storage.Event{})
	case setStop:
		t.meta.asked++ // so that the holder looks, in whatever process it is
		t.notifyAll(storage.Event{Cancel: true})
	case setKept:
		t.store.self.forgetFacts(d.was.Token)
	}
}

// applyMany is apply for many jobs.
func (t *tx) applyMany(d *delta) error {
	switch d.change {
	case setMoved:
		return t.moved(d.moved)
	case setHolders:
		_, err := t.exec(sqlMoveLeases, d.low, d.high)
		return err
	case setEarly:
		return t.shift(d)
	}
	var lane int64
	var members []facts // not d.jobs: d would escape to the heap
	text, args := sqlPromote, []any{d.at}
	if d.high > 0 && d.high < promoteStep {
		text, args = sqlPromoteFew, append(args, d.high)
	}
	err := t.each(text, args, []any{&lane}, func() {
		if lane < 0 {
			members = append(members, facts{ID: -lane})
			return
		}
		t.move(lane, scheduled, lane, ready)
	})
	d.jobs = members
	for i := range members {
		f := &members[i]
		if err == nil {
			err = t.row(sqlLaneOfJob, []any{f.ID}, &f.Lane, &f.Options)
		}
		if err == nil {
			t.move(f.Lane, scheduled, f.Lane, ready)
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
		t.notifyAll(storage.Event{Due: fromMicros(first)})
	}
	return err
}

// departure says where a job goes that leaves its table.
type departure struct {
	// state is done, cancelled, expired or dead for a copy in the table of that state. It is
	// ready for a dead job that has entered errand_job again, and 0 for one that goes
	// for good, with all that belongs to it.
	state stateCode
	at    int64
	error string

	keep     *storage.Retention // of a finished job, as the next two
	purgeAt  int64
	unkept   stateCode      // the state of one that is not kept
	reason   string         // of a dead one, as the next
	inEffect int64          // the policy
	cause    int64          // in errand_cause
	effect   storage.Effect // on the counters
}

// depart is apply for a job that leaves its table. Of a finished job the caller has
// deleted the row.
func (t *tx) depart(d *delta) (found bool, err error) {
	f, e := d.was, d.end
	to, from := e.state, f.State
	if to == ready {
		to = 0
	}
	inRun := t.endInRun(f, e)
	if !inRun {
		if found, err := t.remove(f, e); !found || err != nil {
			return false, err
		}
	}
	if from == ready {
		if err := t.calm(f.ID); err != nil {
			return false, err
		}
	}
	switch {
	case from == dead:
		var cause int64
		if err := t.row(sqlDropDead, []any{f.ID}, &cause); err != nil {
			return false, err
		}
		t.deaths.leave(cause)
		t.refer(e.inEffect, -1)
	case from.live() && f.UniqueKey.Valid:
		if err := t.releaseKey(f, e); err != nil {
			return false, err
		}
	}
	if err := t.weigh(f, -1); err != nil {
		return false, err
	}
	group, err := t.quit(f, e)
	if err != nil {
		return false, err
	}
	if from.live() {
		if err := t.endOption(f, to); err != nil {
			return false, err
		}
	}
	t.move(f.Lane, from, f.Lane, to)
	if e.state == done || e.unkept == done {
		t.succeeded(f.Lane, f.Token)
		t.lasts.success(f.Lane, e.at)
	}
	switch to {
	case dead:
		t.deaths.come(e.cause, e.at)
		t.died = append(t.died, death{f.Lane, f.ID})
		t.lasts.failure(f.Lane, f.ID, e.at)
		t.refer(e.inEffect, 1)
	case 0:
		t.refer(f.Policy, -1)
		t.gone(f.Lane, e.unkept)
	}
	if e.state == 0 {
		if err := t.deleteBelongings(f, inRun); err != nil {
			return false, err
		}
	}
	return true, t.regroup(group)
}
