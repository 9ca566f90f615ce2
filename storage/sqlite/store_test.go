package sqlite_test

import (
	"context"
	"database/sql"
	"flag"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

// The log of the stores under test would hide which test has failed: it is there with -v.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	m.Run()
}

func TestStore_Conformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.DB { return newDB(t, nil) })
}

func TestStore_RandomHistories(t *testing.T) {
	storagetest.RunRandom(t, func(t *testing.T) storagetest.DB { return newDB(t, nil) })
}

// db is a file under test. Instances of one process stand for several: each
// has locks of its own.
type db struct {
	t    testing.TB
	path string
	opts *sqlite.Options
}

func newDB(t testing.TB, opts *sqlite.Options) *db {
	return &db{t, filepath.Join(t.TempDir(), "jobs.db"), opts}
}

func (d *db) open() *sqlite.Store {
	d.t.Helper()
	s, err := sqlite.Open(d.path, d.opts)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			d.t.Errorf("Close: %v", err)
		}
	})
	return s
}

func (d *db) Open() storage.Store { return d.open() }

func (d *db) Kill(s storage.Store) { s.(*sqlite.Store).Kill() }

func (d *db) Reboot(s storage.Store) {
	id := s.(*sqlite.Store).InstanceNumber()
	d.Kill(s)
	d.exec("UPDATE errand_instance SET boot = 'another boot' WHERE instance = ?1", id)
	d.exec("UPDATE errand_number SET n = n + 1 WHERE id = 4") // for those that have read the boot already
}

// exec runs SQL on a connection that errand knows nothing of.
func (d *db) exec(text string, args ...any) {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	if _, err := raw.Exec(text, args...); err != nil {
		d.t.Fatal(err)
	}
}

// raw opens the file as any other program would.
func (d *db) raw() *sql.DB {
	raw, err := sql.Open("sqlite", "file:"+d.path+"?mode=rw&_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		d.t.Fatal(err)
	}
	return raw
}

// number runs a query for one number.
func (d *db) number(text string, args ...any) (n int64) {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	if err := raw.QueryRow(text, args...).Scan(&n); err != nil {
		d.t.Fatalf("%s: %v", text, err)
	}
	return n
}

func (d *db) Invariants(t testing.TB) {
	t.Helper()
	raw := d.raw()
	defer raw.Close()
	broken, err := sqlite.CheckRules(context.Background(), raw)
	if err != nil || len(broken) > 0 {
		t.Errorf("rules that do not hold: %v (%v)", broken, err)
	}
	var sound string
	if err := raw.QueryRow("PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		t.Errorf("integrity_check: %s, %v", sound, err)
	}
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newJob(queue, kind string) storage.NewJob {
	return storage.NewJob{Queue: queue, Kind: kind, Args: []byte("{}")}
}

func want(n int, kinds ...string) []storage.Want {
	return []storage.Want{{Queues: []string{"default"}, Kinds: kinds, N: n}}
}

// enqueue puts n jobs of one kind into the default queue, due at t0.
func enqueue(t testing.TB, s storage.Store, kind string, n int) []storage.Enqueued {
	t.Helper()
	var out []storage.Enqueued
	for n > 0 {
		jobs := make([]storage.NewJob, min(n, 10_000))
		for i := range jobs {
			jobs[i] = newJob("default", kind)
		}
		got, err := s.Enqueue(context.Background(), t0, jobs)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got...)
		n -= len(jobs)
	}
	return out
}

// lease takes up to n jobs.
func lease(t testing.TB, s storage.Store, n int, kinds ...string) []storage.Leased {
	t.Helper()
	r, err := s.Exchange(context.Background(), t0, storage.Exchange{LeaseDuration: 30 * time.Second, Wants: want(n, kinds...)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Leased
}

// finish ends leases as done, keeping nothing, and returns the results.
func finish(t testing.TB, s storage.Store, leased ...storage.Leased) []storage.ItemResult {
	t.Helper()
	x := storage.Exchange{LeaseDuration: 30 * time.Second}
	for _, l := range leased {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
	}
	r, err := s.Exchange(context.Background(), t0, x)
	if err != nil {
		t.Fatal(err)
	}
	return r.Finished
}

func TestStore_TableEmptiedAndFilledAgain(t *testing.T) {
	s := newDB(t, nil).open()
	keys, tokens := map[int64]bool{}, map[int64]bool{}
	var late storage.Leased
	for range 3 {
		enqueue(t, s, "a", 10)
		got := lease(t, s, 10, "a")
		if len(got) != 10 {
			t.Fatalf("leased %d, want 10", len(got))
		}
		for _, l := range got {
			if keys[l.Key] || tokens[l.Token] {
				t.Fatalf("key %d or token %d came twice", l.Key, l.Token)
			}
			keys[l.Key], tokens[l.Token] = true, true
		}
		if late.Key != 0 {
			if r := finish(t, s, late); r[0] != storage.Lost {
				t.Fatalf("a late holder finished a stranger: %v", r)
			}
		}
		late = got[0]
		finish(t, s, got...)
	}
}

func TestStore_EnqueueAndDrain(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	const n = 1000
	ids := enqueue(t, s, "a", n)
	for i := 0; i < n; {
		got := lease(t, s, 16, "a")
		for _, l := range got {
			if l.ID != ids[i].ID {
				t.Fatalf("leased %v, want %v", l.ID, ids[i].ID)
			}
			i++
		}
		finish(t, s, got...)
	}
	d.Invariants(t)
}

func has(found []sqlite.Finding, check string, s sqlite.Severity) bool {
	for _, f := range found {
		if f.Check == check && f.Severity == s {
			return true
		}
	}
	return false
}
