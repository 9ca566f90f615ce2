package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What follows has gone wrong once.

func TestTurn_GivenUpIsGivenBack(t *testing.T) {
	d := newDB(t, &sqlite.Options{BusyTimeout: 100 * time.Millisecond})
	a, b := d.open(), d.open()
	ctx := context.Background()
	err := inTx(ctx, a, func(*sql.Tx) error {
		_, err := b.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
		if !errors.Is(err, storage.ErrBusy) {
			t.Errorf("b while a writes: %v, want ErrBusy", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// b has given up; what still waited for its turn must not keep it.
	for deadline := time.Now().Add(5 * time.Second); ; {
		_, err := a.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a is locked out by an idle b: %v", err)
		}
	}
	enqueue(t, b, "a", 1)
	enqueue(t, a, "a", 1)
}

func TestReclaim_LeaseRaisedAfterRegistration(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	ctx := context.Background()
	t.Cleanup(a.Notify(func(storage.Event) {})) // registers without a lease
	for a.InstanceNumber() == 0 {
		runtime.Gosched()
	}
	reclaim := func() {
		t.Helper()
		got, err := b.Reclaim(ctx, t0, 0, time.Second, 10)
		if err != nil || len(got) > 0 {
			t.Fatalf("reclaimed %d from a living holder, %v", len(got), err)
		}
	}
	reclaim()
	enqueue(t, a, "a", 1)
	if len(lease(t, a, 1, "a")) != 1 {
		t.Fatal("no job")
	}
	reclaim()
	reclaim()
}

func TestOpen_SymbolicLink(t *testing.T) {
	d := newDB(t, nil)
	a := d.open()
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(d.path, link); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	b := (&db{t, link, nil}).open()
	enqueue(t, a, "a", 1)
	lease(t, a, 1, "a")
	if got, err := b.Reclaim(context.Background(), t0, 0, time.Second, 10); err != nil || len(got) > 0 {
		t.Errorf("reclaimed %d from a living holder, %v", len(got), err)
	}
	dangling := filepath.Join(t.TempDir(), "dangling.db")
	if err := os.Symlink(filepath.Join(t.TempDir(), "nothing"), dangling); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(dangling, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("dangling link: %v", err)
	}
}

func TestExchange_ExtendsWhileTheClockStandsStill(t *testing.T) {
	d := newDB(t, nil)
	a, b := d.open(), d.open()
	enqueue(t, a, "a", 1)
	l := lease(t, a, 1, "a")[0].Lease
	for i := range 5 {
		x := storage.Exchange{LeaseDuration: 30 * time.Second, Extend: []storage.Lease{l}}
		if _, err := a.Exchange(context.Background(), t0, x); err != nil {
			t.Fatal(err)
		}
		got, err := b.Reclaim(context.Background(), t0, time.Duration(i)*20*time.Second, time.Second, 10)
		if err != nil || len(got) > 0 {
			t.Fatalf("look %d: reclaimed %d of a holder that extends, %v", i, len(got), err)
		}
	}
}

func TestExchange_SourceNamedTwice(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	x := storage.Exchange{LeaseDuration: time.Second, Wants: []storage.Want{{Queues: []string{"default", "default"}, Kinds: []string{"a", "a"}, N: 5}}}
	r, err := s.Exchange(context.Background(), t0, x)
	if err != nil || len(r.Leased) != 1 {
		t.Errorf("leased %d, %v: want 1", len(r.Leased), err)
	}
	d.Invariants(t)
}

func TestExchange_PolicyIsTheCallers(t *testing.T) {
	s := newDB(t, nil).open()
	j := newJob("default", "a")
	j.Policy = []byte(`{"numRetries":1}`)
	if _, err := s.Enqueue(context.Background(), t0, []storage.NewJob{j, j, j}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l := lease(t, s, 1, "a")[0]
		if string(l.Policy) != string(j.Policy) {
			t.Fatalf("policy %s, want %s", l.Policy, j.Policy)
		}
		clear(l.Policy)
	}
}

func TestEnqueue_DueNowIsReady(t *testing.T) {
	s := newDB(t, nil).open()
	j := newJob("default", "a")
	j.DueAt = t0.Add(500) // half a microsecond
	if _, err := s.Enqueue(context.Background(), j.DueAt, []storage.NewJob{j}); err != nil {
		t.Fatal(err)
	}
	if c := counts(t, s); c[storage.Ready] != 1 {
		t.Errorf("counts %v: want it ready", c)
	}
}

func TestEnqueue_WithdrawnWhileLocked(t *testing.T) {
	d := newDB(t, &sqlite.Options{BusyTimeout: time.Hour})
	s := d.open()
	ctx, cancel := context.WithCancel(context.Background())
	err := inTx(context.Background(), s, func(*sql.Tx) error {
		first := make(chan error)
		for range 2 {
			go func() {
				_, err := s.Enqueue(ctx, t0, []storage.NewJob{newJob("default", "a")})
				first <- err
			}()
			go func() { first <- inTx(ctx, s, func(*sql.Tx) error { return nil }) }()
		}
		cancel()
		for range 4 {
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that of the context", err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "b", 1)
	if c := counts(t, s); c[storage.Ready] != 1 {
		t.Errorf("counts %v: want the last only", c)
	}
}

func TestStore_EnqueueTx_SavepointRolledBack(t *testing.T) {
	app, s, _ := appStore(t, &sqlite.Options{SingleProcess: true})
	rings := bell(t, s)
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i == 1 {
			if _, err := tx.Exec("SAVEPOINT mine"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{newJob("default", "a")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec("ROLLBACK TO mine"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	<-rings
	if n := len(lease(t, s, 5, "a")); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestStore_EnqueueTx_AllOrNothing(t *testing.T) {
	app, s, d := appStore(t, nil)
	d.exec("CREATE TRIGGER no BEFORE INSERT ON errand_job WHEN NEW.priority = 13 BEGIN SELECT RAISE(ABORT, 'no'); END")
	jobs := []storage.NewJob{newJob("default", "a"), newJob("default", "a")}
	jobs[1].Priority = 13
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(context.Background(), tx, t0, jobs); err == nil {
		t.Error("no error")
	}
	if _, err := s.EnqueueTx(context.Background(), tx, t0, jobs[:1]); err != nil {
		t.Errorf("after one that failed: %v", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if c := counts(t, s); c[storage.Ready] != 1 {
		t.Errorf("counts %v: want one ready", c)
	}
}

func TestStore_EnqueueTx_Errors(t *testing.T) {
	app, s, d := appStore(t, nil)
	ctx := context.Background()
	jobs := []storage.NewJob{newJob("default", "a")}
	tx, err := app.Begin()
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.EnqueueTx(gone, tx, t0, jobs); !errors.Is(err, context.Canceled) {
		t.Errorf("context ended: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(ctx, tx, t0, jobs); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("transaction ended: %v", err)
	}
	d.exec("CREATE TRIGGER out BEFORE INSERT ON orders BEGIN SELECT RAISE(ROLLBACK, 'out'); END")
	if tx, err = app.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO orders DEFAULT VALUES"); err == nil {
		t.Fatal("the trigger did not fire")
	}
	if _, err := s.EnqueueTx(ctx, tx, t0, jobs); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("transaction rolled back by SQLite: %v", err)
	}
	_ = tx.Rollback() // there is none
	if c := counts(t, s); len(c) != 0 {
		t.Errorf("counts %v: want none", c)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if tx, err = app.Begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueTx(ctx, tx, t0, jobs); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

func TestStore_Tx_HasTheSettingsOfTheApplication(t *testing.T) {
	d := newDB(t, nil)
	app := appDB(t, "file:"+d.path+"?_pragma=journal_mode(wal)&_pragma=foreign_keys(1)")
	if _, err := app.Exec("CREATE TABLE a (id INTEGER PRIMARY KEY); CREATE TABLE b (a INTEGER REFERENCES a)"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(app, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = inTx(context.Background(), s, func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO b VALUES (7)")
		return err
	})
	if err == nil {
		t.Error("a foreign key that the application's connections refuse was let through")
	}
}

func TestStore_Close_WaitsForTransactions(t *testing.T) {
	d := newDB(t, &sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	s := d.open()
	enqueue(t, s, "a", 1)
	finish(t, s, lease(t, s, 1, "a")...) // it is registered now
	began, closed := make(chan bool), make(chan error, 2)
	go func() {
		<-began
		go func() { closed <- s.Close() }()
		closed <- s.Close()
	}()
	err := inTx(context.Background(), s, func(tx *sql.Tx) error {
		close(began)
		<-time.After(100 * time.Millisecond) // how long it takes: more than the timeout
		_, err := s.EnqueueTx(context.Background(), tx, t0, nil)
		return err
	})
	if err != nil && !errors.Is(err, storage.ErrClosed) {
		t.Errorf("Tx: %v", err)
	}
	if err := errors.Join(<-closed, <-closed); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n := d.number("SELECT COUNT(*) FROM errand_instance"); n != 0 {
		t.Errorf("%d registrations left", n)
	}
}

func TestStore_Close_LeavesNoFileOpen(t *testing.T) {
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("cannot count open files here: ", err)
		}
		return len(fds)
	}
	d := newDB(t, nil)
	round := func() {
		s, err := sqlite.Open(d.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel := s.Notify(func(storage.Event) {})
		enqueue(t, s, "a", 1)
		finish(t, s, lease(t, s, 1, "a")...)
		cancel()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	round()
	before := open()
	for range 20 {
		round()
	}
	if after := open(); after > before+5 {
		t.Errorf("%d files open, %d before", after, before)
	}
	if left, _ := filepath.Glob(d.path + "-instance-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
