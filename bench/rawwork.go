package main

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/json"
	"time"
)

const (
	sqlRawNext    = `SELECT due_at FROM raw_job WHERE state = 1 ORDER BY due_at LIMIT 1`
	sqlRawPromote = `UPDATE raw_job SET state = 2 WHERE id IN
(SELECT id FROM raw_job WHERE state = 1 AND due_at <= ?1 ORDER BY due_at, id LIMIT 1000)`
	sqlRawHeads = `SELECT id, attempt, args FROM raw_job
WHERE state = 2 AND lane = 1 ORDER BY priority DESC, due_at, id LIMIT 256`
	sqlRawLease = `UPDATE raw_job SET state = 3, token = ?, instance = 1, until = ?, attempt = attempt + 1
WHERE id = ?`
	sqlRawPayload       = `SELECT args FROM raw_payload WHERE job = ?`
	sqlRawDelete        = `DELETE FROM raw_job WHERE id = ? AND token = ? AND state = 3`
	sqlRawDeletePayload = `DELETE FROM raw_payload WHERE job = ?`
	sqlRawDeleteHistory = `DELETE FROM raw_history WHERE job = ?`
	sqlRawReschedule    = `UPDATE raw_job SET state = 1, due_at = ?, instance = 0, until = 0
WHERE id = ? AND token = ? AND state = 3`
	sqlRawHistory = `INSERT INTO raw_history (job, n, at, error) VALUES (?, ?, ?, ?)`
	sqlRawBury    = `INSERT INTO raw_dead (id, lane, priority, due_at, created_at, died_at, error, args)
SELECT id, lane, priority, due_at, created_at, ?3, ?4, args FROM raw_job WHERE id = ?1 AND token = ?2 AND state = 3`
	sqlRawRedrive = `INSERT INTO raw_job (id, lane, state, priority, due_at, created_at, timeout, policy, args)
SELECT id, lane, 2, priority, ?2, created_at, 0, 0, args FROM raw_dead ORDER BY died_at, id LIMIT ?1`
	sqlRawUnbury = `DELETE FROM raw_dead WHERE id IN (SELECT id FROM raw_dead ORDER BY died_at, id LIMIT ?1)`
)

const rawLease = 30 * time.Second

// rawHeld is a leased job of the raw loop.
type rawHeld struct {
	id, token int64
	attempt   int
	args      []byte
	beside    bool
	err       error // what its handler gave
}

// Work does jobs in the loop itself: finish those of the last turn and lease
// the next ones is one transaction. With handlers that do nothing, goroutines
// would only cost.
func (r *raw) Work(ctx context.Context, _ int, handle func(context.Context, *job) error) error {
	var held []rawHeld
	for {
		done := ctx.Err() != nil
		if done && len(held) == 0 {
			return nil
		}
		if err := r.turn(nil, &held, done); err != nil {
			return err
		}
		if len(held) == 0 && !done {
			time.Sleep(time.Millisecond)
		}
		r.handle(ctx, held, handle)
	}
}

func (r *raw) handle(ctx context.Context, held []rawHeld, handle func(context.Context, *job) error) {
	for i := range held {
		j := job{Attempt: held[i].attempt}
		if !r.decode {
			j.Raw = held[i].args
		} else if held[i].err = json.Unmarshal(held[i].args, &j.payload); held[i].err != nil {
			continue
		}
		held[i].err = handle(ctx, &j)
	}
}

// turn is one transaction: it adds jobs, finishes those that are held, and
// holds up to 256 others unless it is the last one.
func (r *raw) turn(add []newJob, held *[]rawHeld, last bool) error {
	return r.tx(func() error {
		if err := r.insertAll(add); err != nil {
			return err
		}
		now := time.Now()
		failed := false
		for i := range *held {
			h := &(*held)[i]
			failed = failed || h.err != nil
			if err := r.finish(now, h); err != nil {
				return err
			}
		}
		*held = (*held)[:0]
		if last {
			return nil
		}
		if failed || len(add) == 0 {
			if err := r.promote(now); err != nil {
				return err
			}
		}
		return r.lease(now, held)
	})
}

// promote looks before it writes, as errand does.
func (r *raw) promote(now time.Time) error {
	due := now.UnixMicro() + 1
	err := r.query(func(v []driver.Value) error {
		due = v[0].(int64)
		return nil
	}, sqlRawNext)
	if err != nil || due > now.UnixMicro() {
		return err
	}
	return r.exec(sqlRawPromote, now.UnixMicro())
}

func (r *raw) lease(now time.Time, held *[]rawHeld) error {
	err := r.query(func(v []driver.Value) error {
		r.token++
		h := rawHeld{id: v[0].(int64), token: r.token, attempt: int(v[1].(int64)) + 1}
		if args, ok := v[2].([]byte); ok {
			h.args = bytes.Clone(args)
		} else {
			h.beside = true
		}
		*held = append(*held, h)
		return nil
	}, sqlRawHeads)
	if err != nil {
		return err
	}
	until := now.Add(rawLease).UnixMicro()
	for i := range *held {
		h := &(*held)[i]
		if err := r.exec(sqlRawLease, h.token, until, h.id); err != nil {
			return err
		}
		if !h.beside {
			continue
		}
		err := r.query(func(v []driver.Value) error {
			h.args = bytes.Clone(v[0].([]byte))
			return nil
		}, sqlRawPayload, h.id)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *raw) finish(now time.Time, h *rawHeld) error {
	if h.err != nil && h.attempt <= r.retries {
		if err := r.exec(sqlRawReschedule, now.UnixMicro(), h.id, h.token); err != nil {
			return err
		}
		return r.exec(sqlRawHistory, h.id, h.attempt, now.UnixMicro(), h.err.Error())
	}
	if h.err != nil {
		if err := r.exec(sqlRawBury, h.id, h.token, now.UnixMicro(), h.err.Error()); err != nil {
			return err
		}
		if err := r.exec(sqlRawHistory, h.id, h.attempt, now.UnixMicro(), h.err.Error()); err != nil {
			return err
		}
		return r.exec(sqlRawDelete, h.id, h.token)
	}
	if err := r.exec(sqlRawDelete, h.id, h.token); err != nil {
		return err
	}
	if h.attempt > 1 {
		if err := r.exec(sqlRawDeleteHistory, h.id); err != nil {
			return err
		}
	}
	if h.beside {
		return r.exec(sqlRawDeletePayload, h.id)
	}
	return nil
}

// Redrive puts back what is dead, a thousand in a transaction.
func (r *raw) Redrive(ctx context.Context) (int, error) {
	n := 0
	for {
		var left int
		err := r.conn.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT 1 FROM raw_dead LIMIT 1000)`).Scan(&left)
		if err != nil || left == 0 {
			return n, err
		}
		n += left
		err = r.tx(func() error {
			if err := r.exec(sqlRawRedrive, 1000, time.Now().UnixMicro()); err != nil {
				return err
			}
			return r.exec(sqlRawUnbury, 1000)
		})
		if err != nil {
			return n, err
		}
	}
}

// Mixed adds the next jobs of all producers, finishes what it holds and leases
// what there is in one transaction: that is what all of them share at best.
func (r *raw) Mixed(ctx context.Context, producers, n int, handle func(context.Context, *job) error) error {
	var held []rawHeld
	for added, done := 0, 0; done < n; {
		add := jobs(added, min(producers, n-added), smallPad)
		added += len(add)
		done += len(held)
		if err := r.turn(add, &held, false); err != nil {
			return err
		}
		r.handle(ctx, held, handle)
	}
	return nil
}
