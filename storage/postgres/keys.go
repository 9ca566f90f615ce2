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
	sqlOverWindows = `SELECT key FROM errand_unique WHERE slot = 0 AND until > 0 AND until < 9223372036854775807 AND until <= $1 ORDER BY until LIMIT 500`
	// A statement sees what was there when it began, so that who has the key is read by the next one.
	sqlLockWindows = `SELECT key FROM errand_unique WHERE slot = 0 AND key = ANY($1::bytea[]) AND until > 0 AND until <= $2 FOR UPDATE SKIP LOCKED`
	sqlNextWindow  = `SELECT coalesce((SELECT until FROM errand_unique WHERE slot = 0 AND until > 0 AND until < 9223372036854775807 ORDER BY until LIMIT 1), 0)`
	sqlBeside      = `SELECT id, token, coalesce(unique_key, ''::bytea), coalesce(group_key, '') FROM errand_job WHERE id = ANY($1::bigint[])`
)

// scanKey reads a row of sqlKeys.
func (sc *scopes) scanKey(in pgx.CollectableRow) error {
	var name []byte
	var slot int16
	var is rules.Keeper
	var live, dated, kept bool
	if err := in.Scan(&name, &slot, &is.Job, &is.Salt, &is.Created, &is.Until, &live, &dated, &kept); err != nil {
		return err
	}
	sc.needsKey(string(name))
	k := sc.keys[string(name)]
	if k.Were[slot] = is; slot == 1 {
		k.Behind, k.Dated = is, dated
	} else {
		k.Holder, k.Live, k.Kept = is, live, kept
	}
	return nil
}

// Key implements [rules.Rows].
func (sc *scopes) Key(name string, c *storage.Conflict) (*rules.Key, error) {
	k := sc.keys[name]
	if k == nil {
		return nil, fmt.Errorf("%w: key %.80q", rules.ErrNotLoaded, name)
	}
	k.Waiting = nil
	if r := sc.rows[k.Behind.Job]; r != nil { // it may have changed
		k.Dated = r.state == blocked && !r.wasDue
	}
	if !c.Replaces() {
		return k, nil
	}
	if _, ok := sc.conflicts[name]; !ok {
		return nil, fmt.Errorf("%w: who waits for key %.80q", rules.ErrNotLoaded, name)
	}
	if r := sc.rows[k.Last().Job]; r != nil {
		k.Waiting = r.waiting()
	}
	return k, nil
}

// waiting returns r as the rules see it.
func (r *row) waiting() *rules.Waiting {
	args := r.args
	if r.by != nil {
		args = r.by.Args
	}
	return &rules.Waiting{State: states[r.state], Created: r.created, Due: r.due, Counters: r.Counters, Args: args}
}

// enter decides about a new job at an index of its call, and adds it to e if it is to be inserted.
func (sc *scopes) enter(e *entering, i int, j *storage.NewJob) (storage.Enqueued, error) {
	r := &row{created: micros(sc.now), group: rules.GroupName(j.Queue, j.Group), id: sc.next(), salt: newSalt(), priority: int16(j.Priority), args: j.Args}
	state, due, _ := rules.DueTime(sc.now, j)
	r.state, r.due = codeOf(state), due
	if j.Unique != "" {
		c, err := sc.claim(r, j)
		if err != nil {
			return storage.Enqueued{}, err
		}
		if c.Verdict < rules.Follow {
			return c.Answer(i, sc.first)
		}
	}
	r.lane = sc.s.lanes.number(storage.Lane{Queue: j.Queue, Kind: j.Kind})
	sc.rows[r.id], sc.changed = r, true
	e.rows = append(e.rows, r)
	e.add(r.lane, r.salt, r.created, j)
	if r.group != "" {
		return storage.Enqueued{ID: r.jobID()}, sc.join(r)
	}
	return storage.Enqueued{ID: r.jobID()}, nil
}

// claim has a new job have its unique key, or says whose it is. It has a job that waits do what
// the new one is to do.
func (sc *scopes) claim(r *row, j *storage.NewJob) (rules.Claim, error) {
	var d rules.Delta
	c, err := rules.ClaimKey(sc, sc.now, j, rules.Keeper{Job: r.id, Created: r.created, Salt: uint32(r.salt)}, r.due, &d)
	if err != nil {
		return c, err
	}
	sc.changed = sc.changed || len(d.Keys) > 0
	if c.Due != 0 {
		r.state, r.due = scheduled, c.Due
	}
	switch c.Verdict {
	case rules.Follow:
		r.block()
	case rules.Change:
		return c, sc.replace(sc.rows[c.ID.Key()], &c, j)
	}
	return c, nil
}

// replace has a job that waits do what j is to do.
func (sc *scopes) replace(r *row, c *rules.Claim, j *storage.NewJob) error {
	was := r.member()
	r.by, r.priority, sc.changed = j, int16(j.Priority), true
	r.Counters = c.Is.Counters
	if !c.Put {
		return nil
	}
	from := states[r.state]
	r.state, r.due, r.moved = codeOf(c.Is.State), c.Is.Due, true
	if r.group == "" && from != storage.Blocked {
		return nil
	}
	as := sc.rule(r.group).Changed(from, states[r.state], r.role, false, true)
	if as == rules.Waits {
		r.block()
	}
	if r.group == "" {
		return nil
	}
	r.role = as
	return sc.note(r.group, was.Role, r)
}

// release has a job that ends leave its unique key. kept says whether it stays in a table.
func (sc *scopes) release(name string, job int64, kept bool) error {
	var d rules.Delta
	err := rules.ReleaseKey(sc, name, job, micros(sc.now), kept, &d)
	for _, l := range d.LetIn {
		sc.letIn(l.Job, never, l.As)
	}
	return err
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
		for slot, is := range [2]rules.Keeper{k.Holder, k.Behind} {
			switch {
			case is.Job == 0 && (slot == 0 || k.Were[slot].Job != 0):
				drop, dropSlot = append(drop, key), append(dropSlot, int16(slot))
			case is != k.Were[slot] && is.Job != 0:
				write, slots = append(write, key), append(slots, int16(slot))
				jobs, created, until, salt = append(jobs, is.Job), append(created, is.Created), append(until, is.Until), append(salt, int32(is.Salt))
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
	err = s.inTransaction(ctx, sc, func(b *pgx.Batch) {
		sc.reset()
		sc.load(b)
	}, func() (*pgx.Batch, error) {
		out, refused = make([]storage.Enqueued, len(jobs)), nil
		var e entering
		for i := range jobs {
			var err error
			if out[i], err = sc.enter(&e, i, &jobs[i]); errors.Is(err, storage.ErrDuplicate) {
				refused = err
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
	err = s.inTransaction(ctx, sc, func(b *pgx.Batch) {
		sc.reset()
		sc.load(b)
	}, func() (*pgx.Batch, error) {
		k := sc.keys[key]
		found, holder = k.Holder.Job != 0, storage.ID{}
		if !found {
			return nil, nil
		}
		k.EndTime()
		holder = k.Holder.ID()
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
	var over, locked [][]byte
	names := func(to *[][]byte) func(pgx.CollectableRow) error {
		*to = [][]byte{}
		return func(row pgx.CollectableRow) error {
			var name []byte
			err := row.Scan(&name)
			*to = append(*to, name)
			return err
		}
	}
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		first(b)
		each(b, names(&over), sqlOverWindows, micros(now))
		return part(ctx, c, b)
	})
	if err != nil || next == 0 || next > micros(now) {
		return next, err
	}
	sc := s.scopes(now)
	err = s.inTransaction(ctx, sc, func(b *pgx.Batch) {
		clear(sc.keys)
		each(b, names(&locked), sqlLockWindows, over, micros(now))
		each(b, sc.scanKey, sqlKeys, over)
	}, func() (*pgx.Batch, error) {
		all := sc.keys
		sc.keys = map[string]*rules.Key{}
		for _, name := range locked {
			if k := all[string(name)]; k != nil {
				k.EndTime()
				sc.keys[string(name)] = k
			}
		}
		b := &pgx.Batch{}
		sc.writeKeys(b)
		first(b)
		return b, nil
	})
	return next, err
}

// beside is what a job has that few jobs have.
type beside struct{ key, group string }

func (b beside) plain() bool { return b == beside{} }

// besidesLimit is how many leases besides has at most, and as many older ones.
const besidesLimit = 1 << 15

// besides are leases of the Store, by their tokens, with what their jobs have. What it lacks is
// read from the table. It forgets the oldest, as it is not told of all that have ended: a
// transaction that has leased may be rolled back, and others may take a lease.
type besides struct {
	mu        sync.Mutex
	of, older map[int64]beside
}

func (h *besides) note(token int64, b beside) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil || len(h.of) >= besidesLimit {
		h.of, h.older = map[int64]beside{}, h.of
	}
	h.of[token] = b
}

func (h *besides) get(token int64) (b beside, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b, ok = h.of[token]; !ok {
		b, ok = h.older[token]
	}
	return b, ok
}

func (h *besides) forget(token int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, token)
	delete(h.older, token)
}
