package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlAddInstance   = `INSERT INTO main.errand_instance (instance, name, boot, lease, since) VALUES (?1, ?2, ?3, ?4, ?5)`
	sqlInstanceLease = `UPDATE main.errand_instance SET lease = ?2 WHERE instance = ?1 AND lease < ?2`
	sqlKnownInstance = `SELECT EXISTS (SELECT 1 FROM main.errand_instance WHERE instance = ?1)`
	sqlKeepLeases    = `UPDATE main.errand_instance SET lease = 0 WHERE instance = ?1`
	sqlOwnLeases     = `SELECT id, token FROM main.errand_job WHERE state = 3 AND instance = ?1`
	sqlDropInstance  = `DELETE FROM main.errand_instance WHERE instance = ?1
AND NOT EXISTS (SELECT 1 FROM main.errand_job WHERE state = 3 AND instance = ?1)`
)

// instance is this Store as other processes see it: a row in the database, and a
// file beside it whose lock the kernel drops with the process. The file has a note
// for each attempt: when its handler was called, and whether the handler has
// returned or is no longer to blame for the death of the process. The first slot has
// the pulses instead; see Pulse. Notes are not synced: they are to outlive the
// process, not the machine.
type instance struct {
	id     atomic.Int64 // 0 until registered
	coming atomic.Int64 // the number with which it is being registered, which others may see before id is set

	mu     sync.Mutex
	file   *os.File
	ended  bool // no handler may start any more
	left   bool // Close left the file to running handlers: the last one closes it
	apart  bool // the Store no longer has the database open
	notes  host.Notes
	name   string
	lease  time.Duration  // the longest that was promised
	slots  map[int64]slot // by token, of attempts that were started and are not finished
	free   []int64        // slots
	pulses int64
	held   map[int64]facts // by token, of jobs that were leased here

	shown shown
}

// slot is where the note of an attempt is.
type slot struct {
	n        int64
	running  bool // the handler runs
	stopping bool // and is being stopped
	tried    bool // FinishTx has ended its lease, if its transaction has committed
	over     bool // it has
}

// processName returns a name by which people find the process.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func (in *instance) number() int64 { return in.id.Load() }

// title returns the name under which the instance is registered.
func (in *instance) title() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.name
}

func instancePath(db string, id int64) string { return fmt.Sprintf("%s-instance-%d", db, id) }

// register returns the number of this instance, and registers it with the first
// lease. File and lock come before the row, so that no process sees the row of a
// living process without its lock. Another process may delete the row if the file is
// missing. Then register makes another row: nobody would take over leases of a number
// that is not registered.
func (t *tx) register(lease time.Duration) (int64, error) {
	in := &t.store.self
	in.mu.Lock()
	defer in.mu.Unlock()
	if id := cmp.Or(t.registered, in.number()); id != 0 && (id == t.registered || t.store.cache.knows(id)) {
		if lease > in.lease {
			if _, err := t.exec(sqlInstanceLease, id, lease.Microseconds()); err != nil {
				return 0, err
			}
			t.after = append(t.after, func() { in.promise(lease) })
		}
		return id, nil
	}
	id := t.meta.nextInstance
	f, err := lockedFile(instancePath(t.store.path, id), t.store.info)
	for range 100 { // files of another database that was here before
		if !errors.Is(err, errTaken) {
			break
		}
		id++
		f, err = lockedFile(instancePath(t.store.path, id), t.store.info)
	}
	if err != nil {
		return 0, err
	}
	t.undo = append(t.undo, func() { removeLocked(f) })
	name := fmt.Sprintf("%s/%d", processName(), id)
	lease = max(lease, in.lease)
	if was := in.number(); was != 0 {
		if _, err := t.apply(&delta{change: setHolders, low: was, high: id}); err != nil {
			return 0, err
		}
		if _, err := t.exec(sqlMoveStarts, was, id); err != nil {
			return 0, err
		}
	}
	in.coming.Store(id)
	t.undo = append(t.undo, func() { in.coming.Store(0) })
	if _, err := t.exec(sqlAddInstance, id, name, host.BootID(), lease.Microseconds(), time.Now().UnixMicro()); err != nil {
		return 0, err
	}
	t.registered = id
	t.meta.nextInstance = id + 1
	t.meta.gen++
	t.after = append(t.after, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.name, in.lease = name, lease
		if err := in.moveTo(f); err != nil {
			t.store.opts.Logger.Error("errand: what the process knows of its running handlers is lost if it dies", "error", err)
		}
		in.id.Store(id)
		in.coming.Store(0)
	}, t.store.showAnew)
	return id, nil
}

// moveTo keeps the notes in another file from now on, and copies those of attempts
// that are not finished.
func (in *instance) moveTo(f *os.File) (err error) {
	old, was := in.notes, in.file
	in.file, in.notes = f, host.Notes{File: f}
	if was == nil {
		in.slots, in.held = map[int64]slot{}, map[int64]facts{}
		return nil
	}
	noted, err := host.ReadNotes(io.NewSectionReader(was, 0, math.MaxInt64))
	for token, at := range in.slots {
		n := noted[token]
		err = cmp.Or(err, in.notes.Start(at.n, token, n.At))
		if n.Ended {
			err = cmp.Or(err, in.notes.End(at.n, token))
		}
	}
	return errors.Join(err, old.Close(), was.Close())
}

var (
	errTaken        = errors.New("another process has it")
	errUnregistered = errors.New("errand: instance file")
)

// lockedFile makes a file and locks it. It returns errTaken if another process holds
// the lock, or has deleted the file meanwhile.
func lockedFile(path string, db os.FileInfo) (*os.File, error) {
	f, err := openBeside(path, os.O_RDWR, db)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnregistered, err)
	}
	ok, err := host.TryLock(f)
	if err == nil && (!ok || underItsName(f) != nil) {
		err = errTaken
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w %s: cannot be locked: %w", errUnregistered, path, err), f.Close())
	}
	return f, nil
}

// removeLocked deletes a file whose lock this process holds, while it holds the lock if the system
// lets it: who comes to lock the file then finds that it is gone. What is there once the lock is
// given back may be of another process, so a file that was gone before is not looked for again.
func removeLocked(f *os.File) {
	err := os.Remove(f.Name())
	_ = f.Close() // nobody reads it
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		_ = os.Remove(f.Name()) // best effort
	}
}

// sweep deletes the files of instances that are not registered and whose process is gone: it was
// killed before it could delete them. The file of tryRoom goes too: the result of a try under way
// stays the same. What cannot be deleted does no harm.
func (s *Store) sweep() {
	_ = os.Remove(s.path + roomEnd)
	names, _ := os.ReadDir(filepath.Dir(s.path))
	db := plain{context.Background(), s.inner.DB}
	for _, id := range leftBy(names, s.path) {
		var known bool
		if db.row(sqlKnownInstance, []any{id}, &known) != nil || known {
			continue
		}
		if f, err := openBeside(instancePath(s.path, id), os.O_RDWR, s.info); err == nil {
			s.sweepFile(f, id)
		}
	}
}

// sweepFile is sweep for one instance whose file is open. Until it is locked, the instance may have
// been registered, and have died; or another process may have deleted the file, and made one of a
// new instance in its place.
func (s *Store) sweepFile(f *os.File, id int64) {
	known := true
	ok, err := host.TryLock(f)
	if err == nil && ok && underItsName(f) == nil {
		err = plain{context.Background(), s.inner.DB}.row(sqlKnownInstance, []any{id}, &known)
	}
	if err != nil || known {
		_ = f.Close()
		return
	}
	_ = os.Remove(shownPath(s.path, id))
	removeLocked(f)
}

// leftBy returns the numbers of the instances that have files among names beside a database.
func leftBy(names []os.DirEntry, db string) (ids []int64) {
	for _, e := range names {
		suffix, ok := strings.CutPrefix(e.Name(), filepath.Base(db))
		for _, prefix := range []string{"-instance-", "-workers-"} {
			if id, is := numberOf(suffix, prefix); ok && is {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (in *instance) promise(lease time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lease = max(in.lease, lease)
}

// Started implements [storage.Marker].
func (s *Store) Started(l storage.Lease, now time.Time) error {
	in := &s.self
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file == nil || in.ended {
		return fmt.Errorf("%w: no lease was taken", storage.ErrClosed)
	}
	at, ok := in.slots[l.Token]
	if !ok {
		at.n = pulseSlot + 1 + int64(len(in.slots)+len(in.free))
		if n := len(in.free); n > 0 {
			at.n, in.free = in.free[n-1], in.free[:n-1]
		}
	}
	at.running, at.stopping = true, false
	in.slots[l.Token] = at
	return translate(in.notes.Start(at.n, l.Token, micros(now)))
}

// Stopping implements [storage.Marker].
func (s *Store) Stopping(l storage.Lease) error { return s.self.end(l, true) }

// Ended implements [storage.Marker].
func (s *Store) Ended(l storage.Lease) error { return s.self.end(l, false) }

// end notes that a handler is no longer to blame if the process dies. running: the
// handler has not returned yet.
func (in *instance) end(l storage.Lease, running bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	at, ok := in.slots[l.Token]
	if !ok || in.file == nil { // after Close
		return nil
	}
	if at.running {
		at.running, at.stopping = running, true
		in.slots[l.Token] = at
	}
	err := in.notes.End(at.n, l.Token)
	if at.over && !at.running {
		in.drop(l.Token)
	}
	if in.left && !in.runs() {
		err = errors.Join(err, in.letGo())
	}
	return translate(err)
}

// runs reports whether any handler runs; in is locked.
func (in *instance) runs() bool {
	for _, at := range in.slots {
		if at.running {
			return true
		}
	}
	return false
}

// hold keeps what the end of new leases needs, so that it need not be read then.
func (in *instance) hold(jobs []facts) {
	if len(jobs) == 0 {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range jobs {
		in.held[f.Token] = f
	}
}

// holdsAny reports whether jobs are leased here.
func (in *instance) holdsAny() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.held)+len(in.slots) > 0
}

func (in *instance) holds(token int64) (facts, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r, ok := in.held[token]
	r.together = r.together && !in.slots[token].tried
	return r, ok
}

// forget drops the leases that an exchange has ended or found lost.
func (in *instance) forget(x *storage.Exchange, out *storage.ExchangeResult) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, f := range x.Finish {
		if out.Finished[i] != storage.Refused {
			in.drop(f.Token)
		}
	}
	for i, l := range x.Extend {
		switch out.Extended[i] {
		case storage.Lost:
			in.drop(l.Token)
		case storage.Ended:
			in.over(l.Token)
		}
	}
}

// forgetFacts has the end of a lease read what it needs: a checkpoint has changed it.
func (in *instance) forgetFacts(token int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.held, token)
}

// drop drops the lease of a token; in is locked.
func (in *instance) drop(token int64) {
	delete(in.held, token)
	if at, ok := in.slots[token]; ok {
		if at.running && in.file != nil {
			_ = in.notes.End(at.n, token) // else others would count it until the slot is used again
		}
		delete(in.slots, token)
		in.free = append(in.free, at.n)
	}
}

// try notes that FinishTx ends a lease if its transaction commits, or that it was rolled back.
func (in *instance) try(token int64, tried bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if at, ok := in.slots[token]; ok {
		at.tried = tried
		in.slots[token] = at
	}
}

// tried reports whether FinishTx has ended a lease, in a transaction that may have committed.
func (in *instance) tried(token int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.slots[token].tried
}

// finished drops a lease that FinishTx has ended, once its handler has returned.
func (in *instance) finished(token int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over(token)
}

// over is finished; in is locked.
func (in *instance) over(token int64) {
	at, ok := in.slots[token]
	if !ok || !at.running {
		in.drop(token)
		return
	}
	at.over = true
	in.slots[token] = at
}

// abandoned are the files of instances that closed while handlers ran. They stay
// open, and so locked, until the last handler has returned or the process ends.
var abandoned struct {
	sync.Mutex
	files map[*os.File]bool
}

func abandon(f *os.File) {
	abandoned.Lock()
	defer abandoned.Unlock()
	if abandoned.files == nil {
		abandoned.files = map[*os.File]bool{}
	}
	abandoned.files[f] = true
}

// letGo drops the lock; in is locked. Other processes then read in the file how the
// handlers have ended.
func (in *instance) letGo() error {
	f := in.file
	in.file = nil
	abandoned.Lock()
	delete(abandoned.files, f)
	abandoned.Unlock()
	return errors.Join(in.notes.Close(), f.Close())
}

// retire deletes the registration, if no handler runs. It is the last request.
func (s *Store) retire() error {
	in := &s.self
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	dropped := false
	r := &request{ends: true, last: true, done: make(chan struct{}, 1), run: func(t *tx) (err error) {
		unkept := t.unkept()
		if unkept {
			t.seen(fromMicros(s.floor.unkept.Load()))
		}
		if id := cmp.Or(t.registered, in.number()); id != 0 {
			dropped, err = t.resign(id)
		}
		if unkept {
			t.meta.clock = max(t.meta.clock, s.floor.unkept.Load())
		}
		return err
	}}
	// Without a registration, done or in the queue, there is nothing to write but the clock.
	r.probe = func(t *tx) (bool, error) { return in.number() != 0 || t.unkept(), nil }
	s.queue.reqs <- r
	err := r.answered()
	s.conceal()
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.file == nil: // nothing was registered, so no error counts
		return nil
	case in.runs():
		in.left = true
		abandon(in.file)
		if err != nil { // the database does not say that the leases do not lapse, so the file does
			return errors.Join(err, translate(in.notes.Start(pulseSlot, 0, endless)))
		}
		_ = in.part() // else Open may be refused until they have returned
		return nil
	}
	path := in.file.Name()
	// Unless the registration is known to be gone the file stays: without a lock it
	// says that the process has ended.
	dropped = dropped && err == nil
	err = errors.Join(err, translate(in.letGo()))
	if dropped {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) { // somebody may have deleted it
			s.opts.Logger.Warn("errand: a file that nobody needs any more cannot be deleted", "file", path, "error", e)
		}
	}
	return err
}

// closedBoot is the boot of instances without a file, made by a Store that closed.
const closedBoot = "closed"

// resign hands back the leases whose handlers do not run, and deletes the
// registration if no other lease is left. The leases go to an instance that is gone,
// from which a worker reclaims them.
func (t *tx) resign(id int64) (dropped bool, err error) {
	var back []storage.Lease
	var l storage.Lease
	if err := t.each(sqlOwnLeases, []any{id}, []any{&l.Key, &l.Token}, func() { back = append(back, l) }); err != nil {
		return false, err
	}
	in := &t.store.self
	in.mu.Lock()
	defer in.mu.Unlock()
	held := len(back)
	back = slices.DeleteFunc(back, func(l storage.Lease) bool { return in.slots[l.Token].running })
	t.meta.gen++
	if len(back) > 0 {
		to := t.meta.nextInstance
		t.meta.nextInstance++
		if _, err := t.exec(sqlAddInstance, to, in.name, closedBoot, in.lease.Microseconds(), time.Now().UnixMicro()); err != nil {
			return false, err
		}
		for _, l := range back {
			d := delta{change: setHolder, was: &facts{ID: l.Key, Token: l.Token}, holder: to, fate: storage.Cut}
			if _, begun := in.slots[l.Token]; !begun {
				d.fate = storage.Unstarted
			}
			if _, err := t.apply(&d); err != nil {
				return false, err
			}
		}
	}
	if len(back) < held { // the leases of running handlers do not lapse while the process lives
		_, err = t.exec(sqlKeepLeases, id)
		return false, err
	}
	_, err = t.exec(sqlDropInstance, id)
	return true, err
}

// The first slot of an instance's notes has no token. In place of the time it has
// the number of pulses, or endless: no lease lapses while the file is locked. It has
// partedToken once the Store no longer has the database open: then there are no pulses.
const (
	pulseSlot   = 0
	endless     = -1
	partedToken = math.MaxInt64 >> 1
)

// part notes in the file that this Store no longer has the database open; in is locked.
func (in *instance) part() error {
	in.apart = true
	if in.file == nil {
		return nil
	}
	return translate(in.notes.Start(pulseSlot, partedToken, 0))
}

// hasLeft reports whether the process of an instance no longer has the database open.
func hasLeft(path string, db os.FileInfo) bool {
	f, err := openExisting(path, os.O_RDONLY, db)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only ever read
	return host.ReadToken(f, pulseSlot) == partedToken || host.ReadTime(f, pulseSlot) == endless
}

// Pulse implements [storage.Pulser].
func (s *Store) Pulse() error {
	in := &s.self
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file == nil || in.left || in.apart {
		return fmt.Errorf("%w: no lease was taken", storage.ErrClosed)
	}
	if err := underItsName(in.file); err != nil { // else no other process would see it
		return fmt.Errorf("errand: instance file: %w", err)
	}
	in.pulses++
	return translate(in.notes.Start(pulseSlot, 0, in.pulses))
}

func underItsName(f *os.File) error {
	there, err := os.Stat(f.Name())
	if err != nil {
		return err
	}
	own, err := f.Stat()
	if err == nil && !os.SameFile(there, own) {
		err = fmt.Errorf("%s: another file was put there", f.Name())
	}
	return err
}

// pulses returns how many pulses an instance has written, 0 if they cannot be read.
func (s *Store) pulses(id int64) int64 {
	f, err := openExisting(instancePath(s.path, id), os.O_RDONLY, s.info)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only ever read
	return host.ReadTime(f, pulseSlot)
}
