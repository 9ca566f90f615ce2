package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// patience is how long a call may take once it has begun.
	patience = time.Minute
	// attempts is how often a transaction is run that fails because of what runs beside it.
	attempts = 10
)

// planning are settings by which plans do not depend on statistics, which lag behind the
// tables of a queue: every statement finds its rows by an index, or by keys that it was
// given.
var planning = map[string]string{
	"plan_cache_mode":  "force_generic_plan",
	"enable_seqscan":   "off",
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	"jit":              "off",
}

// settings sets what the Store's sessions need. The application may set the limits of
// times and the name.
func settings(c *pgx.ConnConfig, schema string) {
	for name, value := range map[string]string{
		"application_name":                    "errand",
		"lock_timeout":                        "10s",
		"statement_timeout":                   "30s",
		"idle_in_transaction_session_timeout": "30s",
		// A session of a machine that is gone ends soon, and with it the lock of its instance.
		"tcp_keepalives_idle":     "30",
		"tcp_keepalives_interval": "10",
		"tcp_keepalives_count":    "3",
	} {
		c.RuntimeParams[name] = cmp.Or(c.RuntimeParams[name], value)
	}
	c.RuntimeParams["client_encoding"] = "UTF8"
	c.RuntimeParams["default_transaction_isolation"] = "read committed"
	maps.Copy(c.RuntimeParams, planning)
	if schema != "" {
		c.RuntimeParams["search_path"] = schema
	}
}

// How transactions of several round trips begin and end.
const (
	sqlBegin    = `BEGIN`
	sqlBeginAsk = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	sqlCommit   = `COMMIT`
	sqlRollback = `ROLLBACK`
)

// prepared are the statements that each connection prepares when it begins. Those of lists are
// prepared when they are first asked for: few connections ask for many of them.
var prepared = []string{
	sqlBegin, sqlBeginAsk, sqlCommit, sqlRollback,
	sqlInsert, sqlDelta, sqlFold, sqlLockLanes, sqlAddLanes,
	sqlExtend, sqlStart, sqlStop, sqlLonger, sqlMayEnd, sqlDelete, sqlKeep, sqlEnd, sqlEndHistory, sqlRetain, sqlBury, sqlPutBack, sqlFail, sqlPrune,
	sqlPromote, sqlNewLanes, sqlLeaseHeads, sqlHeads, sqlLease,
	sqlJob, sqlHistory, sqlCounts, sqlCauses, sqlDeaths, sqlLockDeaths, sqlAddCauses, sqlAddMovedCauses, sqlMoveCauses, sqlCountDead, sqlDropCauses, sqlTotals, sqlLast, sqlRunningBytes, sqlOldest,
	sqlLockKeys, sqlLockGroups, sqlLockRows, sqlKeys, sqlGroup, sqlReserve, sqlWriteKeys, sqlDropKeys,
	sqlInsertBeside, sqlRewrite, sqlMove, sqlPassDead, sqlDropGroups,
	sqlOverWindows, sqlLockWindows, sqlNextWindow, sqlBeside, sqlUnplaced,
	sqlHead, sqlSkip, sqlGroups, sqlNextWaiting, sqlWaitingGroups, sqlBehindDead, sqlLockSettings, sqlRegroup, sqlRegroupAs, sqlRegrouped, sqlHeldPlaces, sqlNothing,
	sqlGeneration, sqlRegroupDue, sqlSet, sqlUnset, sqlSettings, sqlSettingsNow,
	sqlEnded, sqlAsk, sqlPurge,
	sqlListed, sqlLaneCounts, sqlNextKey, sqlStates, sqlPlace, sqlReadyBefore, sqlWaitsBefore, sqlHeadOf,
	sqlLastFinished, sqlDeletable, sqlLockFinished, sqlLockDead, sqlDeleteEnded, sqlDeadOf, sqlRedrive,
	sqlLastLive, sqlManyWait, sqlGroupsOf, sqlFailed,
	sqlScopesOf, sqlHadArgs, sqlTransfer, sqlTransferDead, sqlSetPriority, sqlSetPolicy, sqlSetArgs, sqlAddEdit, sqlPruneEdits,
	sqlClock, sqlNotice, sqlMark, sqlUnmark, sqlHeldOf, sqlInstances, sqlRunning, sqlStray, sqlTakeOver, sqlTakeLapsed, sqlForget,
}

func prepare(ctx context.Context, c *pgx.Conn) error {
	for _, text := range prepared {
		if _, err := c.Prepare(ctx, text, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// attempt runs fn on a connection, in a context that does not end with ctx: what has begun
// goes through. It runs fn again if its transaction fails because of what runs beside it, and once
// more if the connection was of no use before anything was sent on it.
// Its errors are those of the driver.
func (s *Store) attempt(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error) error {
	err := s.attemptOn(ctx, fn)
	if pgconn.SafeToRetry(err) && ctx.Err() == nil {
		err = s.attemptOn(ctx, fn)
	}
	return err
}

// attemptOn is attempt on one connection. If that is cut off, all others of the pool are replaced
// too: what has cut off one of them, such as a new start of the server, mostly has cut off all.
func (s *Store) attemptOn(ctx context.Context, fn func(ctx context.Context, c *pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	defer conn.Release()
	if err := ctx.Err(); err != nil {
		return err
	}
	begun, cancel := begun(ctx)
	defer cancel()
	for range attempts {
		err = fn(begun, conn.Conn())
		if err == nil {
			return nil
		}
		if conn.Conn().PgConn().TxStatus() != 'I' && !conn.Conn().IsClosed() {
			_, undo := conn.Exec(begun, sqlRollback)
			err = errors.Join(err, undo)
		}
		if !again(err) {
			break
		}
	}
	if conn.Conn().IsClosed() {
		s.pool.Reset()
	}
	return err
}

// begun returns a context for what has begun, and so goes through: it does not end with ctx.
func begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}

// part sends b in one round trip, inside a transaction that goes on.
func part(ctx context.Context, c *pgx.Conn, b *pgx.Batch) error { return c.SendBatch(ctx, b).Close() }

// read runs fn in a transaction that reads, all of it as of one moment.
func (s *Store) read(ctx context.Context, fn func(b *pgx.Batch)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.run(ctx, func(ctx context.Context, c *pgx.Conn) error {
		b := &pgx.Batch{}
		b.Queue(sqlBeginAsk)
		fn(b)
		b.Queue(sqlCommit)
		return part(ctx, c, b)
	})
}

// each queues a statement, and calls fn for each of its rows.
func each(b *pgx.Batch, fn func(row pgx.CollectableRow) error, text string, args ...any) {
	b.Queue(text, args...).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := fn(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}
