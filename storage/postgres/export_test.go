package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// What tests look at.
const FoldAfter = foldAfter

var (
	Prepared = prepared
	Planning = planning
	Selects  = selects
)

// WithoutRows are the statements that change jobs of which no row was read: the short way of plain
// jobs, leases, those that are due, and those whose time is over.
var WithoutRows = []string{
	sqlInsert, sqlDelete, sqlKeep, sqlExtend, sqlStart, sqlStop, sqlPromote, sqlLeaseHeads, sqlLease, sqlTakeOver, sqlTakeLapsed, sqlPurge,
}

// Counted are the statements that sum up the numbers of lanes.
var Counted = map[string]string{"counts": sqlCounts, "totals": sqlTotals, "lanes": sqlLaneCounts}

// Counting are the statement that writes numbers of which a Tx says how they change, and that which counts
// for their causes the dead letters that come or go.
var Counting = []string{sqlDelta, sqlCountDead}

// Besides is what a Store knows of its leases.
type Besides = besides

const BesidesLimit = besidesLimit

// Note notes a lease with a key.
func (h *besides) Note(token int64, key string) { h.note(token, beside{key: key}) }

// Key returns the key of a lease, and whether it is known.
func (h *besides) Key(token int64) (string, bool) {
	b, ok := h.get(token)
	return b.key, ok
}

// Forget forgets a lease.
func (h *besides) Forget(token int64) { h.forget(token) }

// Len returns how many leases are known.
func (h *besides) Len() int { return len(h.of) + len(h.older) }

// Title returns the name of the instance.
func Title(s *Store) string { return s.self.title() }

// MarkName is what the server calls the statement that ends each transaction that writes.
func MarkName() string { return statementName(sqlMark) }

// RollbackName is what the server calls the statement that undoes a transaction.
func RollbackName() string { return statementName(sqlRollback) }

func statementName(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "stmt_" + hex.EncodeToString(sum[:24])
}

// Fence is the text of the statement that finds out whether a call took place.
const Fence = sqlFence

// UnmarkAfter is after how many calls marks are deleted.
const UnmarkAfter = unmarkAfter

// SetAhead shifts what the Store hears of the server's clock.
func (s *Store) SetAhead(by time.Duration) { s.clock.ahead.Store(int64(by)) }

// InLine returns how many names calls of the Store have that are about keys or groups.
func (s *Store) InLine() (n int) {
	s.lines.mu.Lock()
	defer s.lines.mu.Unlock()
	for _, l := range s.lines.of {
		n += l.calls
	}
	return n
}

// SetLinePatience sets for how long a call waits for others that name the same key or group.
// There is none yet.
func (s *Store) SetLinePatience(d time.Duration) { s.lines.patience = d }

// SetTimes sets how long workers are told nothing, and for how long a session of notices is believed that
// hears nothing. There is none yet.
func (s *Store) SetTimes(look, ping, answer time.Duration) {
	s.wake.times.look, s.wake.times.ping, s.wake.times.answer = look, ping, answer
}

// SendNothing has the Store send no notices before it is closed.
func (s *Store) SendNothing() {
	s.wake.mu.Lock()
	defer s.wake.mu.Unlock()
	s.wake.sends = true
}

// Channel is that of the notices.
func (s *Store) Channel() string { return s.wake.channel() }

// TakeLongWay has the Store read the rows of all jobs before it decides about them.
func (s *Store) TakeLongWay() { s.long = true }

// Kill lets the Store die as its process would: the kernel closes its connections, and
// nothing is said to the server.
func (s *Store) Kill() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	s.wake.end()
	s.self.mu.Lock()
	defer s.self.mu.Unlock()
	if s.self.conn != nil && !s.self.conn.IsClosed() {
		_ = s.self.conn.PgConn().Conn().Close()
		_ = s.self.conn.Close(context.Background()) // it is of no use any more, and ends at once
	}
	go s.pool.Close() // waits for connections that were cut off, up to 15 s
}

// WaitGone waits until the server has noticed that an instance has ended. Then that counts
// at once, as if it had been noticed for long.
func (s *Store) WaitGone(ctx context.Context, c *pgx.Conn) error {
	if s.self.number() == 0 {
		return nil
	}
	if _, err := c.Exec(ctx, `SELECT pg_advisory_lock($1::integer, $2::integer), pg_advisory_unlock($1::integer, $2::integer)`, s.locks, s.self.number()); err != nil {
		return err
	}
	_, err := c.Exec(ctx, `UPDATE errand_instance SET seen_at = 0 WHERE instance = $1`, s.self.number())
	return err
}

// Dial makes a connection to the server.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// OpenBy is Open with connections made by what wrap makes of the usual Dial.
func OpenBy(ctx context.Context, dsn string, o *Options, wrap func(Dial) Dial) (*Store, error) {
	return open(ctx, dsn, o, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.DialFunc = pgconn.DialFunc(wrap(Dial(cfg.ConnConfig.DialFunc)))
	})
}

// Rows calls fn in a transaction, which is undone.
func (s *Store) Rows(ctx context.Context, fn func(load func(rules.Need) (*rules.Tx, error)) error) error {
	return s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		if err := part(ctx, c, b); err != nil {
			return err
		}
		dec := s.deciding(time.Time{}, 0)
		if err := fn(func(n rules.Need) (*rules.Tx, error) {
			n.Leave = slices.Repeat([]int32{1}, len(n.Groups))
			dec.need = n
			b := &pgx.Batch{}
			dec.load(b)
			return &dec.tx, part(ctx, c, b)
		}); err != nil {
			return err
		}
		return part(ctx, c, end())
	})
}

// Missing is the error of a method that is not there yet.
func Missing(method storage.Feature) error { return missing(method) }

// Written writes rows one after the other in a transaction, which is undone, and returns the job of the
// last one as it is read then.
func (s *Store) Written(ctx context.Context, rows ...*rules.Row) (j rules.Job, err error) {
	err = s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBegin)
		dec := s.deciding(time.Time{}, 0)
		for _, r := range rows {
			dec.need.Jobs = []int64{r.Is.ID}
			dec.decided(b, rules.Changes{Jobs: []*rules.Row{r}})
		}
		dec.load(b)
		if err := part(ctx, c, b); err != nil {
			return err
		}
		j = dec.tx.Live(dec.need.Jobs[0])
		return part(ctx, c, end())
	})
	return j, err
}
