package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// randomSalt returns the random bits of the ID of a new job. Tests replace it.
var randomSalt = rand.Uint32

// Enqueue implements [storage.Store].
func (s *Store) Enqueue(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	var call struct { // one of them, on the heap
		request
		added   []storage.Enqueued
		refused error
	}
	call.work, call.run = workOf(jobs), func(t *tx) (err error) {
		t.fresh.single = len(jobs) == 1
		call.added, call.refused, err = t.enqueueOrRefuse(now, jobs)
		t.fresh.single = false
		if err != nil || call.refused != nil {
			return err
		}
		return cmp.Or(t.handOver(now), t.didJobs(ctx, newOf(call.added)))
	}
	err := s.submit(ctx, &call.request)
	if err = cmp.Or(err, call.refused); err != nil {
		return nil, err
	}
	return call.added, nil
}

// workOf returns how much work it is to insert jobs.
func workOf(jobs []storage.NewJob) int {
	bytes, rows := 0, len(jobs)
	for i := range jobs {
		j := &jobs[i]
		bytes += len(j.Args) + len(j.Headers) + len(j.Policy)
		rows += len(j.Tags)
	}
	return rows + bytes/jobBytes
}

// EnqueueTx implements [storage.TxEnqueuer].
func (s *Store) EnqueueTx(ctx context.Context, in any, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	if len(jobs) == 0 {
		return nil, s.idle(ctx)
	}
	if err := s.intake(); err != nil {
		return nil, s.oursIn(in, err)
	}
	var refused error
	err = s.inside(ctx, in, true, len(jobs) > 1, func(t *tx) (err error) {
		if refused, err = s.reserveInTx(t, workOf(jobs)); refused != nil || err != nil {
			return err
		}
		out, refused, err = t.enqueueOrRefuse(now, jobs)
		return cmp.Or(err, t.didJobs(ctx, newOf(out)))
	})
	if err == nil {
		err = s.oursIn(in, refused)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// enqueue inserts jobs, taking their keys from the counters, and makes room for them. A
// room that is nil has room for all.
func (t *tx) enqueue(now time.Time, jobs []storage.NewJob, m *room) ([]storage.Enqueued, error) {
	out := make([]storage.Enqueued, len(jobs))
	created, first := t.seen(now), t.meta.nextJob
	t.deciding.tx = nil // what is known of groups need not be right any more
	for i := range jobs {
		j := &jobs[i]
		r := jobRow{
			Queue: j.Queue, Kind: j.Kind, Priority: j.Priority, Salt: randomSalt() & storage.MaxSalt, CreatedAt: created,
			Timeout: j.Timeout.Microseconds(), Doc: j.Policy, Headers: j.Headers, Args: j.Args,
		}
		r.ID, r.UniqueKey = t.meta.nextJob, sql.NullString{String: j.Unique, Valid: j.Unique != ""}
		r.markTags(j.Tags)
		if r.schedule = t.fresh.schedule; r.schedule != "" {
			r.Options |= hasOrigin
		}
		r.Beside = len(j.Args)+len(j.Headers) > inlineLimit
		r.State, r.DueAt, r.Delay = dueTime(now, j)
		if r.ID > storage.MaxKey {
			return nil, fmt.Errorf("errand: job key %d: must be at most %d", r.ID, int64(storage.MaxKey))
		}
		if m != nil {
			if err := m.make(&r); err != nil {
				return nil, err
			}
		}
		var err error
		if r.option, err = t.newOption(now, &r, j); err != nil {
			return nil, err
		}
		if r.option != nil {
			r.Options |= hasOption
		}
		claim, err := t.enter(now, &r, j)
		if err != nil {
			return nil, err
		}
		if claim.Admission < rules.Follow {
			if out[i], err = claim.Answer(i, first); err != nil {
				return nil, err
			}
			m.keep(out[i].ID)
			continue
		}
		t.meta.nextJob++
		out[i].ID = r.id()
		if err := t.insertTags(r.ID, j.Tags); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dueTime is [rules.DueTime] for the columns of a job.
func dueTime(now time.Time, j *storage.NewJob) (code stateCode, at, delay int64) {
	state, at, delay := rules.DueTime(now, j)
	return codeOf(state), at, delay
}

// enter puts a job into errand_job, as scheduled, ready or blocked, unless its Claim says
// that it does not get its unique key. A ready job of a call that adds it alone is leased at
// once if a worker of this process waits for it, which saves the page on which it would have
// been ready.
func (t *tx) enter(now time.Time, r *jobRow, j *storage.NewJob) (c rules.Claim, err error) {
	c.Admission = rules.Succeed
	if r.UniqueKey.Valid {
		if c, err = t.claimKey(now, r, j); err != nil || c.Admission < rules.Follow {
			return c, err
		}
	}
	return c, t.admit(now, r)
}

// admit is enter for a job that has its unique key.
func (t *tx) admit(now time.Time, r *jobRow) (err error) {
	var member *rules.Row
	others := false // of its group are decided about, and are to be written
	if r.option != nil && r.option.GroupKey != "" {
		if member, others, err = t.join(r); err != nil {
			return err
		}
	}
	var to *handoff
	if t.fresh.single && r.State == ready && !others { // else one of them may be ahead of it
		if to, err = t.receiver(now, r); err != nil {
			return err
		}
	}
	if r.Lane, err = t.lane(r.Queue, r.Kind); err != nil {
		return err
	}
	if member != nil {
		member.Was.Lane, member.Is.Lane = r.Lane, r.Lane
	}
	if r.Doc != nil {
		if r.Policy, err = t.policy(r.Doc); err != nil {
			return err
		}
	}
	if to != nil {
		r.State, r.Token, r.Attempt, r.Instance = running, t.token(), 1, to.holder
		r.Until = micros(now.Add(to.offer.lease))
	}
	if _, err = t.apply(&delta{change: setRow, was: &facts{}, row: r}); err != nil {
		return err
	}
	switch {
	case to != nil:
		return t.handTo(to, r)
	case others:
		return t.writeChanges()
	}
	return nil
}
