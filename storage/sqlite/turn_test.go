package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// Who writes to the file without taking turns gets in while the queue is written
// to without a pause: through the pool that New was given, and from elsewhere.
//
//errand:shows the application's own writes beside a busy queue
func TestTurn_OthersWriteBesideUnbrokenWriting(t *testing.T) {
	d := newDB(t, nil)
	dsn := "file:" + d.path + "?_pragma=journal_mode(wal)&_pragma=busy_timeout(120000)"
	app, other := appDB(t, dsn), appDB(t, dsn)
	if _, err := app.Exec("CREATE TABLE orders (id INTEGER PRIMARY KEY)"); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(app, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(context.Background())
	over, wrote := make(chan struct{}), make(chan struct{}, 1)
	var commits atomic.Int64
	go func() {
		defer close(over)
		jobs := slices.Repeat([]storage.NewJob{newJob("default", "a")}, 500)
		for ctx.Err() == nil {
			if _, err := s.Enqueue(context.Background(), t0, jobs); err != nil {
				t.Error(err)
			}
			commits.Add(1)
			select {
			case wrote <- struct{}{}:
			default:
			}
		}
	}()
	for i, db := range []*sql.DB{app, other} {
		for n := range 20 {
			for range 3 { // it is to come in the middle of the queue's writing, not on the heels of its own
				<-wrote
			}
			before, began := commits.Load(), time.Now()
			if _, err := db.Exec("INSERT INTO orders DEFAULT VALUES"); err != nil {
				t.Errorf("pool %d: write %d: %v", i, n, err)
			}
			// Neither on a slow machine nor on a fast one is it both, if there are gaps.
			if waited, took := commits.Load()-before, time.Since(began); waited > 300 && took > 2*time.Second {
				t.Errorf("pool %d: write %d has waited for %d commits and %v", i, n, waited, took)
			}
		}
	}
	stop()
	<-over
}

// A process that keeps the turn locks others out at once, also those that were
// there before; one that was killed does not.
//
//errand:shows a process with SingleProcess | | it locks other processes out, and their calls fail at once
func TestTurn_Kept(t *testing.T) {
	opts := &sqlite.Options{BusyTimeout: time.Minute}
	d := newDB(t, opts)
	before := d.open()
	enqueue(t, before, "a", 1)
	alone, err := sqlite.Open(d.path, &sqlite.Options{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := sqlite.Open(d.path, opts); !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "SingleProcess") {
		t.Errorf("open beside SingleProcess: %v, want ErrBusy that names it", err)
	}
	if _, err := before.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("one that was there before: %v, want ErrBusy", err)
	}
	if took := time.Since(began); took >= opts.BusyTimeout {
		t.Errorf("they have heard so after %v, not at once", took)
	}
	if err := alone.Close(); err != nil {
		t.Fatal(err)
	}
	enqueue(t, before, "a", 1)
	if err := os.Truncate(d.path+"-turn", 1); err != nil { // as one leaves it that is killed
		t.Fatal(err)
	}
	enqueue(t, d.open(), "a", 1)
	if info, err := os.Stat(d.path + "-turn"); err != nil || info.Size() != 0 {
		t.Errorf("turn file %v, %v: want it empty again", info, err)
	}
}

// ErrBusy says who probably keeps the lock.
//
//errand:shows long transactions of others
func TestTurn_NamesWhoKeepsTheLock(t *testing.T) {
	app, s, d := appStore(t, &sqlite.Options{BusyTimeout: 30 * time.Millisecond})
	raw := d.raw()
	defer raw.Close()
	for want, db := range map[string]*sql.DB{"probably the application": app, "another process, or another": raw} {
		conn, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Enqueue(context.Background(), t0, one())
		txErr := inTx(context.Background(), s, func(*sql.Tx) error { return nil })
		for _, err := range []error{err, txErr} {
			if !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want ErrBusy with %q", err, want)
			}
		}
		if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

// A process whose transactions take longer than others wait for its turn is not
// taken for somebody who does not write, also if one of them gets in by a gap
// that it leaves.
//
//errand:shows a lock that needs no right to write
func TestTurn_LongTransactions(t *testing.T) {
	var told atomic.Int32
	app, a, d := appStore(t, &sqlite.Options{BusyTimeout: 400 * time.Millisecond, Logger: slog.New(listener(func(_ slog.Level, text string) {
		if strings.Contains(text, "file by which processes take turns") {
			told.Add(1)
		}
	}))})
	b := d.open()
	conn, err := app.Conn(context.Background()) // in use: a reason for gaps
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := make(chan struct{})
	var wrote sync.WaitGroup
	wrote.Go(func() {
		<-begun
		if _, err := b.Enqueue(context.Background(), t0, one()); err != nil && !errors.Is(err, storage.ErrBusy) {
			t.Error(err)
		}
	})
	for i := range 3 {
		err := inTx(context.Background(), a, func(*sql.Tx) error {
			if i == 0 {
				close(begun)
			}
			time.Sleep(300 * time.Millisecond)
			return nil
		})
		if err != nil && !errors.Is(err, storage.ErrBusy) {
			t.Error(err)
		}
	}
	wrote.Wait()
	if n := told.Load(); n > 0 {
		t.Errorf("%d warnings of a lock that is in vain", n)
	}
}
