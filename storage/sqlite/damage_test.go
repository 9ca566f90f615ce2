package sqlite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

const otherColumn = "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, 'retry', 'retrx')"

// What is in the file and cannot be of errand is called damage, whoever meets it.
func TestDamage_NotAsWritten(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		damage string
		err    func(*sqlite.Store, []storage.Enqueued) error
	}{
		"state": {"UPDATE errand_job SET state = 9", func(s *sqlite.Store, e []storage.Enqueued) error {
			_, err := s.Job(ctx, e[0].ID)
			_, other := s.Cancel(ctx, t0, e[0].ID, storage.Retention{})
			if !errors.Is(other, storage.ErrCorrupt) {
				return other
			}
			return err
		}},
		"count": {"INSERT INTO errand_number VALUES (32 + 15, 3)", func(s *sqlite.Store, _ []storage.Enqueued) error {
			_, err := s.Counts(ctx)
			return err
		}},
		"lane": {"DELETE FROM errand_lane", func(s *sqlite.Store, e []storage.Enqueued) error {
			_, err := s.Job(ctx, e[0].ID)
			_, other := s.Counts(ctx)
			if !errors.Is(other, storage.ErrCorrupt) {
				return other
			}
			return err
		}},
		"args": {"DELETE FROM errand_payload", func(s *sqlite.Store, e []storage.Enqueued) error {
			_, err := s.Job(ctx, e[0].ID)
			_, other := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: 1, Wants: want(1, "a")})
			if !errors.Is(other, storage.ErrCorrupt) {
				return other
			}
			return err
		}},
		"column": {otherColumn, func(s *sqlite.Store, e []storage.Enqueued) error {
			_, err := s.Job(ctx, e[0].ID)
			_, other := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: 1, Wants: want(1, "a")})
			if !errors.Is(other, storage.ErrCorrupt) {
				return other
			}
			return err
		}},
		"version":    {"DROP TABLE errand_migration", nil},
		"no version": {"DELETE FROM errand_migration", nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDB(t, nil)
			s := d.open()
			j := newJob("default", "a")
			j.Args = make([]byte, 3000)
			e, err := s.Enqueue(ctx, t0, []storage.NewJob{j})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d.exec(c.damage)
			s, err = sqlite.Open(d.path, nil)
			if err == nil {
				defer s.Close()
				if c.err != nil {
					err = c.err(s, e)
				}
			}
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
		})
	}
}

// The doctor compares the tables with what the migrations make of them.
func TestDamage_Schema(t *testing.T) {
	for _, damage := range []string{otherColumn, "DROP INDEX errand_dead_ended", "DROP TABLE errand_cause"} {
		d := newDB(t, nil)
		if err := d.open().Close(); err != nil {
			t.Fatal(err)
		}
		d.exec(damage)
		found, err := sqlite.Examine(t.Context(), d.path, false, t0)
		if err != nil || !has(found, "schema", sqlite.SeverityError) {
			t.Errorf("%s: the doctor says %v (%v), want an error about the schema", damage, found, err)
		}
	}
}

// A table that is missing is damage in a transaction of the application too.
func TestDamage_NoTable(t *testing.T) {
	for table, job := range map[string]storage.NewJob{
		"errand_payload": {Queue: "default", Kind: "a", Args: make([]byte, 3000)},
		"errand_policy":  {Queue: "default", Kind: "a", Policy: []byte(`{"numRetries":1}`)},
	} {
		d := newDB(t, nil)
		s := d.open()
		d.exec("DROP TABLE " + table)
		app := d.raw()
		defer app.Close()
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := s.EnqueueTx(t.Context(), tx, t0, []storage.NewJob{job}); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("EnqueueTx without %s: %v, want ErrCorrupt", table, err)
		}
	}
}

// A job whose lane is missing can still end: it is kept for the default time.
func TestDamage_RetentionWithoutLane(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	id := enqueue(t, s, "a", 1)[0].ID
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.exec("DELETE FROM errand_lane")
	keep := storage.Retention{Default: time.Hour, Lanes: map[storage.Lane]time.Duration{{Queue: "q", Kind: "k"}: 0}}
	if _, err := d.open().Cancel(t.Context(), t0, id, keep); err != nil {
		t.Error(err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_finished"); n != 1 {
		t.Errorf("%d finished jobs are kept, want 1", n)
	}
}
