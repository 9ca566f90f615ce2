package sqlite_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
	"github.com/errandq/errand/storage/internal/rules/rowstest"
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

//errand:shows [contract] | | the contract of the store, sentence by sentence, and random histories of several instances
//errand:shows [unique] | concurrent_unique | many enqueue one key at the same time
//errand:shows memory of large args | lease_bytes | one exchange or hand-off leases jobs until their args and headers reach 32 MiB
//errand:shows heartbeats that are not needed | cancel_alone
//errand:shows long transactions of others | lapse_pulse
//errand:shows killed while it stops | fate_stopping | no crash is counted for jobs of a process that was stopping; otherwise it is
//errand:shows a queue closed before its worker | close_hands_back close_last_ends | jobs that have not begun, or whose handler has returned, are handed back at once, the others with the last handler
//errand:shows keys held for ever | unique_release unique_gone | a key can be released, at once or when its job ends, and a duplicate says that its job is gone
//errand:shows an outage of the other side | outcome_unavailable | the success that counts is one of the same lane, under a later lease than the job's previous attempt
//errand:shows caps | cap_refuse cap_bytes cap_evict_limit | a queue or a file with a cap takes in no job beyond it, in any process, nor in a transaction of the application
//errand:shows caps | cap_evict_oldest cap_evict_lowest cap_evict_stays cap_told | jobs go in the order that `WhenFull` says; those of groups, those that run and those with a key for ever stay
//errand:shows caps | cap_dead cap_dead_stays cap_dead_limit | dead letters are evicted only beyond a cap that says so, the oldest first, never those that block their group, and each one is counted
//errand:shows a file that has become large | compact
//errand:shows held lanes | hold_stacks hold_until | nothing is leased of a lane while one of its holds is in force
//errand:shows holds that began at a wrong time | hold_shifted hold_shift_notify | once the clock is set back, a hold for a time lasts that time from then on
//errand:shows what is kept from a wrong clock | shift_finished shift_messages shift_keys shift_entries | once the clock is set back, what was reckoned from a later time lasts as long from then on
//errand:shows jobs that are run now | run_now_order run_now_through run_now_held | jobs that wait for a retry become ready in the order of their keys, none that came after the call, and none of a lane that is held
//errand:shows jobs that are run now | run_now_urgent | one job by its ID is leased from a lane that is held, once, and only by who permits it
func TestStore_Conformance(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storagetest.DB { return newDB(t, nil) },
		storagetest.Lacking("lost answers", "no storage.Marker", "a clock that can be set", "storage.Promoter"))
}

//errand:shows [contract]
func TestStore_RandomHistories(t *testing.T) {
	storagetest.RunRandom(t, func(t *testing.T) storagetest.DB { return newDB(t, nil) })
}

//errand:shows [contract] | | calls of several instances at the same time, in any order
func TestStore_Overlapping(t *testing.T) {
	storagetest.RunOverlapping(t, func(t *testing.T) storagetest.DB { return newDB(t, nil) }, 20)
}

func TestStore_Rows(t *testing.T) {
	rowstest.Run(t, func(t *testing.T) rowstest.DB { return newDB(t, nil) })
}

// Rows is for rowstest.
func (d *db) Rows(s storage.Store, fn func(load func(rules.Need) (*rules.Tx, error)) error) error {
	return s.(*sqlite.Store).Rows(d.t.Context(), fn)
}

// db is a file under test. Instances of one process stand for several: each
// has locks of its own.
type db struct {
	t    testing.TB
	path string
	opts *sqlite.Options
}

// newDB returns a database that is not there yet. Without options its ballast is small, as most
// tests are about something else, and an Open writes all of it.
func newDB(t testing.TB, opts *sqlite.Options) *db {
	opts = cmp.Or(opts, &sqlite.Options{Ballast: 1 << 16})
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

// OpenHasty is for storagetest.
func (d *db) OpenHasty() storage.Store {
	o := *cmp.Or(d.opts, &sqlite.Options{})
	o.BusyTimeout = 20 * time.Millisecond
	for {
		s, err := sqlite.Open(d.path, &o)
		switch {
		case errors.Is(err, storage.ErrBusy) && d.t.Context().Err() == nil:
			continue // others may take longer to give the file back
		case err != nil:
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() {
			if err := s.Close(); err != nil {
				d.t.Errorf("Close: %v", err)
			}
		})
		return s
	}
}

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
	return numberOf(d.t, raw, text, args...)
}

// numberOf is number on a connection that stays open: to open one reads the schema.
func numberOf(t testing.TB, raw *sql.DB, text string, args ...any) (n int64) {
	t.Helper()
	if err := raw.QueryRow(text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// Bounds are those that the comment of [sqlite.Store] says.
func (d *db) Bounds() storagetest.Bounds {
	return storagetest.Bounds{Promoted: 1000, Expired: 250, Evicted: 1000, Scheduled: 10_000, DeadEvicted: 100, DeadLooked: 1000}
}

func (d *db) Invariants(t testing.TB) {
	t.Helper()
	raw := d.raw()
	defer raw.Close()
	invariantsOf(t, raw)
}

// invariantsOf is Invariants on a connection that stays open.
func invariantsOf(t testing.TB, raw *sql.DB) {
	t.Helper()
	broken, err := sqlite.CheckInvariants(context.Background(), raw)
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
