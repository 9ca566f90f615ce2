package sqlite_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// message is a publication with jobs.
func message(id string, jobs ...storage.NewJob) storage.Publication {
	return storage.Publication{Message: storage.Message{ID: id, Topic: "t", Body: []byte("body")}, Jobs: jobs}
}

func hasMessage(t *testing.T, s *sqlite.Store, id string, want bool) {
	t.Helper()
	if _, err := s.Message(t.Context(), id); want && err != nil || !want && !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("message %q: %v, want it there: %v", id, err, want)
	}
}

// PublishMessagesTx is PublishMessages inside tx: what it wrote is there if tx commits.
// A refusal leaves the transaction as it was.
func TestStore_PublishMessagesTx(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx := t.Context()
	plain := func(fn func(*sql.Tx) error) error {
		tx, err := app.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	revision, err := s.PutEntries(ctx, t0, []storage.Entry{{Class: "c", Name: "a", Family: "f", Doc: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	oops := errors.New("oops")
	for name, run := range map[string]func(func(*sql.Tx) error) error{"plain": plain, "own": func(fn func(*sql.Tx) error) error { return inTx(ctx, s, fn) }} {
		t.Run(name, func(t *testing.T) {
			id := "a-" + name
			var out []storage.PublishResult
			for _, fails := range []error{oops, nil} {
				err := run(func(tx *sql.Tx) error {
					stale := message("stale", newJob("default", "a"))
					stale.Family, stale.Revision = "f", revision-1
					if _, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{stale}); !errors.Is(err, storage.ErrStale) {
						t.Errorf("a stale family: %v", err)
					}
					p := message(id, newJob("default", "a"), newJob("default", "b"))
					p.Family, p.Revision = "f", revision
					got, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{p})
					if err != nil {
						return err
					}
					out = got
					again, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{message(id, newJob("default", "a"))})
					if err != nil || !again[0].Duplicate {
						t.Errorf("the same again: %+v, %v", again, err)
					}
					return fails
				})
				if !errors.Is(err, fails) {
					t.Fatal(err)
				}
				hasMessage(t, s, id, fails == nil)
				hasMessage(t, s, "stale", false)
				if c := counts(t, s); (c[storage.Ready] == 2) != (fails == nil) {
					t.Errorf("counts %v after %v", c, fails)
				}
			}
			// The last job takes the message along, also here.
			if err := run(func(tx *sql.Tx) error {
				for _, e := range out[0].Jobs {
					if _, err := s.CancelTx(ctx, tx, t0, e.ID, storage.Retention{}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			hasMessage(t, s, id, false)
		})
	}
	other, _, _ := appStore(t, nil)
	tx, err := other.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{message("a")}); !errors.Is(err, storage.ErrWrongDatabase) {
		t.Errorf("a transaction on another database: %v", err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_body"); n != 0 {
		t.Errorf("%d bodies are left", n)
	}
}

// A job that is evicted takes its message along, as one does that is deleted.
func TestStore_EvictedMessages(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	ctx := t.Context()
	set := storage.Settings{storage.SettingMaxJobs: 1, storage.SettingWhenFull: int64(storage.EvictOldest)}
	if err := s.Configure(ctx, storage.Lane{Queue: "default"}, set); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if _, err := s.PublishMessages(ctx, t0, []storage.Publication{message(id, newJob("default", "a"))}); err != nil {
			t.Fatal(err)
		}
	}
	hasMessage(t, s, "a", false)
	hasMessage(t, s, "b", false)
	hasMessage(t, s, "c", true)
	full := storage.Settings{storage.SettingWhenFull: int64(storage.Refuse)}
	if err := s.Configure(ctx, storage.Lane{Queue: "default"}, full); err != nil {
		t.Fatal(err)
	}
	var f *storage.QueueFullError
	if _, err := s.PublishMessages(ctx, t0, []storage.Publication{message("d", newJob("default", "a"))}); !errors.As(err, &f) {
		t.Errorf("a queue that is full: %v", err)
	}
	hasMessage(t, s, "d", false)
}

// A copy has the messages and entries, and so has a Store that only reads.
func TestStore_CopiesMessages(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	ctx := t.Context()
	p := message("kept", newJob("default", "a"))
	p.Message.KeepUntil = t0.Add(time.Hour)
	if _, err := s.PublishMessages(ctx, t0, []storage.Publication{message("a", newJob("default", "a")), p}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutEntries(ctx, t0, []storage.Entry{{Class: "c", Name: "e", Doc: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	c := d.backup(s)
	copied := c.openReadOnly()
	hasMessage(t, copied, "a", true)
	list, next, err := copied.Messages(ctx, "t", t0, "", 10)
	if err != nil || len(list) != 2 || next != "" || !list[1].KeepUntil.Equal(t0.Add(time.Hour)) {
		t.Errorf("Messages of a copy: %+v, %q, %v", list, next, err)
	}
	if e, err := copied.Entry(ctx, "c", "e"); err != nil || string(e.Doc) != "1" {
		t.Errorf("an entry of a copy: %+v, %v", e, err)
	}
}
