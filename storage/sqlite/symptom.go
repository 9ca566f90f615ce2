package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlQuickCheck  = `PRAGMA quick_check(5)`
	sqlFullCheck   = `PRAGMA integrity_check(5)`
	sqlWrongCounts = `WITH real AS (SELECT lane, state, COUNT(*) n FROM
(SELECT lane, state FROM errand_job UNION ALL SELECT lane, state FROM errand_finished UNION ALL SELECT lane, 6 FROM errand_dead)
GROUP BY lane, state)
SELECT (SELECT COUNT(*) FROM real r LEFT JOIN errand_count c USING (lane, state) WHERE c.n IS NOT r.n)
+ (SELECT COUNT(*) FROM errand_count c LEFT JOIN real r USING (lane, state) WHERE r.n IS NULL AND c.n <> 0)`
	sqlJobsByState = `SELECT state, SUM(n) FROM errand_count GROUP BY state HAVING SUM(n) <> 0 ORDER BY state`
	sqlLeasesOf    = `SELECT i.instance, i.name, (SELECT COUNT(*) FROM errand_job j WHERE j.state = 3 AND j.instance = i.instance)
FROM errand_instance i ORDER BY i.instance`
	sqlHeldByNobody = `SELECT COUNT(*) FROM errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`

	// clockAhead is how far the clock of the database may be ahead without a word.
	clockAhead = time.Minute
)

// version looks at SQLite.
func (d *doctor) version() error {
	var v string
	if err := d.db.QueryRowContext(d.ctx, "SELECT sqlite_version()").Scan(&v); err != nil {
		return err
	}
	if err := supported(v); err != nil {
		d.say("sqlite", SeverityError, "update modernc.org/sqlite", "%v", err)
	} else {
		d.say("sqlite", SeverityOK, "", "%s", v)
	}
	return nil
}

// integrity has SQLite check the file.
func (d *doctor) integrity() error {
	text, name := sqlQuickCheck, "quick_check"
	if d.full {
		text, name = sqlFullCheck, "integrity_check"
	}
	lines, err := quickCheck(reader{d.ctx, d.db}, text)
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		d.say("integrity", SeverityOK, "", "%s: ok", name)
		return nil
	}
	d.say("integrity", SeverityError, remedyRestore, "%s: %s", name, strings.Join(lines, "; "))
	return nil
}

// schema looks at the version of the tables.
func (d *doctor) schema() error {
	conn, err := d.db.Conn(d.ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	have, err := currentVersion(d.ctx, conn)
	if err != nil {
		return err
	}
	if d.bare = have == 0; d.bare {
		d.say("schema", SeverityError, "check the path", "it has no tables of errand")
		return nil
	}
	if d.plain {
		d.say("journal mode", SeverityWarning, "open it once with errand, or PRAGMA journal_mode=wal", "it is not in WAL mode")
	}
	if err := checkTriggers(d.ctx, conn); errors.Is(err, storage.ErrUnsupportedDB) {
		d.say("schema", SeverityError, "drop it", "%v", err)
	} else if err != nil {
		return err
	}
	if err := checkMinWriter(d.ctx, conn); err != nil {
		d.say("schema", SeverityError, "update errand", "%v", err)
	} else if have < schemaVersion {
		d.say("schema", SeverityNote, "", "version %d, will become %d when it is opened", have, schemaVersion)
	} else {
		d.say("schema", SeverityOK, "", "version %d", have)
	}
	return nil
}

// counts compares the kept numbers with real ones.
func (d *doctor) counts() error {
	var n int
	if err := d.db.QueryRowContext(d.ctx, sqlWrongCounts).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		d.say("counts", SeverityError, "restore a backup, and report it: this must not happen", "wrong: %s", plural(n, "kept count"))
	} else {
		d.say("counts", SeverityOK, "", "the kept counts are right")
	}
	return d.jobs()
}

// jobs counts them by state.
func (d *doctor) jobs() error {
	var state, n int64
	var all []string
	err := reader{d.ctx, d.db}.each(sqlJobsByState, nil, []any{&state, &n}, func() {
		name := fmt.Sprintf("state %d", state)
		if state > 0 && state < int64(len(stateNames)) {
			name = string(stateNames[state])
		}
		all = append(all, fmt.Sprintf("%d %s", n, name))
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		all = []string{"none"}
	}
	d.say("jobs", SeverityOK, "", "%s", strings.Join(all, ", "))
	return nil
}

// instances looks which processes are gone, and what they have left.
func (d *doctor) instances() error {
	registered := map[int64]bool{}
	var id int64
	var name string
	var leases int
	err := reader{d.ctx, d.db}.each(sqlLeasesOf, nil, []any{&id, &name, &leases}, func() {
		registered[id] = true
		alive, err := locked(instancePath(d.path, id), d.info)
		switch {
		case err != nil:
			d.say("instances", SeverityNote, "", "%s: %v", name, err)
		case alive:
			d.say("instances", SeverityOK, "", "%s lives and holds %s", name, plural(leases, "job"))
		case leases > 0:
			d.say("instances", SeverityWarning, "start a worker, which takes them over", "%s is gone and has left %s", name, plural(leases, "running job"))
		default:
			d.say("instances", SeverityNote, "", "%s is gone; the next worker forgets it", name)
		}
	})
	if err != nil {
		return err
	}
	var left int
	if err := d.db.QueryRowContext(d.ctx, sqlHeldByNobody).Scan(&left); err != nil {
		return err
	}
	if left > 0 {
		d.say("instances", SeverityError, "start a worker, which takes them over after a lease", "no registered process has %s", plural(left, "running job"))
	}
	files, err := os.ReadDir(filepath.Dir(d.path))
	if err != nil {
		return err
	}
	for _, f := range files {
		suffix, ok := strings.CutPrefix(f.Name(), filepath.Base(d.path))
		id, instance := instanceOf(suffix)
		if !ok || !instance || registered[id] {
			continue
		}
		if alive, err := locked(filepath.Join(filepath.Dir(d.path), f.Name()), d.info); err == nil && !alive {
			d.say("leftovers", SeverityNote, hint("rm", f.Name()), "%s: of a process that is gone", f.Name())
		}
	}
	return nil
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// locked reports whether a process has the lock on a file beside the database.
func locked(path string, db os.FileInfo) (bool, error) {
	f, err := openExisting(path, os.O_RDONLY, db)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // gives the lock back too
	free, err := host.TryLock(f)
	return !free, err
}

// clock compares the latest time that was written with now.
func (d *doctor) clock() error {
	var us int64
	var shifting bool
	if err := d.db.QueryRowContext(context.WithoutCancel(d.ctx), sqlClock).Scan(&us, &shifting); err != nil {
		return err
	}
	switch mark := fromMicros(us); {
	case us > 0 && mark.Sub(d.now) > clockAhead:
		d.say("clock", SeverityWarning, "set the clock of this machine right; see docs/schedules.md",
			"the database has seen %s, %v ahead of now", mark.Format(time.RFC3339), mark.Sub(d.now).Round(time.Second))
	case shifting:
		d.say("clock", SeverityNote, "", "due times are being moved, since the clock was wrong")
	default:
		d.say("clock", SeverityOK, "", "not ahead of now")
	}
	return nil
}
