package postgres

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sqlNumber      = `SELECT nextval('errand_instance_number')::integer`
	sqlShowLife    = `SELECT pg_advisory_lock($1::integer, $2::integer)`
	sqlAddInstance = `INSERT INTO errand_instance (instance, name, lease, seen_at) VALUES ($1, $2, 0, $3)`
	sqlLeave       = `WITH c AS (UPDATE errand_instance SET closed = true
  WHERE instance = $1 AND EXISTS (SELECT FROM errand_job WHERE state = 3 AND instance = $1) RETURNING instance)
DELETE FROM errand_instance WHERE instance = $1 AND NOT EXISTS (SELECT FROM c)`
)

// instance is this Store as others see it: a row, and an advisory lock that a session of
// its own holds. The server drops the lock with the session, and the session with the
// process: the kernel closes the connection of one that was killed. An entry in
// pg_stat_activity would show the same, but only to who may see it, and the number of a
// backend is used again.
//
// Reclaim reads by that session, four times a second in a worker. So a session that was
// cut off, while the process lives, is noticed and replaced.
type instance struct {
	name string
	now  atomic.Pointer[registration] // nil until registered

	mu   sync.Mutex
	conn *pgx.Conn
}

// registration is a row of errand_instance. An instance that others took for gone has several,
// one after the other.
type registration struct {
	id    int32
	lease atomic.Int64 // the longest that was promised
}

func newInstance(name string) instance {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return instance{name: cmp.Or(name, fmt.Sprintf("%s/%d", host, os.Getpid()))}
}

// number returns the number of the instance, 0 until it is registered.
func (in *instance) number() int32 {
	if r := in.now.Load(); r != nil {
		return r.id
	}
	return 0
}

func (in *instance) title() string { return in.name }

// register registers the instance, unless it is. The lock comes before the row, so that
// nobody sees the row of a living process without it.
func (in *instance) register(ctx context.Context, s *Store, now time.Time) error {
	if in.number() != 0 {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.number() != 0 {
		return nil
	}
	if err := in.connect(ctx, s); err != nil {
		return err
	}
	ctx, cancel := begun(ctx)
	defer cancel()
	defer context.AfterFunc(s.wake.ctx, cancel)() // what hears notices registers too
	var id int32
	if err := in.conn.QueryRow(ctx, sqlNumber).Scan(&id); err != nil {
		return translate(err)
	}
	if _, err := in.conn.Exec(ctx, sqlShowLife, s.locks, id); err != nil {
		return translate(err)
	}
	if _, err := in.conn.Exec(ctx, sqlAddInstance, id, in.name, micros(now)); err != nil {
		return translate(err)
	}
	in.now.Store(&registration{id: id})
	return nil
}

// connect makes the session, unless it is there. The lock of one that is registered is
// taken anew.
func (in *instance) connect(ctx context.Context, s *Store) error {
	if in.conn != nil && !in.conn.IsClosed() {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, s.session)
	if err != nil {
		return translate(err)
	}
	if id := in.number(); id != 0 {
		ctx, cancel := begun(ctx)
		defer cancel()
		if _, err := conn.Exec(ctx, sqlShowLife, s.locks, id); err != nil {
			_ = conn.Close(ctx)
			return translate(err)
		}
	}
	in.conn = conn
	return nil
}

// ask runs fn on the session, which only reads. If the session was cut off, fn runs again
// on a new one. What has begun goes through: a session in the middle of something could only be
// closed, and others would take the instance for gone.
func (in *instance) ask(ctx context.Context, s *Store, fn func(ctx context.Context, c *pgx.Conn) error) (err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.onSession(ctx, s, fn)
}

// onSession is ask for who holds mu, and may write.
func (in *instance) onSession(ctx context.Context, s *Store, fn func(ctx context.Context, c *pgx.Conn) error) (err error) {
	for range 2 {
		if err := in.connect(ctx, s); err != nil {
			return err
		}
		ctx, cancel := begun(ctx)
		err = fn(ctx, in.conn)
		cancel()
		if err == nil || !cutOff(in.conn, err) {
			break
		}
		_ = in.conn.Close(ctx)
		in.conn = nil
	}
	return translate(err)
}

// promise queues the note that a lease of this length is promised, if no longer one was.
func (r *registration) promise(b *pgx.Batch, d time.Duration) {
	if r != nil && length(d) > r.lease.Load() {
		b.Queue(sqlLonger, r.id, length(d))
	}
}

// promised says that the note is durable.
func (r *registration) promised(d time.Duration) {
	for r != nil {
		was := r.lease.Load()
		if length(d) <= was || r.lease.CompareAndSwap(was, length(d)) {
			return
		}
	}
}

// leave ends the registration. If leases are left, their handlers may run: then it stands
// until the process ends.
func (in *instance) leave(s *Store) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	ctx, cancel := begun(context.Background())
	defer cancel()
	if in.number() == 0 {
		if in.conn != nil { // it could not register
			return translate(in.conn.Close(ctx))
		}
		return nil
	}
	over := false
	err := in.onSession(ctx, s, func(ctx context.Context, c *pgx.Conn) error {
		if err := s.disown(ctx, c); err != nil {
			return err
		}
		tag, err := c.Exec(ctx, sqlLeave, in.number())
		over = tag.RowsAffected() > 0
		return err
	})
	if err != nil || !over {
		return err
	}
	return translate(in.conn.Close(ctx))
}
