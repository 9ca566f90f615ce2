package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite/internal/host"
)

const (
	sqlAddInstance   = `INSERT INTO errand_instance (instance, name, boot, lease, since) VALUES (?1, ?2, ?3, ?4, ?5)`
	sqlInstanceLease = `UPDATE errand_instance SET lease = ?2 WHERE instance = ?1 AND lease < ?2`
	sqlKeepLeases    = `UPDATE errand_instance SET lease = 0 WHERE instance = ?1`
	sqlOwnLeases     = `SELECT id, token FROM errand_job WHERE state = 3 AND instance = ?1`
	sqlMoveLeases    = `UPDATE errand_job SET instance = ?2 WHERE state = 3 AND instance = ?1`
	sqlHandBack      = `UPDATE errand_job SET instance = ?3, fate = CASE fate WHEN 0 THEN ?4 ELSE fate END WHERE id = ?1 AND token = ?2`
	sqlDropInstance  = `DELETE FROM errand_instance WHERE instance = ?1
AND NOT EXISTS (SELECT 1 FROM errand_job WHERE state = 3 AND instance = ?1)`
)

// instance is this Store as others see it: a row in the database, and a file
// beside it whose lock the kernel drops with the process. The file holds the
// notes of Started, Stopping and Ended, sixteen bytes a slot: the token, shifted
// left by one (none in the first slot, see Pulse), plus one once the handler has returned or is no longer to blame
// for the death of the process, and when it was called. They
// reach the kernel but are not synced: they are to outlive the process, not the
// machine, and are in the byte order of the machine.
type instance struct {
	id atomic.Int64 // 0 until registered

	mu     sync.Mutex
	file   *os.File
	ended  bool // no handler may start any more
	left   bool // by Close, to the handlers that run: the last one lets go of the file
	notes  host.Notes
	name   string
	lease  time.Duration  // longest promised so far
	slots  map[int64]slot // by token: of what was started and is not finished
	free   []int64
	pulses int64
	held   map[int64]removed // by token; what was leased here and not reclaimed from others
}

// slot is where the notes of an attempt are.
type slot struct {
	n       int64
	running bool // its handler
}

// processName tells people which process an instance was.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func (in *instance) number() int64 { return in.id.Load() }

// title is the name under which it is registered.
func (in *instance) title() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.name
}

func instancePath(db string, id int64) string { return fmt.Sprintf("%s-instance-%d", db, id) }

// register gives the number of this instance. With the first lease it makes
// one: file and lock come before the row, so that nobody ever sees the row of
// a living process without its lock. If the row was deleted, which others may
// do if they miss the file, it makes another one: nobody would ever take over
// what is leased under a number that is not registered.
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
	for range 100 { // files of a database that was there before this one
		if !errors.Is(err, errTaken) {
			break
		}
		id++
		f, err = lockedFile(instancePath(t.store.path, id), t.store.info)
	}
	if err != nil {
		return 0, err
	}
	t.undo = append(t.undo, func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) })
	name := fmt.Sprintf("%s/%d", processName(), id)
	lease = max(lease, in.lease)
	if was := in.number(); was != 0 {
		if _, err := t.exec(sqlMoveLeases, was, id); err != nil {
			return 0, err
		}
	}
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
			t.store.opts.Logger.Warn("errand: what the process knows of its running handlers is lost if it dies", "error", err)
		}
		in.id.Store(id)
	})
	return id, nil
}

// moveTo has the notes kept in another file, which those of the running
// handlers go along to.
func (in *instance) moveTo(f *os.File) (err error) {
	old, was := in.notes, in.file
	in.file, in.notes = f, host.Notes{File: f}
	if was == nil {
		in.slots, in.held = map[int64]slot{}, map[int64]removed{}
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

// lockedFile makes a file and locks it; errTaken if another process has.
func lockedFile(path string, db os.FileInfo) (*os.File, error) {
	f, err := openBeside(path, os.O_RDWR, db)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnregistered, err)
	}
	ok, err := host.TryLock(f)
	if err == nil && !ok {
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

func (in *instance) promise(lease time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lease = max(in.lease, lease)
}

// Started implements [storage.Store].
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
	at.running = true
	in.slots[l.Token] = at
	return translate(in.notes.Start(at.n, l.Token, micros(now)))
}

// Stopping implements [storage.Store].
func (s *Store) Stopping(l storage.Lease) error { return s.self.end(l, true) }

// Ended implements [storage.Store].
func (s *Store) Ended(l storage.Lease) error { return s.self.end(l, false) }

// end notes that the death of the process is no longer the fault of a handler,
// which is running on or not.
func (in *instance) end(l storage.Lease, running bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	at, ok := in.slots[l.Token]
	if !ok || in.file == nil { // after Close
		return nil
	}
	if at.running && !running {
		at.running = false
		in.slots[l.Token] = at
	}
	err := in.notes.End(at.n, l.Token)
	if in.left && !in.runs() {
		err = errors.Join(err, in.letGo())
	}
	return translate(err)
}

// runs tells whether a handler runs; in is locked.
func (in *instance) runs() bool {
	for _, at := range in.slots {
		if at.running {
			return true
		}
	}
	return false
}

// hold remembers of new leases what their end needs to know, which saves
// reading it then.
func (in *instance) hold(leases []storage.Leased, jobs []removed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, l := range leases {
		in.held[l.Token] = jobs[i]
	}
}

func (in *instance) holds(token int64) (removed, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	r, ok := in.held[token]
	return r, ok
}

// forget drops what is known of tokens that will not come again: those of
// leases that an exchange has ended or found lost.
func (in *instance) forget(x *storage.Exchange, out *storage.ExchangeResult) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, f := range x.Finish {
		if out.Finished[i] != storage.Refused {
			in.drop(f.Token)
		}
	}
	for i, l := range x.Extend {
		if out.Extended[i] == storage.Lost {
			in.drop(l.Token)
		}
	}
}

// drop drops one; in is locked.
func (in *instance) drop(token int64) {
	delete(in.held, token)
	if at, ok := in.slots[token]; ok {
		delete(in.slots, token)
		in.free = append(in.free, at.n)
	}
}

// abandoned keeps open the files of instances that closed while handlers ran:
// their locks stand until the last of those has returned, or the process ends.
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

// letGo drops the lock; in is locked. Others then find in the file how the
// handlers have ended.
func (in *instance) letGo() error {
	f := in.file
	in.file = nil
	abandoned.Lock()
	delete(abandoned.files, f)
	abandoned.Unlock()
	return errors.Join(in.notes.Close(), f.Close())
}

// retire drops the registration, if no handler runs. It is the last request.
func (s *Store) retire() error {
	in := &s.self
	in.mu.Lock()
	in.ended = true
	in.mu.Unlock()
	dropped := false
	r := &request{ends: true, last: true, done: make(chan error, 1), run: func(t *tx) (err error) {
		if id := cmp.Or(t.registered, in.number()); id != 0 {
			dropped, err = t.resign(id)
		}
		return err
	}}
	// Without a registration, now or in the queue, there is nothing to write.
	r.probe = func(*tx) (bool, error) { return in.number() != 0, nil }
	s.queue.reqs <- r
	err := <-r.done
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.file == nil: // nothing was registered, nothing can have gone wrong
		return nil
	case in.runs():
		in.left = true
		abandon(in.file)
		if err != nil { // the database cannot say that its leases do not lapse: the file does
			err = errors.Join(err, translate(in.notes.Start(pulseSlot, 0, endless)))
		}
		return err
	}
	path := in.file.Name()
	// If it is not known that the registration is gone, the file is to tell who
	// finds one that its process has ended.
	dropped = dropped && err == nil
	err = errors.Join(err, translate(in.letGo()))
	if dropped {
		if e := os.Remove(path); e != nil && !errors.Is(e, os.ErrNotExist) { // somebody may have deleted it
			s.opts.Logger.Warn("errand: a file that nobody needs any more cannot be deleted", "file", path, "error", e)
		}
	}
	return err
}

// closedBoot is what has no file and was left by a Store that closed.
const closedBoot = "closed"

// resign hands back what no handler runs of, and drops the registration if
// nothing is left. What is handed back goes to an instance that is gone: it is
// for a worker to decide what becomes of it.
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
			fate := storage.Cut
			if _, begun := in.slots[l.Token]; !begun {
				fate = storage.Unstarted
			}
			if _, err := t.exec(sqlHandBack, l.Key, l.Token, to, fate); err != nil {
				return false, err
			}
		}
		t.notifyAll(storage.Event{})
	}
	if len(back) < held { // what runs does not lapse while the process lives
		_, err = t.exec(sqlKeepLeases, id)
		return false, err
	}
	_, err = t.exec(sqlDropInstance, id)
	return true, err
}

// The first slot of an instance's notes has no token. Where others have the time
// is the number of its pulses, or that no lease of it lapses while its file is
// locked.
const (
	pulseSlot = 0
	endless   = -1
)

// Pulse implements [storage.Pulser].
func (s *Store) Pulse() error {
	in := &s.self
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file == nil || in.left {
		return fmt.Errorf("%w: no lease was taken", storage.ErrClosed)
	}
	if err := underItsName(in.file); err != nil { // else nobody would see it
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

// pulses returns how often an instance has shown that it lives, 0 if that cannot
// be read.
func (s *Store) pulses(id int64) int64 {
	f, err := openExisting(instancePath(s.path, id), os.O_RDONLY, s.info)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // only ever read
	return host.ReadTime(f, pulseSlot)
}
