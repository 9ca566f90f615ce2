package sqlite_test

import (
	"os"
	"testing"
	"time"

	"github.com/errandq/errand/storage/sqlite"
)

// aged makes the files of a database older than what a Store that only reads takes for new.
func aged(t *testing.T, d *db) {
	t.Helper()
	for _, name := range []string{d.path, d.path + "-wal"} {
		at := time.Now().Add(-time.Minute)
		if err := os.Chtimes(name, at, at); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// While nothing is committed the version stands still, also if much is read.
func TestVersion(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		d := left(t, closeStore)
		var s *sqlite.Store
		if readOnly {
			s = d.openReadOnly()
		} else {
			s = d.open()
		}
		version := func() int64 {
			t.Helper()
			n, err := s.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		stands := func(what string) {
			t.Helper()
			was := version()
			if _, err := s.Stats(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := version(); n != was {
				t.Errorf("read only %v, %s: the version was %d, and is %d", readOnly, what, was, n)
			}
		}
		aged(t, d)
		version() // a Store that only reads has looked once
		stands("as left")
		was := version()
		w := d.open()
		enqueue(t, w, "a", 1)
		if n := version(); n == was {
			t.Errorf("read only %v: the version is still %d after a commit", readOnly, n)
		}
		was = version()
		aged(t, d)
		version()
		enqueue(t, w, "a", 1)
		if n := version(); n == was {
			t.Errorf("read only %v: the version is still %d after another one", readOnly, n)
		}
		aged(t, d)
		version()
		stands("with a log")
		closeStore(d, w)
		closeStore(d, s)
		if _, err := s.Version(t.Context()); err == nil {
			t.Error("a version after Close")
		}
	}
}

// What was written a moment ago may have been written once more within the step of the clock by
// which files are dated, and so may what the clock says is still to come.
func TestVersion_justWritten(t *testing.T) {
	d := left(t, closeStore)
	s := d.openReadOnly()
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(d.path, later, later); err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	for range 3 {
		n, err := s.Version(t.Context())
		if err != nil || n == last {
			t.Errorf("version %d, %v after %d", n, err, last)
		}
		last = n
	}
}
