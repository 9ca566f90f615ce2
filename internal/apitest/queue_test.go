package apitest

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// note is the kind most tests enqueue.
type note struct {
	Text string
	N    int
}

func (note) Kind() string { return "note" }

// ofKind is a job of any kind.
type ofKind string

func (k ofKind) Kind() string { return string(k) }

// longest has the longest kind.
type longest struct{}

func (longest) Kind() string { return strings.Repeat("x", 128) }

// any JSON value, or none that is.
type value struct{ V any }

func (value) Kind() string { return "value" }

// byPointer has no kind without a value behind the pointer.
type byPointer struct{ kind string }

func (p *byPointer) Kind() string { return p.kind }

func openQueue(t *testing.T, o *errand.Options) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// enqueue adds a job that must be fine.
func enqueue(t *testing.T, q *errand.Queue, args errand.Args, o *errand.JobOptions) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), args, o)
	if err != nil || e.Duplicate {
		t.Fatalf("Enqueue gave %v, %v", e, err)
	}
	return e.ID
}

func lookUp(t *testing.T, q *errand.Queue, id errand.ID) errand.JobInfo {
	t.Helper()
	j, err := q.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// wantNothing checks that the queue has no job.
func wantNothing(t *testing.T, q *errand.Queue) {
	t.Helper()
	counts, err := q.Counts(t.Context())
	if err != nil || len(counts) > 0 {
		t.Errorf("Counts gave %v, %v: want none", counts, err)
	}
}

func TestQueue_Job(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	q := openQueue(t, &errand.Options{Clock: func() time.Time { return now }})
	own := policy.Policy{Retries: 1, MinDelay: time.Second, MaxDelay: time.Second}
	id := enqueue(t, q, note{"hi", 1}, &errand.JobOptions{
		Queue: "mail", Priority: 7, Delay: time.Minute, Policy: &own, Timeout: time.Hour,
		Unique: &errand.Unique{Key: "a b"}, Headers: map[string]string{"trace": "x"},
	})
	want := errand.JobInfo{
		ID: id, Queue: "mail", Kind: "note", State: errand.Scheduled, Priority: 7,
		CreatedAt: now, DueAt: now.Add(time.Minute), Timeout: time.Hour, Unique: "a b", Policy: &policy.Document{Retry: &own},
		Args: []byte(`{"Text":"hi","N":1}`), Headers: map[string]string{"trace": "x"},
	}
	if got := lookUp(t, q, id); !reflect.DeepEqual(got, want) {
		t.Errorf("Job gave\n%+v, want\n%+v", got, want)
	}
	if _, err := q.Job(t.Context(), errand.ID{}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("the zero ID: %v", err)
	}
	if back, err := errand.ParseID(id.String()); back != id || err != nil {
		t.Errorf("ParseID gave %v, %v", back, err)
	}
	_, err := errand.ParseID("0190")
	wantFaults(t, err, fault{"id", `"0190"`, "must have the form of a UUID"})
}

func TestQueue_Cancel(t *testing.T) {
	for _, c := range []struct {
		retention time.Duration
		kept      bool
	}{{0, true}, {time.Hour, true}, {-time.Hour, false}} {
		q := openQueue(t, &errand.Options{Retention: c.retention})
		id := enqueue(t, q, note{}, nil)
		if s, err := q.Cancel(t.Context(), id); s != errand.Cancelled || err != nil {
			t.Errorf("Cancel gave %v, %v", s, err)
		}
		if _, err := q.Job(t.Context(), id); (err == nil) != c.kept {
			t.Errorf("retention %v: Job gave %v", c.retention, err)
		}
		if _, err := q.Cancel(t.Context(), errand.ID{1}); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("Cancel of nothing: %v", err)
		}
	}
}

func TestQueue_Pause(t *testing.T) {
	q := openQueue(t, nil)
	for _, name := range []string{"b", "a", "a"} {
		if err := q.Pause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := q.Paused(t.Context()); !reflect.DeepEqual(got, []string{"a", "b"}) || err != nil {
		t.Errorf("Paused gave %v, %v", got, err)
	}
	if err := q.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := q.Paused(t.Context()); !reflect.DeepEqual(got, []string{"b"}) || err != nil {
		t.Errorf("Paused gave %v, %v", got, err)
	}
	wantFaults(t, q.Pause(t.Context(), ""), fault{"queue", `""`, "must match"})
	wantFaults(t, q.Resume(t.Context(), "a b"), fault{"queue", `"a b"`, "must match"})
}

func TestQueue_closed(t *testing.T) {
	q := openQueue(t, nil)
	id := enqueue(t, q, note{}, nil)
	for range 2 {
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	dead := q.DeadLetters()
	for name, call := range map[string]func(context.Context) error{
		"Enqueue": func(ctx context.Context) error { _, err := q.Enqueue(ctx, note{}, nil); return err },
		"EnqueueMany": func(ctx context.Context) error {
			_, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}})
			return err
		},
		"Tx":      func(ctx context.Context) error { return q.Tx(ctx, func(*sql.Tx) error { return nil }) },
		"Job":     func(ctx context.Context) error { _, err := q.Job(ctx, id); return err },
		"Cancel":  func(ctx context.Context) error { _, err := q.Cancel(ctx, id); return err },
		"Pause":   func(ctx context.Context) error { return q.Pause(ctx, "a") },
		"Paused":  func(ctx context.Context) error { _, err := q.Paused(ctx); return err },
		"Resume":  func(ctx context.Context) error { return q.Resume(ctx, "a") },
		"Hold":    func(ctx context.Context) error { return q.Hold(ctx, errand.Lane{Queue: "a"}, nil) },
		"Holds":   func(ctx context.Context) error { _, err := q.Holds(ctx); return err },
		"Counts":  func(ctx context.Context) error { _, err := q.Counts(ctx); return err },
		"List":    func(ctx context.Context) error { _, err := dead.List(ctx, errand.JobFilter{}, nil); return err },
		"Get":     func(ctx context.Context) error { _, err := dead.Get(ctx, id); return err },
		"Redrive": func(ctx context.Context) error { _, err := dead.Redrive(ctx, errand.JobFilter{}, nil); return err },
		"RunNow":  func(ctx context.Context) error { _, err := q.RunNow(ctx, errand.JobFilter{All: true}, nil); return err },
		"Purge":   func(ctx context.Context) error { _, err := dead.Purge(ctx, errand.JobFilter{All: true}); return err },
	} {
		if err := call(t.Context()); !errors.Is(err, errand.ErrClosed) {
			t.Errorf("%s after Close: %v: want ErrClosed", name, err)
		}
	}
}

func TestQueue_cancelledContext(t *testing.T) {
	q := openQueue(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enqueue(ctx, note{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("EnqueueMany: %v", err)
	}
	if err := q.Tx(ctx, func(*sql.Tx) error { t.Error("fn was called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Tx: %v", err)
	}
	path := filepath.Join(t.TempDir(), "new.db")
	if _, err := errand.Open(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open left a file: %v", err)
	}
	if _, err := errand.New(ctx, storagetest.NewMemory().Open(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("New: %v", err)
	}
	wantNothing(t, q)
}

func TestTx_refuses(t *testing.T) {
	q, other := openQueue(t, nil), openQueue(t, nil)
	wantFaults(t, q.Tx(t.Context(), nil), fault{"fn", "nil", "must not be nil"})
	_, err := q.EnqueueTx(t.Context(), nil, note{}, nil)
	wantFaults(t, err, fault{"tx", "nil", "must not be nil"})

	err = other.Tx(t.Context(), func(tx *sql.Tx) error {
		_, err := q.EnqueueTx(t.Context(), tx, note{}, nil)
		return err
	})
	if !errors.Is(err, errand.ErrWrongDatabase) {
		t.Errorf("a transaction of another queue: %v", err)
	}
	wantNothing(t, q)
	wantNothing(t, other)

	plain, err := errand.New(t.Context(), noTx{storagetest.NewMemory().Open()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Tx(t.Context(), func(*sql.Tx) error { return nil }); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("Tx of a store without: %v", err)
	}
}

// noTx hides what a store can do beyond the contract.
type noTx struct{ storage.Store }

// Transactions of the application that are closed, or whose context ended,
// take no job.
func TestTx_ended(t *testing.T) {
	q := openQueue(t, nil)
	var kept *sql.Tx
	if err := q.Tx(t.Context(), func(tx *sql.Tx) error { kept = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := q.EnqueueTx(t.Context(), kept, note{}, nil); err == nil {
		t.Error("EnqueueTx after the commit gave no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := q.Tx(ctx, func(tx *sql.Tx) error {
		cancel()
		_, err := q.EnqueueTx(ctx, tx, note{}, nil)
		return err
	})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("Tx whose context ended: %v", err)
	}
	wantNothing(t, q)
}
