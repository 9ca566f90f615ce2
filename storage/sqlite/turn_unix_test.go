//go:build unix

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// readerLocks locks the turn file of d as anybody can who may read it.
func readerLocks(t *testing.T, d *db) *os.File {
	t.Helper()
	f, err := os.Open(d.path + "-turn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return f
}

// Who may read the turn file may lock it, and keeps nobody from writing.
//
//errand:shows a lock that needs no right to write | | users who may only read cannot open the file of the turn. If errand cannot set its mode, a lock on it delays a write once a minute, by half of the busy timeout, and a warning names the file. A process with long transactions is not taken for such a user
func TestTurn_LockedByAReader(t *testing.T) {
	var warnings atomic.Int32
	d := newDB(t, &sqlite.Options{BusyTimeout: time.Second, Logger: slog.New(listener(func(_ slog.Level, text string) {
		if strings.Contains(text, "file by which processes take turns") {
			warnings.Add(1)
		}
	}))})
	a, b := d.open(), d.open()
	f := readerLocks(t, d)
	if _, err := a.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("beside a lock of somebody who may write: %v, want ErrBusy", err)
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		t.Fatal(err)
	}
	for warnings.Load() < 2 { // a transaction that begins late shows nothing
		enqueue(t, a, "a", 1)
		enqueue(t, b, "a", 1)
	}
	began := time.Now()
	for range 20 {
		enqueue(t, a, "a", 1)
		if err := inTx(context.Background(), a, func(*sql.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took >= 40*d.opts.BusyTimeout/2 {
		t.Errorf("40 transactions took %v: the lock was waited for each time", took)
	}
	if n := warnings.Load(); n != 2 {
		t.Errorf("%d warnings, want one of each store", n)
	}
	if _, err := sqlite.Open(d.path, &sqlite.Options{BusyTimeout: 100 * time.Millisecond, SingleProcess: true}); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("SingleProcess beside others: %v, want ErrBusy", err)
	}
	f.Close()
	enqueue(t, a, "a", 1)
	enqueue(t, b, "a", 1)
}
