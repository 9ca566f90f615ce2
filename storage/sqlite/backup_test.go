package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// backup copies the file under test, and returns the copy.
func (d *db) backup(s *sqlite.Store) *db {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "copy.db")
	if err := s.Backup(context.Background(), path); err != nil {
		d.t.Fatal(err)
	}
	return &db{d.t, path, d.opts}
}

func TestBackup_OfOneMomentWhileOthersWrite(t *testing.T) {
	d := newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
	s, ctx := d.open(), context.Background()
	enqueue(t, s, "a", 3000)
	stop, wrote, failed := make(chan struct{}), make(chan struct{}, 1), make(chan struct{}, 4)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := s.Enqueue(ctx, t0, slices.Repeat(one(), 7)); err != nil {
					t.Error(err)
					failed <- struct{}{}
					return
				}
				select {
				case wrote <- struct{}{}:
				default:
				}
			}
		})
	}
	defer writers.Wait()
	defer func() { close(stop) }()
	var before int64
	for range 3 {
		for range 2 { // the first may have been there before the last copy
			select {
			case <-wrote:
			case <-failed:
				return
			}
		}
		c := d.backup(s)
		files, err := filepath.Glob(filepath.Dir(c.path) + "/*")
		if err != nil || len(files) != 1 {
			t.Errorf("files %v, %v: want one", files, err)
		}
		if info, err := os.Stat(c.path); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v: want mode 0600", info.Mode(), err)
		}
		c.Invariants(t)
		n := c.number("SELECT COUNT(*) FROM errand_job")
		if n <= before || n%7 != 3000%7 {
			t.Errorf("%d jobs, %d before: want whole transactions, and those before", n, before)
		}
		before = n
	}
	d.Invariants(t)
}

// A copy put where the first life was, whose processes live and have left their
// files there, is not taken for it.
func TestBackup_IsAnotherLife(t *testing.T) {
	d := newDB(t, nil)
	a, ctx := d.open(), context.Background()
	enqueue(t, a, "a", 3)
	leased := lease(t, a, 3, "a")
	for _, l := range leased[:2] {
		if err := a.Started(l.Lease, t0); err != nil {
			t.Fatal(err)
		}
	}
	c := d.backup(a)
	// a lives on, holds its lock, and takes numbers that the copy has not.
	lock, err := os.ReadFile(instanceFiles(t, d.path)[0])
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, a, "a", 1)
	later := lease(t, a, 1, "a")[0]
	for _, name := range instanceFiles(t, d.path) {
		beside := c.path + name[len(d.path):]
		if err := os.Link(name, beside); err != nil { // the file itself, with its lock
			t.Fatal(err)
		}
	}
	b := c.open()
	got, err := b.Reclaim(ctx, t0, 0, time.Minute, 10)
	if err != nil || len(got) != 3 {
		t.Fatalf("reclaimed %d, %v: want all 3 at once", len(got), err)
	}
	for _, r := range got {
		if r.Fate != storage.Cut {
			t.Errorf("fate %v of key %d: want Cut", r.Fate, r.Key)
		}
		if r.Token == later.Token {
			t.Error("a token of the first life is given out again")
		}
	}
	if now, err := os.ReadFile(instanceFiles(t, d.path)[0]); err != nil || !bytes.Equal(now, lock) {
		t.Errorf("the notes of the first life were changed: %v", err)
	}
	enqueue(t, b, "a", 1)
	if l := lease(t, b, 1, "a"); len(l) != 1 || l[0].Token == later.Token {
		t.Errorf("leased %v", l)
	}
	// A holder of the first life is late here, and in time there.
	for _, r := range finish(t, b, append(leased, later)...) {
		if r != storage.Lost {
			t.Errorf("finished in the copy with a lease of the first life: %v", r)
		}
	}
	for _, r := range finish(t, a, leased...) {
		if r != storage.Applied {
			t.Errorf("finishing in the first life: %v", r)
		}
	}
	c.Invariants(t)
}

func instanceFiles(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if len(e.Name()) > len("jobs.db-instance-") && e.Name()[:len("jobs.db-instance-")] == "jobs.db-instance-" {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return out
}

func TestBackup_StrangeName(t *testing.T) {
	s := newDB(t, nil).open()
	enqueue(t, s, "a", 2)
	c := &db{t, filepath.Join(t.TempDir(), "copy ä%20#?&x=y'.db"), nil}
	if err := s.Backup(context.Background(), c.path); err != nil {
		t.Fatal(err)
	}
	if n := len(lease(t, c.open(), 5, "a")); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestBackup_Refused(t *testing.T) {
	d := newDB(t, nil)
	s, ctx := d.open(), context.Background()
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		path string
		want error
	}{
		"existing":       {ctx, taken, fs.ErrExist},
		"itself":         {ctx, d.path, fs.ErrExist},
		"missing folder": {ctx, filepath.Join(dir, "no", "copy"), fs.ErrNotExist},
		"cancelled":      {ended, filepath.Join(dir, "copy"), context.Canceled},
		"empty":          {ctx, "", fs.ErrInvalid},
	} {
		if err := s.Backup(c.ctx, c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if files, _ := filepath.Glob(dir + "/*"); len(files) != 1 {
		t.Errorf("files %v: want the one that was there", files)
	}
	if b, err := os.ReadFile(taken); err != nil || string(b) != "mine" {
		t.Errorf("the file that was there: %q, %v", b, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(ctx, filepath.Join(dir, "copy")); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// meanwhile is a context of a call that does something while the call is under way.
type meanwhile struct {
	context.Context
	do func()
}

func (m meanwhile) Err() error { m.do(); return nil }

// SQLite would take a log that another database has left for a part of the copy, also one
// that comes while the copy is made.
func TestBackup_BesideAnotherLog(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	enqueue(t, s, "a", 3)
	kinds := map[string]func(path string) error{
		"a file":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link":   func(path string) error { return os.Symlink("nowhere", path) },
	}
	if runtime.GOOS == "windows" { // which lets few users make one
		delete(kinds, "a link")
	}
	for what, put := range kinds {
		for _, end := range []string{"-wal", "-shm", "-journal"} {
			for _, when := range []string{"before", "meanwhile"} {
				t.Run(what+" "+end+" "+when, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "copy.db")
					left := sync.OnceFunc(func() {
						if err := put(path + end); err != nil {
							t.Error(err)
						}
					})
					if when == "before" {
						left()
					}
					err := s.Backup(meanwhile{context.Background(), left}, path)
					if !errors.Is(err, storage.ErrUnsupportedDB) || errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), path+end+" of another database is there: move it away") {
						t.Errorf("Backup: %v", err)
					}
					if files, _ := filepath.Glob(path + "*"); len(files) != 1 || files[0] != path+end {
						t.Errorf("files %q, want only the one that was there", files)
					}
				})
			}
		}
	}
}

// Writers are slowed down by sharing the machine with a backup, not locked out.
func BenchmarkBackup(b *testing.B) {
	d := newDB(b, nil)
	s, ctx := d.open(), context.Background()
	j := newJob("default", "a")
	j.Args = bytes.Repeat([]byte("1"), 500)
	for range 10 {
		if _, err := s.Enqueue(ctx, t0, slices.Repeat([]storage.NewJob{j}, 10_000)); err != nil {
			b.Fatal(err)
		}
	}
	var longest time.Duration
	for b.Loop() {
		done := make(chan error, 1)
		path := filepath.Join(b.TempDir(), "copy.db")
		go func() { done <- s.Backup(ctx, path) }()
		for over := false; !over; {
			began := time.Now()
			if _, err := s.Enqueue(ctx, t0, one()); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(began))
			select {
			case err := <-done:
				if over = true; err != nil {
					b.Fatal(err)
				}
			default:
			}
		}
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-write")
}

// Of a process that is registered in a backup the doctor does not say that it was at work:
// it may have died before.
func TestExamine_BackupAfterADeath(t *testing.T) {
	d := newDB(t, nil)
	dead, s := d.open(), d.open()
	enqueue(t, dead, "a", 1)
	lease(t, dead, 1, "a")
	d.Kill(dead)
	copied := d.backup(s)
	found, err := sqlite.Examine(context.Background(), copied.path, true, t0)
	said := slices.ContainsFunc(found, func(f sqlite.Finding) bool {
		return f.Check == "instances" && f.Severity == sqlite.SeverityNote && strings.Contains(f.Text, " was registered when this backup was taken, with 1 running job;")
	})
	if err != nil || !said || slices.ContainsFunc(found, sqlite.Finding.Bad) {
		t.Errorf("the doctor says %+v (%v)", found, err)
	}
}
