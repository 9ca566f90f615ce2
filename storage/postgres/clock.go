package postgres

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandq/errand/storage"
)

// What a statement returns of the server's clock.
const serverClock = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

// sqlClock is for answers that have no mark.
const sqlClock = `SELECT ` + serverClock

// clock is what the Store has heard of the server's clock. It counts from the moment at
// which an answer has come, which is later than what the answer says: half a round trip
// more would be nearer, but ahead of the server if the way there took longer than the way back.
type clock struct {
	ahead atomic.Int64 // of the server's clock, in tests

	mu    sync.Mutex
	said  time.Time
	heard time.Time // by the monotonic clock; zero: never
}

var _ storage.Clocked = (*Store)(nil)

// StoreTime implements [storage.Clocked].
func (s *Store) StoreTime() (now time.Time, known bool) {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard.IsZero() {
		return time.Time{}, false
	}
	return c.said.Add(time.Since(c.heard)), true
}

// hear takes note of an answer.
func (c *clock) hear(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said, c.heard = fromMicros(us).Add(time.Duration(c.ahead.Load())), time.Now()
}

// scan reads an answer that is the server's clock.
func (c *clock) scan(row pgx.Row) error {
	var us int64
	err := row.Scan(&us)
	if err == nil {
		c.hear(us)
	}
	return err
}
