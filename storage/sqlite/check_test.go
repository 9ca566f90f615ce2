package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// listener is a handler of logs that passes on what is said.
type listener func(slog.Level, string)

func (l listener) Enabled(context.Context, slog.Level) bool { return true }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l(r.Level, text)
	return nil
}

func (l listener) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l listener) WithGroup(string) slog.Handler      { return l }

// listening returns options by which errors are collected.
func listening(o sqlite.Options, errs *[]string) *sqlite.Options {
	o.Logger = slog.New(listener(func(level slog.Level, text string) {
		if level >= slog.LevelError {
			*errs = append(*errs, text)
		}
	}))
	return &o
}

// onChecked has f called after the check of each table.
func onChecked(t *testing.T, f func(table string)) {
	sqlite.OnCheckedTable(f)
	t.Cleanup(func() { sqlite.OnCheckedTable(nil) })
}

// crash leaves a database as a process does that is killed with a job running
// and some finished.
func (d *db) crash() {
	d.t.Helper()
	s := d.open()
	enqueue(d.t, s, "a", 10)
	x := storage.Exchange{LeaseDuration: 30 * time.Second, Retention: storage.Retention{Default: time.Hour}}
	for _, l := range lease(d.t, s, 5, "a")[1:] {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	if _, err := s.Exchange(context.Background(), t0, x); err != nil {
		d.t.Fatal(err)
	}
	s.Kill()
}

// page returns on which page a table or index begins, and how large pages are.
func (d *db) page(name string) (at, size int64) {
	d.t.Helper()
	size = d.number("PRAGMA page_size")
	return (d.number("SELECT rootpage FROM sqlite_schema WHERE name = ?1", name) - 1) * size, size
}

// damage overwrites the page on which a table or index begins.
func (d *db) damage(name string) {
	d.t.Helper()
	at, size := d.page(name)
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, size), at)
	if err := errors.Join(err, f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *db) owed() bool {
	_, err := os.Stat(d.path + "-check")
	return err == nil
}

// takeOver ends what crash has left, so that nothing in the database tells of it.
func takeOver(t testing.TB, s *sqlite.Store) {
	t.Helper()
	taken, err := s.Reclaim(context.Background(), t0, 0, time.Minute, 10)
	if err != nil || len(taken) != 1 {
		t.Fatalf("reclaimed %d, %v: want what the first process had", len(taken), err)
	}
	finish(t, s, taken[0].Leased)
}

func checked(t testing.TB, s *sqlite.Store) {
	t.Helper()
	if s.CheckOver() == nil {
		t.Fatal("no check was begun")
	}
	<-s.CheckOver()
}

// refusals are the errors of all that adds work or begins it.
func refusals(s *sqlite.Store) map[string]error {
	ctx, errs := context.Background(), map[string]error{}
	_, errs["enqueue"] = s.Enqueue(ctx, t0, one())
	errs["enqueue in a transaction"] = inTx(ctx, s, func(tx *sql.Tx) error {
		_, err := s.EnqueueTx(ctx, tx, t0, one())
		return err
	})
	_, errs["lease"] = s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Second, Wants: want(1, "a")})
	_, errs["lease of what is not there"] = s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Second, Wants: want(1, "z")})
	_, errs["redrive"] = s.Redrive(ctx, t0, storage.Selection{}, "")
	_, errs["run now"] = s.RunNow(ctx, t0, storage.Selection{}, storage.Waiting{First: true})
	_, errs["entries"] = s.PutEntries(ctx, t0, []storage.Entry{{Class: "c", Name: "a"}})
	_, errs["publish"] = s.PublishMessages(ctx, t0, []storage.Publication{message("refused", one()...)})
	errs["publish in a transaction"] = inTx(ctx, s, func(tx *sql.Tx) error {
		_, err := s.PublishMessagesTx(ctx, tx, t0, []storage.Publication{message("refused", one()...)})
		return err
	})
	_, errs["schedule"] = s.PutSchedule(ctx, t0, storage.Schedule{Name: "s"})
	return errs
}

func wantRefused(t testing.TB, s *sqlite.Store) {
	t.Helper()
	for name, err := range refusals(s) {
		if !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

//errand:shows [checked] | | a page that nobody reads was damaged when a process died: the check in the background finds it, and no work is accepted
func TestCheck_AfterAnUncleanStop(t *testing.T) {
	for name, object := range map[string]string{
		"table": "errand_finished", "index": "errand_finished_purge", "table that is empty": "errand_tick",
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/jobs.db"
			synctest.Test(t, func(t *testing.T) {
				d := &db{t, path, nil}
				d.crash()
				d.damage(object)
				var errs []string
				d.opts = listening(sqlite.Options{SingleProcess: true}, &errs)
				s := d.open()
				// What is leased before it is found out can be finished.
				before, err := s.Exchange(context.Background(), t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(1, "a")})
				if err != nil && !errors.Is(err, storage.ErrCorrupt) {
					t.Fatal(err)
				}
				checked(t, s)
				wantRefused(t, s)
				for _, r := range finish(t, s, before.Leased...) {
					if r != storage.Applied {
						t.Errorf("finishing: %v", r)
					}
				}
				if _, err := s.Delete(context.Background(), storage.Selection{}); err != nil {
					t.Errorf("purge: %v", err)
				}
				synctest.Wait() // for the log
				if len(errs) != 1 {
					t.Fatalf("errors %q, want one", errs)
				}
				for _, part := range []string{"file=" + path, "found=", "errand doctor", "backup", "stop", "keep"} {
					if !strings.Contains(errs[0], part) {
						t.Errorf("%q has not %q in it", errs[0], part)
					}
				}
			})
		})
	}
}

// What was leased while nobody knew is finished when all know.
func TestCheck_WhatRunsIsFinished(t *testing.T) {
	d := newDB(t, nil)
	d.crash()
	d.damage("errand_tick")
	found, release := make(chan struct{}), make(chan struct{})
	onChecked(t, func(table string) {
		if table == "errand_finished" { // one that comes before
			sqlite.OnCheckedTable(nil)
			close(found)
			<-release
		}
	})
	s := d.open()
	<-found
	leased := lease(t, s, 2, "a")
	if len(leased) != 2 {
		t.Fatalf("leased %d while it is being checked, want 2", len(leased))
	}
	close(release)
	checked(t, s)
	wantRefused(t, s)
	x := storage.Exchange{LeaseDuration: time.Minute, Extend: []storage.Lease{leased[0].Lease}}
	if r, err := s.Exchange(context.Background(), t0, x); err != nil || r.Extended[0] != storage.Applied {
		t.Errorf("heartbeat: %v, %v", r.Extended, err)
	}
	for _, r := range finish(t, s, leased...) {
		if r != storage.Applied {
			t.Errorf("finishing: %v", r)
		}
	}
}

// Neither a restart nor another process forgets what was found, until a check
// finds nothing.
//
//errand:shows [checked]
func TestCheck_FindingIsKept(t *testing.T) {
	d := newDB(t, nil)
	d.crash()
	whole, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.damage("errand_tick")
	var errs []string
	d.opts = listening(sqlite.Options{}, &errs)
	s := d.open()
	checked(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}), make(chan struct{})
	onChecked(t, func(table string) {
		if table == "errand_dead" {
			sqlite.OnCheckedTable(nil)
			close(begun)
			<-release
		}
	})
	s = d.open()
	<-begun
	wantRefused(t, s)
	close(release)
	checked(t, s)
	wantRefused(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path, whole, 0o600); err != nil { // as from a backup
		t.Fatal(err)
	}
	d.opts = nil
	s = d.open()
	checked(t, s)
	enqueue(t, s, "a", 1)
	if d.owed() {
		t.Error("a check is owed once it was done")
	}
	takeOver(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s := d.open(); s.CheckOver() != nil {
		t.Error("it was checked once more")
	}
}

// Of what another process has found no more is told than a person reads, and no
// terminal obeys it.
//
//errand:shows [told] | | another process has found it
//errand:shows a finding that outlives its cause | | when another process has found the tables sound, work is accepted again without a restart
//errand:shows links and devices beside the database
func TestCheck_FoundByAnother(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	synctest.Test(t, func(t *testing.T) {
		d := &db{t, path, &sqlite.Options{Logger: slog.New(slog.DiscardHandler)}}
		s := d.open()
		enqueue(t, s, "a", 1)
		if err := os.WriteFile(d.path+"-check", []byte("what it is\x1b"+strings.Repeat(".", 1<<20)), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, _ = s.Enqueue(context.Background(), t0, one()) // looks, and may be let through
		_, err := s.Enqueue(context.Background(), t0, one())
		if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), `what it is\x1b.`) || len(err.Error()) > 10_000 {
			t.Errorf("%.200v, want ErrCorrupt with the first of it", err)
		}
		// That one, or a third, has looked again, and found nothing.
		if err := os.Remove(d.path + "-check"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := s.Enqueue(context.Background(), t0, one()); err != nil {
			t.Errorf("%.200v, want work taken in again", err)
		}
	})
}

func TestCheck_NotAfterACleanStop(t *testing.T) {
	d := newDB(t, nil)
	for range 2 {
		s := d.open()
		if s.CheckOver() != nil {
			t.Error("a check was begun")
		}
		other := d.open() // while the first one lives
		enqueue(t, s, "a", 1)
		finish(t, s, lease(t, s, 1, "a")...)
		another := d.open()
		for _, s := range []*sqlite.Store{other, another, s} {
			if s.CheckOver() != nil {
				t.Error("a check was begun beside a process that lives")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.owed() {
		t.Error("a check is owed")
	}
}

//errand:shows [rechecked] | | the same after the machine went down
func TestCheck_AfterAReboot(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 1)
	lease(t, s, 1, "a")
	d.Reboot(s)
	checked(t, d.open())
}

// Of two processes one checks.
func TestCheck_Once(t *testing.T) {
	d := newDB(t, nil)
	d.crash()
	begun, release := make(chan struct{}), make(chan struct{})
	onChecked(t, func(table string) {
		if table == "errand_dead" {
			sqlite.OnCheckedTable(nil)
			close(begun)
			<-release
		}
	})
	a := d.open()
	<-begun
	d.opts = nil
	b := d.open()
	if b.CheckOver() != nil {
		t.Error("two check at the same time")
	}
	close(release)
	checked(t, a)
	if d.owed() {
		t.Error("a check is owed")
	}
}

// Close ends a check, which the next one who opens takes up.
func TestCheck_CutShortByClose(t *testing.T) {
	d := newDB(t, nil)
	d.crash()
	begun, release := make(chan struct{}), make(chan struct{})
	var errs, after []string
	d.opts = listening(sqlite.Options{}, &errs)
	onChecked(t, func(table string) {
		if table == "errand_dead" {
			close(begun)
			<-release
			return
		}
		after = append(after, table)
	})
	s := d.open()
	<-begun
	takeOver(t, s)
	before := len(after)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-s.Closing()
	close(release)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := after[before:]; len(got)+len(errs) > 0 {
		t.Errorf("went on while it was closed: %q, %q", slices.Clone(got), errs)
	}
	sqlite.OnCheckedTable(nil)
	if !d.owed() {
		t.Error("nobody knows that the check is still to be done")
	}
	d.opts = nil
	s = d.open()
	checked(t, s)
	if d.owed() {
		t.Error("a check is owed once it was done")
	}
}
