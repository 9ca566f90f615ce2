package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlOverWindows = `SELECT key FROM errand_unique WHERE slot = 0 AND until > 0 AND until < 9223372036854775807 AND until <= $1
ORDER BY until LIMIT 500 FOR UPDATE SKIP LOCKED`
	sqlNextWindow = `SELECT coalesce((SELECT until FROM errand_unique WHERE slot = 0 AND until > 0 AND until < 9223372036854775807 ORDER BY until LIMIT 1), 0)`
	// The keys are locked.
	sqlEndWindows = `UPDATE errand_unique u SET until = 0 WHERE key = ANY($1::bytea[]) AND slot = 0 AND EXISTS (SELECT FROM errand_job j WHERE j.id = u.job)`
	sqlFreeKeys   = `DELETE FROM errand_unique u WHERE key = ANY($1::bytea[]) AND slot = 0 AND NOT EXISTS (SELECT FROM errand_job j WHERE j.id = u.job)`
	sqlBeside     = `SELECT id, token, coalesce(unique_key, ''::bytea), coalesce(group_key, '') FROM errand_job WHERE id = ANY($1::bigint[])`
)

// who is a job in a row of errand_unique; the zero value is nobody.
type who struct {
	job, created, until int64
	salt                int32
}

func (w *who) id() storage.ID {
	if w.job == 0 {
		return storage.ID{}
	}
	return jobID(w.created, w.salt, w.job)
}

// uniqueKey is a unique key as a transaction has read it, and as its decisions leave it.
type uniqueKey struct {
	rules.Key
	name           string
	holder, behind who
	kept           bool // whether a holder that has ended is in a table
	were           [2]who
}

func (sc *scopes) scanKey(in pgx.CollectableRow) error {
	var key []byte
	var slot int16
	var w who
	var live, kept bool
	if err := in.Scan(&key, &slot, &w.job, &w.salt, &w.created, &w.until, &live, &kept); err != nil {
		return err
	}
	k := sc.keys[string(key)]
	if k.were[slot] = w; slot == 1 {
		k.behind = w
		return nil
	}
	k.holder, k.kept = w, kept
	k.Created, k.Until, k.Live = w.created, w.until, live
	return nil
}

// waiter returns the job behind the holder, or else the holder, if that is live and was read.
func (sc *scopes) waiter(k *uniqueKey) *row {
	if k.behind.job != 0 {
		return sc.rows[k.behind.job]
	}
	return sc.rows[k.holder.job]
}

// read has the rule know the job that waits.
func (sc *scopes) read(k *uniqueKey) {
	k.Waiting = nil
	if r := sc.waiter(k); r != nil {
		k.Waiting = r.waiting()
	}
}

// waiting returns r as the rules see it.
func (r *row) waiting() *rules.Waiting {
	args := r.args
	if r.by != nil {
		args = r.by.Args
	}
	return &rules.Waiting{State: states[r.state], Created: r.created, Due: r.due, Counters: r.Counters, Args: args}
}

// enter decides about a new job, and adds it to e if it is to be inserted.
func (sc *scopes) enter(e *entering, j *storage.NewJob) (storage.Enqueued, error) {
	r := &row{created: micros(sc.now), group: groupKey(j.Queue, j.Group)}
	r.state, r.due = dueTime(sc.now, j)
	if j.Unique != "" {
		if answer, err := sc.claim(r, j); answer.Duplicate || err != nil {
			return answer, err
		}
	}
	r.lane = sc.s.lanes.number(storage.Lane{Queue: j.Queue, Kind: j.Kind})
	if r.id == 0 {
		r.id, r.salt = sc.next(), newSalt()
	}
	sc.rows[r.id], sc.changed = r, true
	e.rows = append(e.rows, r)
	e.add(r.lane, r.salt, r.created, j)
	if r.group != "" {
		return storage.Enqueued{ID: r.jobID()}, sc.join(r)
	}
	return storage.Enqueued{ID: r.jobID()}, nil
}

// claim has a new job have its unique key, or says whose it is.
func (sc *scopes) claim(r *row, j *storage.NewJob) (answer storage.Enqueued, err error) {
	k := sc.keys[j.Unique]
	held := k.holder.job != 0
	if held {
		sc.read(k)
	}
	if j.Conflict != nil && j.Conflict.Merge != nil {
		of := &k.Key
		if !held {
			of = nil
		}
		if answer.Unmerged = of.Unmerged(j.Conflict); answer.Unmerged != nil {
			answer.ID, answer.Duplicate = k.holder.id(), true
			answer.Gone = held && sc.gone(k)
			return answer, nil
		}
	}
	verdict := rules.Succeed
	if held && k.Renew(micros(sc.now)) {
		k.holder.until, sc.changed = k.Until, true
	}
	if held && !k.Over(micros(sc.now)) {
		verdict = k.Conflict(j)
		switch verdict {
		case rules.Duplicate:
			return storage.Enqueued{ID: k.holder.id(), Duplicate: true, Gone: sc.gone(k)}, nil
		case rules.Refuse:
			d := &storage.DuplicateError{ID: k.holder.id(), Gone: sc.gone(k)}
			if sc.first != 0 && k.holder.job >= sc.first { // of the same call, and so never there
				d.ID, d.Gone = storage.ID{}, false
			}
			return answer, d
		case rules.Change:
			w := sc.waiter(k)
			answer = storage.Enqueued{ID: w.jobID(), Duplicate: true, Replaced: true}
			return answer, sc.replace(k, w, j)
		}
		if k.Until > r.due {
			r.state, r.due = scheduled, k.Until
		}
	}
	until := rules.Until(j, r.created, r.due)
	r.id, r.salt = sc.next(), newSalt()
	w := who{r.id, r.created, until, r.salt}
	if verdict == rules.Follow {
		r.block()
		k.behind = w
	} else {
		k.holder, k.kept = w, false
	}
	k.Enter(verdict, until, *r.waiting())
	return storage.Enqueued{}, nil
}

// gone reports whether a job that has a key is in no table.
func (sc *scopes) gone(k *uniqueKey) bool { return k.Until > micros(sc.now) && !k.Live && !k.kept }

// replace has a job that waits do what j is to do.
func (sc *scopes) replace(k *uniqueKey, r *row, j *storage.NewJob) error {
	is, put := k.Waiting.Replaced(sc.now, j.Conflict)
	was := r.member()
	r.by, r.priority, sc.changed = j, int16(j.Priority), true
	r.Counters = is.Counters
	if put {
		from := states[r.state]
		r.due, r.moved = is.Due, true
		if r.state = ready; is.State == storage.Scheduled {
			r.state = scheduled
		}
		if r.group != "" || from == storage.Blocked {
			rule := rules.GroupRuleOf(sc.set[storage.Lane{Queue: queueOf(r.group)}])
			as := rule.Changed(from, states[r.state], r.role, false, true)
			if as == rules.Waits {
				r.block()
			}
			if r.group != "" {
				r.role = as
				if err := sc.note(r.group, was.Role, r); err != nil {
					return err
				}
			}
		}
	}
	k.Enter(rules.Change, 0, *r.waiting())
	return nil
}

// release frees the unique key of a job that ends, or hands it to the job behind it. kept says
// whether the job stays in a table.
func (sc *scopes) release(name string, job int64, kept bool) error {
	k := sc.keys[name]
	if k == nil {
		return fmt.Errorf("%w: key %.80q", rules.ErrNotLoaded, name)
	}
	switch {
	case k.behind.job == job:
		k.behind = who{}
		return nil
	case k.holder.job != job:
		return nil
	}
	next := k.behind
	heir := k.Ended(micros(sc.now), next.job != 0)
	k.Leave(heir, next.created, next.until)
	switch heir {
	case rules.Nobody:
		k.holder = who{}
	case rules.Holder:
		k.kept = kept
	case rules.Follower:
		k.holder, k.behind, k.kept = next, who{}, false
		sc.letIn(next.job, never, rules.NoRole)
	}
	return nil
}

// writeKeys queues the keys whose rows are others than were read. One that nobody has goes,
// also if it was there only as a lock.
func (sc *scopes) writeKeys(b *pgx.Batch) {
	var drop, write [][]byte
	var dropSlot, slots []int16
	var jobs, created, until []int64
	var salt []int32
	for _, key := range sorts(func(yield func(string) bool) {
		for name := range sc.keys {
			yield(name)
		}
	}) {
		k := sc.keys[string(key)]
		for slot, w := range [2]who{k.holder, k.behind} {
			switch {
			case w.job == 0 && (slot == 0 || k.were[slot].job != 0):
				drop, dropSlot = append(drop, key), append(dropSlot, int16(slot))
			case w != k.were[slot] && w.job != 0:
				write, slots = append(write, key), append(slots, int16(slot))
				jobs, created, until, salt = append(jobs, w.job), append(created, w.created), append(until, w.until), append(salt, w.salt)
			}
		}
	}
	if len(drop) > 0 {
		b.Queue(sqlDropKeys, drop, dropSlot)
	}
	if len(write) > 0 {
		b.Queue(sqlWriteKeys, write, slots, jobs, created, until, salt)
	}
}

// enqueueBeside is Enqueue for jobs of which some have unique keys or groups. It is a
// transaction of its own: it waits for whoever has one of these, and nobody else does.
func (s *Store) enqueueBeside(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	sc := s.scopes(now)
	sc.needs(jobs)
	var refused error
	err = s.inTransaction(ctx, func(b *pgx.Batch) {
		sc.reset()
		sc.load(b)
	}, func() (*pgx.Batch, error) {
		out, refused = make([]storage.Enqueued, len(jobs)), nil
		var e entering
		for i := range jobs {
			var err error
			var held *storage.DuplicateError
			if out[i], err = sc.enter(&e, &jobs[i]); errors.As(err, &held) {
				held.Index, refused = i, held
				return nil, nil
			} else if err != nil {
				return nil, err
			}
		}
		if !sc.changed {
			return nil, nil
		}
		b, d := &pgx.Batch{}, sums{}
		sc.write(b, d)
		e.insert(b, d)
		s.count(b, d)
		return b, nil
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ReleaseUnique implements [storage.Store].
func (s *Store) ReleaseUnique(ctx context.Context, key string) (holder storage.ID, err error) {
	if err := s.enter(ctx); err != nil {
		return holder, err
	}
	defer s.leave()
	sc := s.scopes(time.Time{})
	sc.needsKey(key)
	found := false
	err = s.inTransaction(ctx, func(b *pgx.Batch) {
		sc.reset()
		sc.load(b)
	}, func() (*pgx.Batch, error) {
		k := sc.keys[key]
		found, holder = k.holder.job != 0, storage.ID{}
		if !found {
			return nil, nil
		}
		if k.Live {
			holder = k.holder.id()
			k.holder.until = 0
		} else {
			k.holder = who{}
		}
		b := &pgx.Batch{}
		sc.write(b, sums{})
		return b, nil
	})
	if err == nil && !found {
		err = storage.ErrNotFound
	}
	return holder, err
}

// forgetWindows ends the times for which keys were to be held that are over, and frees the keys
// that nothing else holds. It returns when the next is over, 0 if there is none.
func (s *Store) forgetWindows(ctx context.Context, now time.Time) (next int64, err error) {
	first := func(b *pgx.Batch) {
		next = micros(now) // if the answer is lost
		each(b, func(row pgx.CollectableRow) error { return row.Scan(&next) }, sqlNextWindow)
	}
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		first(b)
		return part(ctx, c, b)
	})
	if err != nil || next == 0 || next > micros(now) {
		return next, err
	}
	var keys [][]byte
	err = s.inTransaction(ctx, func(b *pgx.Batch) {
		keys = nil
		each(b, func(row pgx.CollectableRow) error {
			var key []byte
			err := row.Scan(&key)
			keys = append(keys, key)
			return err
		}, sqlOverWindows, micros(now))
	}, func() (*pgx.Batch, error) {
		b := &pgx.Batch{}
		b.Queue(sqlEndWindows, keys)
		b.Queue(sqlFreeKeys, keys)
		first(b)
		return b, nil
	})
	return next, err
}

// beside is what a job has that few jobs have.
type beside struct{ key, group string }

func (b beside) plain() bool { return b == beside{} }

// besides are the leases of the Store, by their tokens, with what their jobs have.
type besides struct {
	mu sync.Mutex
	of map[int64]beside
}

func (h *besides) note(token int64, b beside) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = map[int64]beside{}
	}
	h.of[token] = b
}

func (h *besides) get(token int64) (b beside, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok = h.of[token]
	return b, ok
}

func (h *besides) forget(token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, token)
}
