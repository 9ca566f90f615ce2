package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// statements runs SQL on one connection, preparing each text once. It bypasses
// database/sql, by conn.Raw: the work of database/sql takes a quarter of the time
// of a statement, and half of the time of reading a row.
//
// Parameters of statements that run for each job are plain question marks. For a
// numbered one the driver makes a string each time it is bound, which takes a
// tenth of the time of an INSERT.
type statements struct {
	conn    *sql.Conn
	raw     any                    // of conn, while it is held
	texts   map[string]driver.Stmt // by text
	lanes   [shapes][]driver.Stmt  // of sqlShapes: one for each that is read at the same time
	known   known
	lineups lineups
	scopes  capScopes // whose use is known, as of the last transaction
	// succeeded is when lanes last succeeded, as it is stored, of those for which it is known.
	succeeded map[int64]int64
	wrote     int  // statements, rows and large values since the log was looked at: some pages each
	changed   bool // in the transaction under way, see changes
	hooked    bool // see hook

	leased []facts // of the jobs that the transaction has leased
	runs   runs
	buffers
	inserts
}

// buffers are memory that transactions share.
type buffers struct {
	args   []driver.NamedValue
	values []driver.Value
	heads  [headColumns]driver.Value
	left   []int // see toLease
	back   back
	merged []jobRow
	rules  ruleTx
}

func newStatements(conn *sql.Conn) *statements {
	return &statements{conn: conn, texts: map[string]driver.Stmt{}, succeeded: map[int64]int64{}}
}

// hold runs f with the connection of the driver at hand, so that it need not be
// asked for again with each statement.
func (s *statements) hold(f func() error) error {
	if s.raw != nil {
		return f()
	}
	return s.conn.Raw(func(conn any) error {
		s.raw = conn
		defer func() { s.raw = nil }()
		return f()
	})
}

// hook has ended called whenever a transaction of the connection is over: committed, or
// rolled back, be it by SQLite. To find out by a statement takes two microseconds.
func (s *statements) hook(ended func()) {
	_ = s.hold(func() error {
		var c sqlite.HookRegisterer
		if c, s.hooked = s.raw.(sqlite.HookRegisterer); s.hooked {
			c.RegisterCommitHook(func() int32 { ended(); return 0 })
			c.RegisterRollbackHook(ended)
		}
		return nil
	})
}

// statement returns the prepared statement of a text, while the connection is
// held. The background context is on purpose, here and below: with one that can
// end the driver starts a goroutine for each statement.
func (s *statements) statement(text string) (driver.Stmt, error) {
	if st := s.texts[text]; st != nil {
		return st, nil
	}
	st, err := s.prepare(text)
	if err != nil {
		return nil, err
	}
	s.texts[text] = st
	return st, nil
}

func (s *statements) prepare(text string) (driver.Stmt, error) {
	c, ok := s.raw.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("errand: connection %T cannot prepare", s.raw)
	}
	st, err := c.PrepareContext(context.Background(), text)
	return st, misfit(err)
}

// bind returns the arguments of a statement that is about to run, and first writes the jobs that
// are unwritten.
func (s *statements) bind(args ...any) ([]driver.NamedValue, error) {
	if err := s.writeInserts(); err != nil {
		return nil, err
	}
	s.args = s.args[:0]
	for i, a := range args {
		switch n := a.(type) {
		case nil, int64, string, []byte:
		case int: // as the default would, without reflection
			a = int64(n)
		case uint32:
			a = int64(n)
		case stateCode:
			a = int64(n)
		case rules.Role:
			a = int64(n)
		case bool:
			a = int64(0)
			if n {
				a = int64(1)
			}
		default:
			v, err := driver.DefaultParameterConverter.ConvertValue(a)
			if err != nil {
				return nil, fmt.Errorf("errand: argument %d: %w", i+1, err)
			}
			a = v
		}
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args, nil
}

// run calls f with the prepared statement of a text and its arguments.
func (s *statements) run(text string, args []any, f func(driver.Stmt, []driver.NamedValue) error) error {
	return s.hold(func() error {
		st, err := s.statement(text)
		if err != nil {
			return err
		}
		bound, err := s.bind(args...)
		if err != nil {
			return err
		}
		return f(st, bound)
	})
}

func (s *statements) exec(text string, args ...any) (res sql.Result, err error) {
	err = s.run(text, args, func(st driver.Stmt, bound []driver.NamedValue) error {
		s.wrote++
		for _, a := range args {
			switch a := a.(type) {
			case []byte:
				s.wrote += len(a) / 4096
			case string:
				s.wrote += len(a) / 4096
			}
		}
		if res, err = st.(driver.StmtExecContext).ExecContext(context.Background(), bound); err == nil && !s.changed && changes(text) {
			var n int64
			n, err = res.RowsAffected()
			s.changed = n > 0
		}
		return err
	})
	return res, err
}

// rollback ends the transaction under way without a commit, unless SQLite has done it already.
func (s *statements) rollback() {
	s.unwritten = s.unwritten[:0]
	_, _ = s.exec(sqlRollback)
}

// changes reports whether a text is an INSERT, an UPDATE or a DELETE. A job that is done and
// not kept leaves nothing behind that has a time: that alone does not change anything.
func changes(text string) bool {
	return (text[0] == 'I' || text[0] == 'U' || text[0] == 'D') && text != sqlDropJob && text != sqlDropRun
}

// plain runs SQL that is not to be kept prepared, as of a PRAGMA that acts when
// it is prepared.
func (s *statements) plain(text string) error {
	return s.hold(func() error {
		c, ok := s.raw.(driver.ExecerContext)
		if !ok {
			return fmt.Errorf("errand: connection %T cannot execute", s.raw)
		}
		_, err := c.ExecContext(context.Background(), text, nil)
		return err
	})
}

// row runs a query for at most one row; [sql.ErrNoRows] if there is none. A
// []byte in dest belongs to the caller.
func (s *statements) row(text string, args []any, dest ...any) error {
	found := false
	err := s.rows(text, args, func(rows driver.Rows) error {
		s.values = slices.Grow(s.values[:0], len(dest))[:len(dest)]
		switch err := rows.Next(s.values); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		found = true
		s.wrote++ // perhaps
		s.changed = s.changed || changes(text)
		return scan(s.values, dest)
	})
	if err == nil && !found {
		err = sql.ErrNoRows
	}
	return err
}

// each runs a query and calls f after each row was scanned into dest.
func (s *statements) each(text string, args, dest []any, f func()) error {
	return s.rows(text, args, func(rows driver.Rows) error {
		values := make([]driver.Value, len(dest))
		for {
			switch err := rows.Next(values); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := scan(values, dest); err != nil {
				return err
			}
			s.wrote++ // perhaps
			s.changed = s.changed || changes(text)
			f()
		}
	})
}

// rows runs a query and calls f with its rows.
func (s *statements) rows(text string, args []any, f func(driver.Rows) error) error {
	return s.run(text, args, func(st driver.Stmt, bound []driver.NamedValue) error {
		rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), bound)
		if err != nil {
			return err
		}
		err = f(rows)
		if e := rows.Close(); err == nil {
			err = e
		}
		return err
	})
}

// scan is that of database/sql for the types there are here.
func scan(values []driver.Value, dest []any) error {
	for i, v := range values {
		ok := true
		switch d := dest[i].(type) {
		case sql.Scanner:
			if err := d.Scan(v); err != nil {
				return fmt.Errorf("errand: column %d: %w", i, err)
			}
		case *string:
			*d, ok = v.(string)
		case *[]byte:
			switch v := v.(type) {
			case nil:
				*d = nil
			case []byte:
				*d = v
			case string:
				*d = []byte(v)
			default:
				ok = false
			}
		default:
			var n int64
			if n, ok = v.(int64); ok {
				ok = setInt(d, n)
			}
		}
		if !ok {
			return fmt.Errorf("%w: column %d is a %T: does not fit a %T", storage.ErrCorrupt, i, v, dest[i])
		}
	}
	return nil
}

func setInt(dest any, n int64) bool {
	switch d := dest.(type) {
	case *int64:
		*d = n
	case *int:
		*d = int(n)
	case *uint32:
		*d = uint32(n)
	case *stateCode:
		*d = stateCode(n)
	case *rules.Role:
		*d = rules.Role(n)
	case *bool:
		*d = n != 0
	default:
		return false
	}
	return true
}

// close closes the statements, for open ones would keep the connection open,
// and returns that back to the pool, which reports what matters.
func (s *statements) close() {
	_ = s.hold(s.finalize)
	_ = s.conn.Close()
}

// finalize closes the prepared statements.
func (s *statements) finalize() error {
	for _, st := range s.texts {
		_ = st.Close()
	}
	for _, st := range slices.Concat(s.lanes[:]...) {
		_ = st.Close()
	}
	if c, ok := s.raw.(sqlite.HookRegisterer); ok && s.hooked { // the driver keeps them in a table of its own
		c.RegisterCommitHook(nil)
		c.RegisterRollbackHook(nil)
	}
	return nil
}

// cacheBase is more than what SQLite's cache takes when no page of a transaction is in it: the
// first page of the file, and room for one.
const cacheBase = 10 << 10

// dirty returns about how many bytes of the transaction under way are not in the log yet: those
// that stay in the cache when it lets go of what it can read again. One page may go unseen.
func (s *statements) dirty() (bytes int64, err error) {
	err = s.hold(func() error {
		if err := s.plain("PRAGMA shrink_memory"); err != nil {
			return err
		}
		c, ok := s.raw.(sqlite.DBStatus)
		if !ok {
			return fmt.Errorf("errand: connection %T does not tell how large its cache is", s.raw)
		}
		used, _, err := c.Status(sqlite.DBStatusCacheUsed, false)
		bytes = max(0, int64(used)-cacheBase)
		return err
	})
	return bytes, err
}

// known are the counters as of the last transaction of a connection.
type known struct {
	ok      bool
	meta    meta
	counts  map[laneState]int64 // of jobs from stored on, which numbers do not count yet
	stored  meta                // as the numbers are
	version uint32              // that SQLite gave the database after it
}

// dataVersion changes with each commit, of whatever connection. It is that of
// the last transaction.
func (s *statements) dataVersion() (version uint32, err error) {
	err = s.hold(func() error {
		c, ok := s.raw.(sqlite.FileControl)
		if !ok {
			return fmt.Errorf("errand: connection %T has no data version", s.raw)
		}
		version, err = c.FileControlDataVersion("main")
		return err
	})
	return version, err
}

// recheck forgets the counters if another connection has written since they were known,
// or may have. It must be called in a transaction.
func (s *statements) recheck() {
	if s.known.ok {
		version, err := s.dataVersion()
		s.known.ok = err == nil && version == s.known.version
	}
}

// recall sets the counters of t without reading them, and forgets them. It reports false
// if they are not known. It must be called in a transaction.
func (s *statements) recall(t *tx) (ok bool) {
	if s.recheck(); s.known.ok {
		t.meta, t.stored = s.known.meta, s.known.stored
		maps.Copy(t.counts, s.known.counts)
	}
	ok, s.known.ok = s.known.ok, false
	return ok
}

// checkLineups drops the lineups if another connection has committed since they
// were right. It notes the version that it has checked: if another connection
// commits between the check and the next read, the next check drops the lineups.
func (s *statements) checkLineups() {
	version, err := s.dataVersion()
	if err != nil || version != s.lineups.version {
		s.lineups.forget()
		s.lineups.version = version
	}
}

// remember keeps the counters of a transaction that has just been committed.
func (s *statements) remember(k known) {
	version, err := s.dataVersion()
	k.ok, k.version = err == nil, version
	s.known = k
	s.lineups.version = version
}
