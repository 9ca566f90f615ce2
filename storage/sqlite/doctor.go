package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlQuickCheck  = `PRAGMA quick_check(5)`
	sqlFullCheck   = `PRAGMA integrity_check(5)`
	sqlJobsByState = `SELECT state, SUM(n) FROM main.errand_count GROUP BY state HAVING SUM(n) <> 0 ORDER BY state`
	sqlLeasesOf    = `SELECT i.instance, i.name, i.boot, (SELECT COUNT(*) FROM main.errand_job j WHERE j.state = 3 AND j.instance = i.instance)
FROM main.errand_instance i ORDER BY i.instance`

	// clockAhead is how far the clock of the database may be ahead without a warning.
	clockAhead = time.Minute
)

// Severity says how bad a [Finding] is.
type Severity string

// The severities, the mildest first.
const (
	SeverityOK      Severity = "ok"
	SeverityNote    Severity = "note"    // worth knowing, nothing to do
	SeverityWarning Severity = "warning" // works, and should be seen to
	SeverityError   Severity = "error"   // does not work, or will not for long
)

// Finding is what one check of [Examine] has found.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"`
	Remedy   string   `json:"remedy,omitempty"`
}

// Bad reports whether somebody should do something.
func (f Finding) Bad() bool { return f.Severity == SeverityWarning || f.Severity == SeverityError }

// Examine looks at the database file at path and the files beside it, and changes
// nothing; others may have it open. now is what its clock is compared with. If full is
// set it also compares indexes with tables and checks the invariants of the tables, see
// [CheckInvariants], which takes longer.
//
// On systems without OFD locks, such as macOS and the BSDs, it must not be called
// in a process that has the database open: it opens and closes the file, and
// with that drops the locks of the process.
//
// It returns an error only if it could not look.
func Examine(ctx context.Context, path string, full bool, now time.Time) ([]Finding, error) {
	named, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path, err = filepath.EvalSymlinks(named)
	if err != nil {
		return nil, fmt.Errorf("%w%s", unreadable(err, named), orCopy(named))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(err, path)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	d := &doctor{ctx: ctx, path: path, info: info, now: now, full: full}
	d.place()
	d.names()
	d.access()
	ok, err := d.header()
	if err != nil {
		return nil, err
	}
	d.whole()
	if err := d.beside(ok); err != nil || !ok || d.odd {
		return d.found, err
	}
	close, err := d.open()
	if err != nil {
		return nil, err
	}
	defer close()
	for _, check := range []func() error{d.version, d.integrity, d.schema} {
		if err := check(); err != nil {
			d.trouble(err)
			d.saved()
			return d.found, ctx.Err()
		}
	}
	if d.saved(); d.bare {
		return d.found, nil
	}
	for _, check := range []func() error{d.counts, d.invariants, d.instances, d.clock} {
		if err := check(); err != nil {
			d.trouble(err)
		}
	}
	return d.found, ctx.Err()
}

// doctor is one examination.
type doctor struct {
	ctx    context.Context
	path   string
	info   os.FileInfo
	now    time.Time
	full   bool
	db     *sql.DB
	bare   bool // the file has no tables of errand
	flat   bool // the file system has no modes
	shut   bool // this user may not write the database
	plain  bool // the database is not in WAL mode
	tables int  // the version of the schema
	odd    bool // SQLite cannot have made a file of its own, so nothing is read by it
	found  []Finding
}

// say adds a finding. Names and texts in args come from files, and may have codes for
// the terminal, so they are quoted.
func (d *doctor) say(check string, s Severity, remedy, format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = printable(a)
		case error:
			args[i] = printable(a.Error())
		}
	}
	d.found = append(d.found, Finding{Check: check, Severity: s, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// printable returns text as it is, or quoted if not all of it can be printed.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// plainWord matches what a shell takes for one word without quotes.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,-]+$`)

// hint returns a command about a file, for copying into a shell.
func hint(command, name string) string {
	if strings.HasPrefix(name, "-") { // no option
		name = "./" + name
	}
	switch {
	case plainWord.MatchString(name):
	case printable(name) == name:
		name = "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	default:
		return "by hand: its name is not for a shell"
	}
	return command + " " + name
}

const (
	remedyRestore = "stop all processes, keep a copy of all files, and restore a backup; see docs/operations.md"
	remedyRoom    = "make room on the disk"
)

// trouble adds an error in the middle of the examination.
func (d *doctor) trouble(err error) {
	if isCode(err, lib.SQLITE_CANTOPEN) {
		if what, remedy := host.Unreadable(d.path, d.path+"-wal", d.path+"-shm"); what != "" {
			d.say("reading", SeverityError, remedy, "%s", what)
			return
		}
	}
	err = translate(err)
	remedy := "look again when nobody else uses the file"
	if errors.Is(err, storage.ErrCorrupt) {
		remedy = remedyRestore
	}
	d.say("reading", SeverityError, remedy, "%v", err)
}

// header reports whether the file is a database. Format: sqlite.org/fileformat2.html.
func (d *doctor) header() (ok bool, err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return false, unreadable(err, d.path)
	}
	defer func() { _ = f.Close() }() // it has only been read
	var h [100]byte
	if _, err := io.ReadFull(f, h[:]); errors.Is(err, io.EOF) && d.info.Size() == 0 {
		d.say("file", SeverityError, "restore a backup, or delete the file if it should be new", "it is empty")
		return false, nil
	} else if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	if string(h[:16]) != "SQLite format 3\x00" {
		d.say("file", SeverityError, remedyRestore, "it is not a SQLite database")
		return false, nil
	}
	if h[18] != 2 || h[19] != 2 {
		d.plain = true // see schema
	} else {
		d.say("journal mode", SeverityOK, "", "wal")
	}
	return true, nil
}

// open opens the database without creating or changing a file: as immutable if there
// is no log, with the index of the log if there is one, and else a copy.
func (d *doctor) open() (close func(), err error) {
	path, how := d.path, withItsLog
	remove := func() {}
	wal, errWAL := os.Stat(d.path + "-wal")
	_, errSHM := os.Stat(d.path + "-shm")
	switch {
	case errWAL == nil && errSHM == nil:
	case errWAL != nil || wal.Size() == 0:
		how = withoutLog
	default:
		dir, err := os.MkdirTemp("", "errand-doctor-*")
		if err != nil {
			return nil, err
		}
		remove = func() { _ = os.RemoveAll(dir) }
		path, how = filepath.Join(dir, "copy"), asItsWriter
		if err := d.copyTo(path); err != nil {
			remove()
			return nil, err
		}
	}
	if d.db, err = sql.Open("sqlite", viewDSN(path, how, 5*time.Second)); err != nil {
		remove()
		return nil, err
	}
	d.db.SetMaxOpenConns(1)
	return func() { _ = d.db.Close(); remove() }, nil
}

// copyTo copies the database and its log.
func (d *doctor) copyTo(path string) error {
	db, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it has only been read
	log, err := openExisting(d.path+"-wal", os.O_RDONLY, d.info)
	if err != nil {
		return unreadable(err, d.path+"-wal")
	}
	defer func() { _ = log.Close() }() // as well
	return errors.Join(copyFile(db, path), copyFile(log, path+"-wal"))
}

func copyFile(in io.Reader, to string) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// place looks at the file system.
func (d *doctor) place() {
	fsys, err := statFS(d.path)
	if err != nil || fsys.Name == "" {
		d.say("file system", SeverityNote, "", "its type cannot be told here")
		return
	}
	d.flat = fsys.Modeless()
	switch {
	case fsys.Shared():
		d.say("file system", SeverityError, "move the database to a local file system", "%s, which other machines may share", fsys.Name)
	case fsys.ReadOnly:
		d.say("file system", SeverityError, "mount it for writing, or copy the database", "%s, mounted read-only: no queue can work there", fsys.Name)
	case fsys.InMemory():
		d.say("file system", SeverityWarning, remedyInMemory, "%s, which is in memory: all jobs are gone with the next reboot", fsys.Name)
	case fsys.Name == "overlay":
		d.say("file system", SeverityNote, "in a container, put the database on a volume", "overlay: what is in the layer of a container is gone with the container")
	default:
		d.say("file system", SeverityOK, "", "%s", fsys.Name)
	}
	if fsys.Free < lowSpace {
		d.say("free space", SeverityWarning, remedyRoom, "%d MiB, which is nearly full", fsys.Free>>20)
	} else {
		d.say("free space", SeverityOK, "", "%d MiB", fsys.Free>>20)
	}
}

// names looks for other names of the file.
func (d *doctor) names() {
	if what, remedy := host.OtherNames(d.path); what != "" {
		d.say("names", SeverityError, remedy, "it %s", what)
	}
}

// access checks whether this user may write the database and make files beside it.
func (d *doctor) access() {
	if what := host.ShutFile(d.path, d.info); what != "" {
		d.shut = true
		d.say("access", SeverityError, remedyAccess(d.path, "u+w"), "%s", what)
	}
	if what := host.ShutFolder(d.path); what != "" {
		d.say("access", SeverityError, remedyAccess(filepath.Dir(d.path), "u+wx"), "%s", what)
	}
}

func remedyAccess(path, mode string) string {
	if info, err := os.Stat(path); err == nil && host.Mine(info) {
		return hint("chmod "+mode, path)
	}
	return "run it as the user of the service, or mend owner and mode"
}

// whole looks for a log or an index that was taken away while a process uses it.
func (d *doctor) whole() {
	if err := checkWhole(d.path, d.info); err != nil {
		d.say("files", SeverityError, "leave the processes that use it running until each has logged where it has saved what it had", "%v", err)
	}
}

// saved compares with the database the copies that processes have saved when a file was
// taken away: counters that every lease, new job or change of lanes raises, the time of the last
// write, and the jobs that had not ended in the copy.
func (d *doctor) saved() {
	var own meta // nothing, of a database that cannot be read
	_ = plain{d.ctx, d.db}.row(sqlMeta, nil, own.dest()...)
	copies, _ := savedCopies(d.path)
	for _, name := range copies {
		const why = "a process saved it when a file of the database was taken away"
		m, err := metaOf(d.ctx, name)
		missing, later := 0, own.nextJob > m.nextJob || own.nextToken > m.nextToken || own.gen > m.gen
		lacks := own.nextJob < m.nextJob || own.nextToken < m.nextToken || own.gen < m.gen || own.clock < m.clock && !later
		if err == nil && !lacks {
			missing, err = d.missing(name)
		}
		switch {
		case err != nil:
			d.say("saved copies", SeverityWarning, "look at it with errand doctor", "%s: %v", name, err)
		case lacks:
			d.say("saved copies", SeverityError, "stop all processes, move the database and its -wal and -shm away, and rename the copy to its name",
				"%s has what the database lacks: %s", name, why)
		case missing > 0:
			d.say("saved copies", SeverityWarning, "look for them with errand jobs ls in the copy, and enqueue again what was lost",
				"%s: %s; of the jobs that had not ended then, the database lacks %d: they were lost, or have ended since and are not kept", name, why, missing)
		default:
			d.say("saved copies", SeverityWarning, "delete the copy, unless you miss something", "%s: %s; the database has all jobs that had not ended then", name, why)
		}
	}
}

// metaOf reads the counters of a copy.
func metaOf(ctx context.Context, name string) (m meta, err error) {
	db, err := sql.Open("sqlite", viewDSN(name, withoutLog, 0))
	if err != nil {
		return m, err
	}
	err = plain{ctx, db}.row(sqlMeta, nil, m.dest()...)
	return m, errors.Join(err, db.Close())
}

// missing returns how many jobs that live in a copy are not in the database.
func (d *doctor) missing(name string) (n int, err error) {
	db := plain{d.ctx, d.db} // which is one connection
	if _, err = db.exec(sqlAttachSaved, (&url.URL{Scheme: "file", OmitHost: true, Path: name, RawQuery: "mode=ro&immutable=1"}).String()); err != nil {
		return 0, err
	}
	err = db.row(sqlMissing, nil, &n)
	_, e := db.exec(sqlDetachSaved)
	return n, errors.Join(err, e)
}

// beside looks at the files beside the database. database: it is one. Modes
// are compared only if it can be written, since they depend on its own.
func (d *doctor) beside(database bool) error {
	modes := database && !d.shut
	switch perm := d.info.Mode().Perm(); {
	case modes && perm&0o002 != 0:
		d.say("modes", SeverityWarning, "chmod o= the database and the files beside it", "mode %v: everybody on this machine can write it", d.info.Mode())
	case modes && perm&0o004 != 0:
		d.say("modes", SeverityNote, "", "mode %v: everybody on this machine can read it", d.info.Mode())
	}
	folder := filepath.Dir(d.path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return unreadable(err, folder)
	}
	base := filepath.Base(d.path)
	for _, e := range entries {
		name := e.Name()
		if len(name) <= len(base) || name[:len(base)] != base {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		d.file(name[len(base):], info, modes)
	}
	return nil
}

func (d *doctor) file(suffix string, info os.FileInfo, modes bool) {
	_, instance := instanceOf(suffix)
	if _, shows := numberOf(suffix, "-workers-"); shows {
		instance = true
	}
	sqlites := slices.Contains(sqliteNames, suffix)
	switch {
	case !instance && !sqlites && !slices.Contains(errandNames, suffix):
		return // not ours
	case d.unfit(suffix, info, sqlites) || suffix == roomEnd: // which is there for a moment
		return
	}
	switch {
	case suffix == "-wal" && info.Size() > warnAt*4096:
		d.say("log", SeverityWarning, "end whoever reads for so long; if nobody uses the file, open and close it once", "%d MiB", info.Size()>>20)
	case suffix == "-wal":
		d.say("log", SeverityOK, "", "%d KiB", info.Size()>>10)
	case suffix == "-ballast" && info.Size() == 0:
		d.say("ballast", SeverityWarning, remedyRoom, "it was given up, since the disk was full: no job can be added")
	case suffix == "-ballast":
		d.say("ballast", SeverityOK, "", "%d KiB", info.Size()>>10)
	case suffix == "-check" && info.Size() > 0:
		d.say("check", SeverityError, remedyRestore, "a check after an unclean stop has found damage: no work is taken in until one finds none")
	case suffix == "-check":
		d.say("check", SeverityNote, "", "one is due after an unclean stop; the next process that opens it does it, unless one is at it")
	case suffix == "-journal":
		d.say("leftovers", SeverityWarning, "open it once with SQLite, which rolls the transaction back", "%s: a transaction of another mode was cut off", info.Name())
	}
	want := host.BesideMode(d.info)
	if sqlites {
		want = d.info.Mode().Perm() & 0o666
	}
	if modes && !d.flat && info.Mode().Perm()&0o666 != want {
		d.say("modes", SeverityWarning, hint(fmt.Sprintf("chmod %o", want), info.Name()),
			"%s has mode %v, the database %v", info.Name(), info.Mode(), d.info.Mode())
	}
}

// unfit reports whether neither errand nor SQLite can have made the file with this suffix.
func (d *doctor) unfit(suffix string, info os.FileInfo, sqlites bool) bool {
	owner, remedy := d.info, "move it away"
	if sqlites {
		owner = nil
		if info.Mode().IsRegular() { // it may be a log with jobs
			remedy = "remove all its names but this one"
		}
	}
	var e *host.UnfitError
	if !errors.As(host.Fit(d.path+suffix, owner), &e) {
		return false
	}
	d.odd = d.odd || sqlites
	d.say("files", SeverityError, remedy, "%s %s: must be a regular file of one name, that errand has made", info.Name(), e.What)
	return true
}

// instanceOf returns the number of the instance whose file has this suffix, and false
// for other files.
func instanceOf(suffix string) (id int64, ok bool) { return numberOf(suffix, "-instance-") }

// numberOf returns the number after a prefix, and false for other suffixes.
func numberOf(suffix, prefix string) (id int64, ok bool) {
	text, ok := strings.CutPrefix(suffix, prefix)
	id, err := strconv.ParseInt(text, 10, 64)
	return id, ok && err == nil && strconv.FormatInt(id, 10) == text
}

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
	if _, _, err := Libraries(); err != nil {
		d.say("libc", SeverityWarning, "build this program anew with that version", "%v", err)
	}
	return nil
}

// integrity has SQLite check the file.
func (d *doctor) integrity() error {
	text, name := sqlQuickCheck, "quick_check"
	if d.full {
		text, name = sqlFullCheck, "integrity_check"
	}
	lines, err := quickCheck(plain{d.ctx, d.db}, text)
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
	d.tables = have
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
		return nil
	}
	if have == schemaVersion {
		err = checkSchema(d.ctx, conn)
	}
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		d.say("schema", SeverityError, remedyRestore, "%v", err)
	case err != nil:
		return err
	case have < schemaVersion:
		d.say("schema", SeverityNote, "", "version %d, will become %d when it is opened", have, schemaVersion)
	default:
		d.say("schema", SeverityOK, "", "version %d", have)
	}
	return nil
}

// counts compares the kept numbers with real ones.
func (d *doctor) counts() error {
	n, err := countRows(d.ctx, d.db, sqlWrongCounts)
	if err != nil {
		return err
	}
	if n > 0 {
		d.say("counts", SeverityError, remedyInvariant, "wrong: %s", plural(n, "kept count"))
	} else {
		d.say("counts", SeverityOK, "", "the kept counts are right")
	}
	return d.jobs()
}

// invariants checks what must hold in the tables, which takes as long as reading them.
func (d *doctor) invariants() error {
	if !d.full {
		return nil
	}
	broken, err := checkInvariants(d.ctx, d.db, d.tables, false)
	d.found = append(d.found, broken...)
	if err == nil && len(broken) == 0 {
		d.say("invariants", SeverityOK, "", "those about jobs, keys, policies and schedules hold")
	}
	return err
}

// jobs counts them by state.
func (d *doctor) jobs() error {
	var state, n int64
	var all []string
	err := plain{d.ctx, d.db}.each(sqlJobsByState, nil, []any{&state, &n}, func() {
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

// instances finds the processes that are gone, and what they have left.
func (d *doctor) instances() error {
	registered := map[int64]bool{}
	var id int64
	var name, boot string
	var leases int
	err := plain{d.ctx, d.db}.each(sqlLeasesOf, nil, []any{&id, &name, &boot, &leases}, func() {
		registered[id] = true
		alive, err := locked(instancePath(d.path, id), d.info)
		switch {
		case boot == backupBoot: // whether the process was at work, or had died, the copy does not say
			d.say("instances", SeverityNote, "", "%s was registered when this backup was taken, with %s; a worker begins anew what was running", name, plural(leases, "running job"))
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
	left, err := countRows(d.ctx, d.db, sqlHeldByNobody)
	if err != nil {
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
		id, ours := instanceOf(suffix)
		if shows, is := numberOf(suffix, "-workers-"); is {
			id, ours = shows, true
		}
		if !ok || !ours || registered[id] {
			continue
		}
		if alive, err := locked(instancePath(d.path, id), d.info); err == nil && !alive {
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
	defer func() { _ = f.Close() }() // drops the lock too
	free, err := host.TryShared(f)
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
		d.say("clock", SeverityWarning, "if the clock of this machine is right again, let a worker run for ten minutes; else set it right; see docs/schedules.md",
			"the database has seen %s, %v ahead of now", mark.Format(time.RFC3339), mark.Sub(d.now).Round(time.Second))
	case shifting:
		d.say("clock", SeverityNote, "", "due times are being moved, since the clock was wrong")
	default:
		d.say("clock", SeverityOK, "", "not ahead of now")
	}
	return nil
}
