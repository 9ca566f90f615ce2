package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

const (
	sqlLive = `SELECT state, token, lane, salt, created_at, coalesce(unique_key, ''::bytea), coalesce(group_key, ''), coalesce(role, 0)
FROM errand_job WHERE id = $1 FOR UPDATE`
	sqlEnded = `SELECT state, 0::bigint, lane, salt, created_at, ''::bytea, '', 0::smallint FROM errand_finished WHERE id = $1
UNION ALL SELECT 6, 0, lane, salt, created_at, '', '', 0 FROM errand_dead WHERE id = $1`
	sqlAsk = `UPDATE errand_job SET cancelling = true WHERE id = $1`
)

// cancelling is a Cancel under way.
type cancelling struct {
	s      *Store
	now    time.Time
	id     storage.ID
	scopes *scopes
	later  bool // it was read what the scopes are, and no more

	state int16 // 0 if there is no such job
	token int64
	lane  int32
	role  rules.Role
	beside
}

// Cancel implements [storage.Store]: two round trips, and two more if the job has a unique key
// or a group, which are to be locked before the job.
func (s *Store) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (state storage.State, err error) {
	if err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.leave()
	c := &cancelling{s: s, now: now, id: id, scopes: s.scopes(now, 0)}
	run := func(ctx context.Context, conn *pgx.Conn) error {
		if err := c.read(ctx, conn); err != nil {
			return err
		}
		state = ""
		if c.later = !c.plain() && c.scopes.need.None() && c.state != 0; c.later {
			c.scopes.leaves(c.beside)
		}
		if c.later || c.state == 0 {
			return part(ctx, conn, end())
		}
		b := &pgx.Batch{}
		var err error
		if state, err = c.write(b, keep); err != nil {
			return err
		}
		b.Queue(sqlCommit)
		return s.commit(ctx, conn, b)
	}
	if err = s.runTold(ctx, run); err == nil && c.later {
		err = s.inLine(ctx, c.scopes, run)
	}
	if err == nil && state == "" {
		err = storage.ErrNotFound
	}
	return state, err
}

// read locks and reads the job.
func (c *cancelling) read(ctx context.Context, conn *pgx.Conn) error {
	c.state = 0
	var of storage.ID
	scan := func(row pgx.CollectableRow) error {
		var salt int32
		var created int64
		var key []byte
		err := row.Scan(&c.state, &c.token, &c.lane, &salt, &created, &key, &c.group, &c.role)
		of, c.key = jobID(created, salt, c.id.Key()), string(key)
		return err
	}
	b := &pgx.Batch{}
	b.Queue(sqlBegin)
	c.s.readNew(b)
	c.scopes.load(b)
	each(b, scan, sqlLive, c.id.Key())
	each(b, scan, sqlEnded, c.id.Key())
	err := part(ctx, conn, b)
	if of != c.id {
		c.state = 0
	}
	return err
}

// write queues what becomes of the job, and returns its state then.
func (c *cancelling) write(b *pgx.Batch, keep storage.Retention) (storage.State, error) {
	switch c.state {
	case running:
		b.Queue(sqlAsk, c.id.Key())
	case scheduled, ready, blocked:
		name := c.s.lanes.name(c.lane)
		keys, tokens := []int64{c.id.Key()}, []int64{c.token}
		d := keep.Of(name.Queue, name.Kind)
		if _, err := c.scopes.tx.End(c.id.Key(), c.key, c.group, c.role, storage.Cancelled, d > 0); err != nil {
			return "", err
		}
		if err := c.scopes.tx.SettleAll(); err != nil {
			return "", err
		}
		if d > 0 {
			b.Queue(sqlKeep, keys, tokens, []int16{cancelled}, []int32{0}, []int64{micros(c.now.Add(d))}, [][]byte{{}}, micros(c.now), c.state, 1, 0, 0, 0)
		} else {
			b.Queue(sqlDelete, keys, tokens, c.state, 0, 0, 0)
		}
		c.state = cancelled
	}
	c.scopes.decided(b, c.scopes.tx.Changes())
	return states[c.state], nil
}

// end returns the end of a transaction that has written nothing.
func end() *pgx.Batch {
	b := &pgx.Batch{}
	b.Queue(sqlRollback)
	return b
}
