package postgres

import (
	"context"
	"errors"
	"slices"
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

// enqueueBeside is Enqueue for jobs of which some have unique keys or groups. It is a
// transaction of its own: it waits for whoever has one of these, and nobody else does.
func (s *Store) enqueueBeside(ctx context.Context, now time.Time, jobs []storage.NewJob) (out []storage.Enqueued, err error) {
	dec := s.deciding(now, 0)
	dec.need.Enter(jobs)
	var refused error
	err = s.inTransaction(ctx, dec, dec.load, func() (*pgx.Batch, error) {
		out, refused = make([]storage.Enqueued, len(jobs)), nil
		for i := range jobs {
			var err error
			if out[i], err = dec.enter(i, &jobs[i]); errors.Is(err, storage.ErrDuplicate) {
				refused = err
				return nil, nil
			} else if err != nil {
				return nil, err
			}
		}
		return dec.changes(), nil
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
	dec := s.deciding(time.Time{}, 0)
	dec.need.Keys = []rules.NeedKey{{Name: key}}
	found := false
	err = s.inTransaction(ctx, dec, dec.load, func() (_ *pgx.Batch, err error) {
		if found, holder, err = dec.tx.EndTime(key); err != nil || !found {
			return nil, err
		}
		return dec.changes(), nil
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
	var over [][]byte
	var locked map[string]bool
	name := func(to func(name []byte)) func(pgx.CollectableRow) error {
		return func(row pgx.CollectableRow) error {
			var name []byte
			err := row.Scan(&name)
			to(name)
			return err
		}
	}
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		first(b)
		over = [][]byte{}
		each(b, name(func(name []byte) { over = append(over, name) }), sqlOverWindows, micros(now))
		return part(ctx, c, b)
	})
	if err != nil || next == 0 || next > micros(now) {
		return next, err
	}
	dec := s.deciding(now, 0)
	err = s.inTransaction(ctx, dec, func(b *pgx.Batch) {
		dec.tx.Reset(rules.Need{})
		locked = map[string]bool{}
		each(b, name(func(name []byte) { locked[string(name)] = true }), sqlLockWindows, over, micros(now))
		each(b, dec.scanKey, sqlKeys, over, nil, nil)
	}, func() (*pgx.Batch, error) {
		for name := range locked {
			if _, _, err := dec.tx.EndTime(name); err != nil {
				return nil, err
			}
		}
		c := dec.tx.Changes()
		b := &pgx.Batch{}
		writeKeys(b, slices.DeleteFunc(c.Keys, func(k *rules.Key) bool { return !locked[k.Name] }))
		first(b)
		return b, nil
	})
	return next, err
}

// beside is what a job has that few jobs have.
type beside struct{ key, group string }

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
