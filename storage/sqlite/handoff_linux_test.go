package sqlite_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// After a commit of which nobody knows what it has written nothing is handed
// over, and the worker can withdraw its offer.
func TestHandoff_CommitFails(t *testing.T) {
	d := newDB(t, nil)
	s, err := sqlite.Open(d.path, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := offer(t, s, 1, "a")
	enqueue(t, s, "a", 1)
	w.took(t, "before", "a")
	w.Capacity(1)
	breakLog(t, d.path)
	if err := adding(s, "a")(); !errors.Is(err, storage.ErrUnknownOutcome) {
		t.Fatalf("with a broken log: %v, want ErrUnknownOutcome", err)
	}
	w.took(t, "with a broken log", "")
	w.Close()
	_ = s.Close() // says the same again
}

// breakLog has all writes to the log of a database fail, with the error that a
// failing disk gives.
func breakLog(t *testing.T, path string) {
	t.Helper()
	readOnly, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range all {
		fd, err := strconv.Atoi(filepath.Base(f))
		if to, _ := os.Readlink(f); err != nil || to != path+"-wal" {
			continue
		}
		if err := syscall.Dup3(int(readOnly.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("the log is not open")
	}
}
