//go:build unix

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// wantTwoNames wants a file refused since it has two names.
func wantTwoNames(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, storage.ErrUnsupportedDB) || !strings.Contains(err.Error(), ": remove all names but one, unless") {
		t.Errorf("%s: %v, want ErrUnsupportedDB and what to do", what, err)
	}
}

// A file with two names has two logs: what is written by one name is not seen,
// and in the end lost, by the other.
func TestOpen_HardLink(t *testing.T) {
	d := newDB(t, nil)
	if err := d.open().Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(d.path, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{d.path, link} {
		_, err := sqlite.Open(path, nil)
		wantTwoNames(t, "Open", err)
		_, err = sqlite.New(appDB(t, "file:"+path), nil)
		wantTwoNames(t, "New", err)
		if s, err := sqlite.Open(path, &sqlite.Options{AnyFileSystem: true}); err != nil {
			t.Errorf("with AnyFileSystem: %v", err)
		} else if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	found, err := sqlite.Examine(context.Background(), d.path, false, t0)
	if err != nil || !has(found, "names", sqlite.SeverityError) {
		t.Errorf("the doctor says %v (%v), want an error about names", found, err)
	}
}

// A transaction on another name of the file would write to another log.
func TestStore_EnqueueTx_HardLink(t *testing.T) {
	_, s, d := appStore(t, nil)
	d.exec("PRAGMA wal_checkpoint(TRUNCATE)") // else there is nothing by the other name
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Link(d.path, link); err != nil {
		t.Fatal(err)
	}
	tx, err := appDB(t, "file:"+link).Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.EnqueueTx(context.Background(), tx, t0, one())
	wantTwoNames(t, "EnqueueTx", err)
	if err := errors.Join(tx.Rollback(), os.Remove(link)); err != nil {
		t.Fatal(err)
	}
}

// A folder may have two names: all files in it are the same by both.
func TestStore_EnqueueTx_FolderByAnotherName(t *testing.T) {
	_, s, d := appStore(t, nil)
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Symlink(filepath.Dir(d.path), folder); err != nil {
		t.Fatal(err)
	}
	tx, err := appDB(t, "file:"+filepath.Join(folder, "jobs.db")+"?_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(context.Background(), tx, t0, one()); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.Fatal(err)
	}
}

func TestStore_GivenAnotherName(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	if err := os.Link(d.path, d.path+".link"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Enqueue(context.Background(), t0, one())
	wantTwoNames(t, "Enqueue", err)
	if _, err := s.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("and again: %v, want ErrClosed", err)
	}
}
