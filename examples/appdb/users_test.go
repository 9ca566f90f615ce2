package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/errandtest"
	"github.com/errandq/errand/storage/sqlite"
)

// newApp is the application on a database of the test.
func newApp(t *testing.T) *app {
	t.Helper()
	db, err := openDB(t.Context(), filepath.Join(t.TempDir(), "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) // after the queue
	store, err := sqlite.New(db.DB, &sqlite.Options{Durability: sqlite.Relaxed})
	if err != nil {
		t.Fatal(err)
	}
	return &app{db: db, q: errandtest.NewOn(t, store, nil)}
}

// A user signs up once, with one job.
func TestSignUp(t *testing.T) {
	a := newApp(t)
	if err := a.signUp(t.Context(), "ada@example.org"); err != nil {
		t.Fatal(err)
	}
	if err := a.signUp(t.Context(), "ada@example.org"); err == nil {
		t.Error("two users have one address")
	}
	if jobs := errandtest.RequireEnqueued[Welcome](t, a.q); len(jobs) != 1 {
		t.Errorf("%d jobs were enqueued, want 1", len(jobs))
	}
}

// The user is greeted, though the provider is down at first, and reminded after three days.
func TestWorker(t *testing.T) {
	a := newApp(t)
	var sent []string
	a.mail = func(_ context.Context, _, text string) error {
		if sent = append(sent, text); len(sent) == 1 {
			return errors.New("the provider is down")
		}
		return nil
	}
	if err := a.signUp(t.Context(), "ada@example.org"); err != nil {
		t.Fatal(err)
	}
	began := a.q.Clock().Now
	got := errandtest.Drain(t, a.q, a.worker(), &errandtest.DrainOptions{Scheduled: true})
	if want := (errandtest.Counts{Attempts: 3, Retried: 1, Done: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if want := []string{"welcome", "welcome", "reminder"}; !slices.Equal(sent, want) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	if passed := a.q.Clock().Now.Sub(began); passed < 72*time.Hour {
		t.Errorf("%v have passed", passed)
	}
}
