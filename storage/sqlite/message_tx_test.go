package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/errandq/errand/storage"
)

// An answer to PublishMessagesTx or EnqueueTx that comes after something was written takes back what
// the call has written and no more, and the transaction goes on.
func TestStore_PublishMessagesTx_answers(t *testing.T) {
	app, s, _ := appStore(t, nil)
	ctx := t.Context()
	if err := s.Configure(ctx, storage.Lane{Queue: "small"}, storage.Settings{storage.SettingMaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "waits", 1)
	if _, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("small", "a")}); err != nil {
		t.Fatal(err)
	}
	other := message("of-another-topic", newJob("default", "a"))
	other.Message.Topic = "u"
	if _, err := s.PublishMessages(ctx, t0, []storage.Publication{other}); err != nil {
		t.Fatal(err)
	}
	publish := func(all ...storage.Publication) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := s.PublishMessagesTx(ctx, tx, t0, all)
			return err
		}
	}
	first := message("first", newJob("default", "new-kind"))
	gone := message("gone", newJob("default", "a"))
	gone.Existing = true
	calls := []struct {
		name string
		call func(*sql.Tx) error
		want error
	}{
		{"full last", publish(message("m", newJob("roomy", "a"), newJob("small", "a"))), storage.ErrQueueFull},
		{"full first", publish(message("m", newJob("small", "a"), newJob("roomy", "a"))), storage.ErrQueueFull},
		{"not there", publish(first, gone), storage.ErrNotFound},
		{"of another topic", publish(first, message("of-another-topic")), storage.ErrMessageID},
		{"jobs", func(tx *sql.Tx) error {
			_, err := s.EnqueueTx(ctx, tx, t0, []storage.NewJob{newJob("roomy", "a"), newJob("small", "a")})
			return err
		}, storage.ErrQueueFull},
	}
	ways := inAppTx(context.Background(), app, s)
	before := counts(t, s)[storage.Ready]
	for way, in := range ways {
		for _, c := range calls {
			err := in(func(tx *sql.Tx) error {
				if _, err := tx.Exec("INSERT INTO orders VALUES (NULL)"); err != nil {
					return err
				}
				if _, err := s.EnqueueTx(ctx, tx, t0, one()); err != nil {
					return err
				}
				if err := c.call(tx); !errors.Is(err, c.want) {
					t.Errorf("%s, %s: %v, want %v", way, c.name, err, c.want)
				}
				_, err := s.EnqueueTx(ctx, tx, t0, one())
				return err
			})
			if err != nil {
				t.Fatalf("%s, %s: %v", way, c.name, err)
			}
			hasMessage(t, s, "m", false)
			hasMessage(t, s, "first", false)
		}
	}
	if n := counts(t, s)[storage.Ready] - before; n != int64(2*len(ways)*len(calls)) {
		t.Errorf("%d jobs were added, want those before and after", n)
	}
	var rows int
	if err := app.QueryRow("SELECT COUNT(*) FROM orders").Scan(&rows); err != nil || rows != len(ways)*len(calls) {
		t.Errorf("%d rows of the application, %v", rows, err)
	}
}
