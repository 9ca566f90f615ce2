package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/storage/storagetest"
)

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

// invariants are queries that count what must not be.
var invariants = map[string]string{
	"jobs in more than one table": `SELECT COUNT(*) FROM (SELECT id FROM errand_job UNION ALL
SELECT id FROM errand_finished UNION ALL SELECT id FROM errand_dead) GROUP BY id HAVING COUNT(*) > 1 LIMIT 1`,
	"counts that are not kept right": `WITH real AS (SELECT lane, state, COUNT(*) n FROM
(SELECT lane, state FROM errand_job UNION ALL SELECT lane, state FROM errand_finished UNION ALL SELECT lane, 6 FROM errand_dead)
GROUP BY lane, state)
SELECT (SELECT COUNT(*) FROM real r LEFT JOIN errand_count c USING (lane, state) WHERE c.n IS NOT r.n)
+ (SELECT COUNT(*) FROM errand_count c LEFT JOIN real r USING (lane, state) WHERE c.n <> COALESCE(r.n, 0))`,
	"tokens on two leases":             `SELECT COUNT(*) - COUNT(DISTINCT token) FROM errand_job WHERE state = 3`,
	"tokens from the future":           `SELECT COUNT(*) FROM errand_job, errand_meta WHERE token >= next_token`,
	"keys from the future":             `SELECT COUNT(*) FROM errand_job, errand_meta WHERE id >= next_job`,
	"leases without holder":            `SELECT COUNT(*) FROM errand_job WHERE (state = 3) <> (instance <> 0)`,
	"leases of unknown instances":      `SELECT COUNT(*) FROM errand_job WHERE state = 3 AND instance NOT IN (SELECT instance FROM errand_instance)`,
	"args without a job":               `SELECT COUNT(*) FROM errand_payload WHERE job NOT IN (SELECT id FROM errand_job UNION SELECT id FROM errand_finished UNION SELECT id FROM errand_dead)`,
	"jobs without args":                `SELECT COUNT(*) FROM errand_job WHERE args IS NULL AND id NOT IN (SELECT job FROM errand_payload)`,
	"history without a job":            `SELECT COUNT(*) FROM errand_history WHERE job NOT IN (SELECT id FROM errand_job UNION SELECT id FROM errand_finished UNION SELECT id FROM errand_dead)`,
	"keys of live scope without a job": `SELECT COUNT(*) FROM errand_unique WHERE until = 0 AND job NOT IN (SELECT id FROM errand_job)`,
	"live jobs without their key":      `SELECT COUNT(*) FROM errand_job j WHERE unique_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM errand_unique u WHERE u.key = j.unique_key AND u.job = j.id)`,
	"references to policies that are not kept right": `WITH used AS (SELECT policy, COUNT(*) n FROM (SELECT policy FROM errand_job
UNION ALL SELECT policy FROM errand_finished UNION ALL SELECT policy FROM errand_dead UNION ALL SELECT own_policy FROM errand_dead)
WHERE policy <> 0 GROUP BY policy)
SELECT (SELECT COUNT(*) FROM used u LEFT JOIN errand_policy p USING (policy) WHERE p.refs IS NOT u.n)
+ (SELECT COUNT(*) FROM errand_policy p LEFT JOIN used u USING (policy) WHERE p.refs <> COALESCE(u.n, 0))`,
	"histories that are too long":        `SELECT COUNT(*) FROM (SELECT job FROM errand_history GROUP BY job HAVING COUNT(*) > 20)`,
	"negative counters":                  `SELECT COUNT(*) FROM errand_job WHERE attempt < 0 OR retry < 0 OR crashes < 0 OR snoozes < 0`,
	"delays below zero":                  `SELECT COUNT(*) FROM errand_job WHERE delay < 0`,
	"ticks without a schedule":           `SELECT COUNT(*) FROM errand_tick WHERE schedule NOT IN (SELECT schedule FROM errand_schedule)`,
	"schedules without a job":            `SELECT COUNT(*) FROM errand_schedule WHERE schedule NOT IN (SELECT schedule FROM errand_schedule_job)`,
	"jobs of schedules that are gone":    `SELECT COUNT(*) FROM errand_schedule_job WHERE schedule NOT IN (SELECT schedule FROM errand_schedule)`,
	"histories of ticks too long":        `SELECT COUNT(*) FROM (SELECT schedule FROM errand_tick GROUP BY schedule HAVING COUNT(*) > 50)`,
	"revisions from the future":          `SELECT COUNT(*) FROM errand_schedule, errand_meta WHERE revision NOT BETWEEN 1 AND next_token - 1`,
	"revisions that are lease tokens":    `SELECT COUNT(*) FROM errand_schedule JOIN errand_job ON token = revision`,
	"last ticks without a job":           `SELECT COUNT(*) FROM errand_schedule WHERE (last_tick IS NULL) <> (last_job IS NULL)`,
	"fates or wishes of jobs not leased": `SELECT COUNT(*) FROM errand_job WHERE state <> 3 AND (fate <> 0 OR cancelling <> 0)`,
}

func (d *db) Invariants(t testing.TB) {
	t.Helper()
	raw := d.raw()
	defer raw.Close()
	for name, text := range invariants {
		var n int
		if err := raw.QueryRow(text).Scan(&n); err != nil && err != sql.ErrNoRows {
			t.Errorf("%s: %v", name, err)
		} else if n != 0 {
			t.Errorf("%s: %d", name, n)
		}
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

func source(kinds ...string) storage.Source {
	return storage.Source{Queues: []string{"default"}, Kinds: kinds}
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
	r, err := s.Exchange(context.Background(), t0, storage.Exchange{Length: 30 * time.Second, Want: n, Source: source(kinds...)})
	if err != nil {
		t.Fatal(err)
	}
	return r.Leased
}

// finish ends leases as done, keeping nothing, and gives the results.
func finish(t testing.TB, s storage.Store, leased ...storage.Leased) []storage.ItemResult {
	t.Helper()
	x := storage.Exchange{Length: 30 * time.Second}
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
