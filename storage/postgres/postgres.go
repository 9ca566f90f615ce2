// Package postgres keeps jobs in PostgreSQL. It is being built: Enqueue, Exchange, Reclaim,
// Job, Jobs, States, Ahead, Delete, Redrive, RunNow, Change, Cancel, ReleaseUnique, PurgeFinished, Counts, Stats,
// Causes, Deaths, groups and their settings work. RunNow of a single job by its ID does not, as it makes that
// urgent, nor do holds. What is not there yet returns [storage.ErrLacking], see [Store.Lacks], and so the health of
// a queue is never ready. See [Store] for what a job may have.
//
// A Store is for errand.New. The first time that a process dies with a job, the crash does not
// count, as nobody knows whether the handler had begun: a job without retries may run twice.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/errandq/errand/storage"
)

// Options are the options of [Open]. The zero value has the defaults.
type Options struct {
	// Schema is where the tables are. Open creates it if it is missing. If empty, they are
	// in the first schema of the connection's search_path.
	Schema string
	// ListenDSN names the database as the DSN of [Open] does, for the connection on which a worker
	// hears of what other processes commit. It must lead to a session of its own: behind a pooler that
	// shares sessions, name the server itself. If empty, it is the DSN of Open.
	ListenDSN string
	// MaxConns is how many connections the Store has at most, beside one that shows other
	// instances that this one lives, and the one of ListenDSN. If zero, as many as the settings of the connection
	// say in pool_max_conns, or else 4, or one for each processor if there are more. With
	// 1 a call that waits for a unique key or a group holds up all others.
	MaxConns int
	// Name is what people know the process by. If empty, it is the host's name and the
	// number of the process.
	Name string
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (o *Options) validate() error {
	var faults []error
	if o.Schema != "" && !schemaName.MatchString(o.Schema) {
		faults = append(faults, fmt.Errorf("postgres: Options.Schema %.80q: want lower case letters, digits and underscores, at most 63", o.Schema))
	}
	if !utf8.ValidString(o.Name) || strings.ContainsRune(o.Name, 0) || len(o.Name) > 200 {
		faults = append(faults, fmt.Errorf("postgres: Options.Name %.80q: want UTF-8 without a zero byte, at most 200 bytes", o.Name))
	}
	if o.MaxConns < 0 || o.MaxConns > 1000 {
		faults = append(faults, fmt.Errorf("postgres: Options.MaxConns %d: want 0 to 1,000", o.MaxConns))
	}
	return errors.Join(faults...)
}

// Store is a [storage.Store] on PostgreSQL, version 14 or later, with the encoding UTF8.
//
// A job has no tags yet, so no origin, which is kept in tags, and no windows. Its outcomes
// are all but [storage.OutcomeUnavailable]: a worker puts a job back that could not reach the
// other side, as one that was interrupted, and holds no lane. Its results and progress are not kept.
//
// Each call is one transaction, in one round trip where all that it decides on is known
// when it is sent, and in at most four else. A call about unique keys or groups locks them
// first, keys before groups before jobs and each in order, and then reads and decides. It
// waits for other calls about the same ones, and nobody else waits for it. An instance has a row, and shows that it
// lives by an advisory lock, which the server drops with the session that holds it. That
// session must reach the server itself: a pooler that shares sessions ends the lock.
//
// A commit tells the workers of this process at once that jobs wait, and those of other processes by a
// notice after it. A notice may be lost: each worker looks once a second besides.
//
// If the answer to a commit is lost, the call finds out on a new connection whether the commit
// took place, for at most ten seconds. It returns an [storage.UnknownOutcomeError] if no server
// answers, and for PurgeFinished also if it took place. So does an Enqueue of several jobs
// of which one has ended meanwhile and was not kept.
type Store struct {
	pool     *pgxpool.Pool
	session  *pgx.ConnConfig // of the connection with the lock
	locks    int32           // first half of the keys of advisory locks
	lanes    lanes
	self     instance
	seen     observed
	grouped  gathering
	deltas   deltas
	clock    clock
	sent     calls
	settings settingsSeen
	besides  besides
	lines    lines
	wake     wake
	long     bool // tests: nothing is decided without rows

	mu     sync.Mutex
	calls  sync.WaitGroup // that have begun
	closed bool
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Notifier = (*Store)(nil)
)

// Open opens the database that dsn names: a URL or a list of settings, as libpq has them.
// It creates the tables if they are missing. Several processes may do so at once.
//
// The error is [ErrUnreachable] if no server answers, [ErrAccess] if the server refuses
// the user, the password or the database, [storage.ErrTooNew] if a later version of errand
// has changed the tables so that this one cannot use them, and [storage.ErrUnsupportedDB]
// for a server or an encoding that a [Store] does not work with.
func Open(ctx context.Context, dsn string, o *Options) (*Store, error) {
	return open(ctx, dsn, o, func(*pgxpool.Config) {})
}

// open is Open with connections that change has changed.
func open(ctx context.Context, dsn string, o *Options, change func(*pgxpool.Config)) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: dsn: %w", err)
	}
	if o.MaxConns > 0 {
		cfg.MaxConns = int32(o.MaxConns)
	}
	settings(cfg.ConnConfig, o.Schema)
	change(cfg)
	listen := cfg.ConnConfig
	if o.ListenDSN != "" {
		if listen, err = pgx.ParseConfig(o.ListenDSN); err != nil {
			return nil, fmt.Errorf("postgres: Options.ListenDSN: %w", err)
		}
		settings(listen, "")
	}
	s := &Store{session: cfg.ConnConfig.Copy(), self: newInstance(o.Name), seen: newObserved(), lines: newLines(cfg.MaxConns)}
	if err = migrate(ctx, s, o.Schema); err != nil {
		return nil, err
	}
	cfg.AfterConnect = prepare
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, translate(err)
	}
	s.wake.init(s, listen.Copy())
	return s, nil
}

// enter begins a call; leave ends it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return storage.ErrClosed
	}
	s.calls.Add(1)
	return nil
}

func (s *Store) leave() { s.calls.Done() }

// Close implements [storage.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
	if was {
		return nil
	}
	s.wake.close()
	err := s.self.leave(s)
	s.pool.Close()
	return err
}

// micros returns t in whole microseconds, of a fraction what is below it.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(us int64) time.Time { return time.UnixMicro(us).UTC() }

// length returns a duration in whole microseconds.
func length(d time.Duration) int64 { return int64(d / time.Microsecond) }

func fromLength(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
