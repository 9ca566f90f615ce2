//go:build unix

package torture_test

import (
	"context"
	"errors"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func init() { roles["rival"], roles["reader"] = rival, reader }

// rival is a program that knows nothing of errand and keeps the database
// locked until it is told to stop.
func rival(p part, v *voice) error { return hold(p, v, "BEGIN IMMEDIATE") }

// reader is one that reads for as long.
func reader(p part, v *voice) error {
	return hold(p, v, "BEGIN", "SELECT COUNT(*) FROM errand_job")
}

func hold(p part, v *voice, begin ...string) error {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := raw(p.DB)
	if err != nil {
		return err
	}
	conn, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	for _, text := range begin {
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			return err
		}
	}
	v.say("holding")
	<-told.Done()
	_, err = conn.ExecContext(context.Background(), "ROLLBACK")
	return errors.Join(err, conn.Close(), db.Close())
}

// A rival that keeps the database locked, for six times as long as errand waits
// for it and for many leases: Enqueue returns ErrBusy in time, reading works, and
// when the rival is done everything goes on. What ran meanwhile has lost its
// lease, and runs again.
func TestRival_LocksTheDatabase(t *testing.T) {
	t.Parallel()
	busy := 200 * time.Millisecond
	if full() {
		busy = 5 * time.Second // as it is by default
	}
	locked := 6 * busy
	f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{Workers: 4, Busy: busy})
	for range 8 {
		if err := f.enqueue(10); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		<-f.begun
	}
	r := start(t, f.ledger, part{Role: "rival", DB: f.path})
	r.hears("holding")
	begin, refused, slowest := time.Now(), 0, time.Duration(0)
	for time.Since(begin) < locked {
		asked := time.Now()
		err := f.enqueue(10)
		took := time.Since(asked) // SQLite adds up how long it meant to sleep: longer on a busy machine
		if slowest = max(slowest, took); !errors.Is(err, errand.ErrBusy) || took > 2*busy+time.Minute {
			t.Errorf("Enqueue while a rival writes: %v after %v, want ErrBusy after %v", err, took, busy)
		}
		refused++
		if _, err := f.q.Counts(t.Context()); err != nil {
			t.Errorf("Counts while a rival writes: %v", err)
		}
		for n, id := range f.ids {
			if _, err := f.q.Job(t.Context(), id); err != nil {
				t.Errorf("job %d while a rival writes: %v", n, err)
			}
		}
	}
	close(f.release)
	f.by.faulty.Store(true) // its leases have ended meanwhile
	r.finishSoon(time.Minute)
	free := time.Now()
	if err := f.enqueue(10); err != nil {
		t.Errorf("Enqueue when the rival is done: %v", err)
	}
	await(t, time.Minute, "all is drained", func() bool { return f.worked(t) })
	t.Logf("locked for %v, %d times ErrBusy, after %v at most, drained %v after that", locked, refused, slowest, time.Since(free))
	f.close(t)
	found := f.ledger.audit(t, f.path)
	found.mustBeClean(t, "a rival's lock of %v", locked)
	t.Logf("%v; %s", found, f.ledger.verbs())
}

// A reader that does not end keeps the log from being emptied: nothing else
// fails, it is warned of, and when the reader has ended the log grows no more.
func TestReader_PinsTheLog(t *testing.T) {
	t.Parallel()
	size := 2 << 20 // of what is enqueued meanwhile
	if full() {
		size = 80 << 20 // more than what is to be warned of
	}
	f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{Relaxed: true})
	write := func(bytes int) {
		t.Helper()
		for range bytes / (200 << 10) {
			if err := f.enqueue(200 << 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(1 << 20)
	r := start(t, f.ledger, part{Role: "reader", DB: f.path})
	r.hears("holding")
	write(size)
	pinned := fileSize(t, f.path+"-wal")
	if pinned < int64(size) {
		t.Errorf("the log has %d bytes after %d were written: the reader does not pin it", pinned, size)
	}
	warned := f.log.count("write-ahead log grows")
	if full() && warned != 1 {
		t.Errorf("warned %d times of a log of %d bytes: want once", warned, pinned)
	}
	r.finishSoon(time.Minute)
	write(1 << 20) // after which there is a checkpoint, at the latest in a pause
	await(t, time.Minute, "the log is begun anew", func() bool {
		write(200 << 10)
		<-time.After(1100 * time.Millisecond)
		return fileSize(t, f.path) > int64(size)
	})
	after := fileSize(t, f.path+"-wal")
	write(size / 2)
	if end := fileSize(t, f.path+"-wal"); end > after {
		t.Errorf("the log grows on from %d to %d bytes, though nobody reads", after, end)
	}
	t.Logf("the log had %d bytes with a reader, %d after it; warned %d times", pinned, after, warned)
	f.close(t)
	f.ledger.audit(t, f.path).mustBeClean(t, "a reader that pins the log")
}
