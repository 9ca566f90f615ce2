package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/errandq/errand/storage"
)

// hasEntries reports whether the entries of a class are those of these names, as a call outside of
// transactions sees them.
func hasEntries(t *testing.T, what string, s storage.Topics, names ...string) {
	t.Helper()
	got, _, err := s.Entries(t.Context(), "c", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	sameEntries(t, what, got, names...)
}

func sameEntries(t *testing.T, what string, got []storage.Entry, names ...string) {
	t.Helper()
	ok := len(got) == len(names)
	for i := 0; ok && i < len(got); i++ {
		ok = got[i].Name == names[i] && string(got[i].Doc) == "doc of "+names[i]
	}
	if !ok {
		t.Errorf("%s: %+v, want %q", what, got, names)
	}
}

func entry(name string) storage.Entry {
	return storage.Entry{Class: "c", Name: name, Family: "f", Doc: []byte("doc of " + name)}
}

// What PutEntriesTx writes is seen by its transaction alone until that commits, and is gone if it
// does not. An answer leaves the transaction as it was.
func TestStore_PutEntriesTx(t *testing.T) {
	app, s, _ := appStore(t, nil)
	ctx := t.Context()
	undo := errors.New("undo")
	for way, in := range inAppTx(context.Background(), app, s) {
		a, b := way+" a", way+" b"
		var committed storage.Entry
		for _, end := range []error{undo, nil} {
			err := in(func(tx *sql.Tx) error {
				first, err := s.PutEntriesTx(ctx, tx, t0, []storage.Entry{entry(a), entry(b)})
				if err != nil || first == 0 {
					t.Fatalf("%s: revision %d, %v", way, first, err)
				}
				if _, err := s.PutEntriesTx(ctx, tx, t0, []storage.Entry{entry("z"), entry(a)}); !errors.Is(err, storage.ErrStale) {
					t.Errorf("%s: one that is there: %v, want ErrStale", way, err)
				}
				e, err := s.EntryTx(ctx, tx, "c", b)
				if err != nil || e.Revision != first || string(e.Doc) != "doc of "+b {
					t.Errorf("%s: read in the transaction: %+v, %v", way, e, err)
				}
				if _, err := s.EntryTx(ctx, tx, "c", "none"); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("%s: none: %v, want ErrNotFound", way, err)
				}
				e.Delete = true
				last, err := s.PutEntriesTx(ctx, tx, t0, []storage.Entry{e})
				if err != nil || last <= first {
					t.Errorf("%s: revision %d after %d, %v", way, last, first, err)
				}
				got, revision, err := s.EntriesTx(ctx, tx, "c", "f", way, 1)
				if err != nil || revision != last {
					t.Errorf("%s: revision %d, want %d, %v", way, revision, last, err)
				}
				sameEntries(t, way+", a list in the transaction", got, a)
				if got, revision, err = s.EntriesTx(ctx, tx, "c", "", a, 9); err != nil || revision != 0 || len(got) > 0 {
					t.Errorf("%s: after the last: %+v, revision %d, %v", way, got, revision, err)
				}
				if e, err := s.Entry(ctx, "c", a); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("%s: outside of the transaction: %+v, %v", way, e, err)
				}
				committed = entry(a)
				committed.Revision = first
				return end
			})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
			if errors.Is(end, undo) {
				hasEntries(t, way+", rolled back", s)
			}
		}
		hasEntries(t, way, s, a)
		committed.Delete = true
		if _, err := s.PutEntries(ctx, t0, []storage.Entry{committed}); err != nil {
			t.Errorf("%s: at the revision of the transaction: %v", way, err)
		}
	}
}

// Settings hold in the transaction that sets them and, once it has committed, everywhere.
func TestStore_ConfigureTx(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx := t.Context()
	other := d.open()
	undo := errors.New("undo")
	n := 0
	for way, in := range inAppTx(context.Background(), app, s) {
		for _, end := range []error{undo, nil} {
			n++
			lane := storage.Lane{Queue: fmt.Sprint("q", n)}
			one := []storage.NewJob{newJob(lane.Queue, "a")}
			if _, err := s.Enqueue(ctx, t0, one); err != nil {
				t.Fatal(err)
			}
			err := in(func(tx *sql.Tx) error {
				if err := s.ConfigureTx(ctx, tx, lane, storage.Settings{storage.SettingMaxJobs: 2}); err != nil {
					return err
				}
				if _, err := s.EnqueueTx(ctx, tx, t0, one); err != nil {
					return err
				}
				if _, err := s.EnqueueTx(ctx, tx, t0, one); !errors.Is(err, storage.ErrQueueFull) {
					t.Errorf("%s, in the transaction: %v, want ErrQueueFull", way, err)
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Fatal(err)
			}
			for name, s := range map[string]storage.Store{"the same process": s, "another process": other} {
				for range 2 {
					_, err := s.Enqueue(ctx, t0, one)
					if full := errors.Is(err, storage.ErrQueueFull); full != (end == nil) || !full && err != nil {
						t.Errorf("%s, %s, rolled back: %v: %v", way, name, errors.Is(end, undo), err)
					}
				}
			}
		}
	}
}

func TestStore_entriesTx_refused(t *testing.T) {
	app, s, _ := appStore(t, nil)
	other := appDB(t, "file:"+t.TempDir()+"/other.db?_pragma=journal_mode(wal)")
	ctx := t.Context()
	calls := map[string]func(tx any) error{
		"PutEntriesTx": func(tx any) error { _, err := s.PutEntriesTx(ctx, tx, t0, []storage.Entry{entry("a")}); return err },
		"EntryTx":      func(tx any) error { _, err := s.EntryTx(ctx, tx, "c", "a"); return err },
		"EntriesTx":    func(tx any) error { _, _, err := s.EntriesTx(ctx, tx, "c", "", "", 1); return err },
		"ConfigureTx": func(tx any) error {
			return s.ConfigureTx(ctx, tx, storage.Lane{Queue: "q"}, storage.Settings{storage.SettingMaxJobs: 1})
		},
	}
	for name, call := range calls {
		tx, err := other.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := call(tx); !errors.Is(err, storage.ErrWrongDatabase) {
			t.Errorf("%s in another database: %v", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := call(17); !errors.Is(err, storage.ErrWrongDatabase) {
			t.Errorf("%s in no transaction: %v", name, err)
		}
		if tx, err = app.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := call(tx); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s in a transaction that has ended: %v", name, err)
		}
	}
	hasEntries(t, "after that", s)
}
