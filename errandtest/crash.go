package errandtest

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// Crash returns the queue as the next process finds it if this one is killed now. q is a queue
// of [New] or [NewOn], or one that Crash has returned, on a SQLite file; it goes on as before, and nothing that is done to
// it from now on is seen in the queue that Crash returns.
//
// A handler, or something that it calls, can call Crash where the process is to die. In the
// returned queue its attempt has then crashed: a worker counts the crash and runs the job
// again, one second after the attempt began at the earliest. [Drain] with Scheduled waits for
// that. Jobs of other attempts that have not ended come back as after a kill too. Tables of
// the application in the file are as they were committed; its memory and what it did
// elsewhere are not undone.
//
// The returned queue has the options of q, and the same clock. It is closed and examined at
// the end of the test as q is. If the file of q is the application's database, the
// application's tables are read by [errand.Queue.Tx] of the returned queue.
func Crash(t testing.TB, q *errand.Queue) *errand.Queue {
	t.Helper()
	r := rigOf(q)
	if r == nil || r.path == "" {
		t.Fatal("errandtest: Crash: the queue must be one of errandtest.New or NewOn that is open, on a SQLite file")
	}
	path := filepath.Join(t.TempDir(), filepath.Base(r.path))
	if err := r.copyTo(path); err != nil {
		t.Fatalf("errandtest: Crash: %v", err)
	}
	next := &rig{options: r.options, sqlite: r.sqlite, clock: r.clock}
	return next.openFile(t, path)
}

// copyTo copies what is left of a process that is killed: the database as it was committed,
// and after it the notes of the attempts that have begun and ended, which are in files beside
// it. In the other order the copy could lack the note of an attempt. Nobody has a lock on the
// copies of these files, as nobody has on those of a dead process.
func (r *rig) copyTo(path string) error {
	db, err := sql.Open("sqlite", r.path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it has only been read
	if _, err := db.ExecContext(context.Background(), "VACUUM INTO ?1", path); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	notes, err := filepath.Glob(r.path + "-instance-*")
	if err != nil {
		return err
	}
	for _, from := range notes {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+strings.TrimPrefix(from, r.path), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}
