package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// crowd fills a new database with n jobs that wait, a fifth of them scheduled, a tenth
// as many dead ones, and as many finished ones, by SQL of its own. The oldest 100 are
// the only ones of their queue and kind, and three finished ones are cancelled.
func crowd(b *testing.B, n int) *sqlite.Store {
	b.Helper()
	d := newDB(b, &sqlite.Options{Durability: sqlite.Relaxed})
	if err := d.open().Close(); err != nil {
		b.Fatal(err)
	}
	const c = `WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?1) `
	at := t0.UnixMicro()
	args := `CAST('{"to":"somebody@example.org","n":' || i || '}' AS BLOB)`
	d.exec(`INSERT INTO errand_lane VALUES (1, 'a', 'many'), (2, 'b', 'more'), (3, 'z', 'rare')`)
	d.exec(c+`INSERT INTO errand_job (id, lane, state, priority, due_at, salt, created_at, args, options)
SELECT i, CASE WHEN i <= 100 THEN 3 WHEN i % 10 = 0 THEN 2 ELSE 1 END, 2 - (i % 5 = 0), i % 3, ?2 + i + (i % 5 = 0) * (3600000000 + i * 7919 % 1000000007),
0, ?2 + i * 100, `+args+`, 2 * (i % 10 = 5 OR i % 1009 = 0) FROM c`, n, at)
	d.exec(c+`INSERT INTO errand_dead (id, lane, priority, due_at, token, attempt, retry, crashes, snoozes, salt, created_at, ended_at, timeout, policy,
in_effect, reason, error, args) SELECT i + ?3, 1 + (i % 10 = 0), 0, ?2, 0, 28, 27, 0, 0, 0, ?2 + (i + ?3) * 100, ?2 + i * 7, 0, 0, 0, 'exhausted',
'POST https://example.org/' || i || ': 503 Service Unavailable', `+args+` FROM c`, n/10, at, n)
	d.exec(c+`INSERT INTO errand_finished (id, lane, state, priority, due_at, token, attempt, salt, created_at, ended_at, purge_at, args)
SELECT i + ?3, 1 + (i % 10 = 0), 4 + (i < 4), 0, ?2, 0, 1, 0, ?2 + (i + ?3) * 100, ?2 + i, ?2 + 86400000000, `+args+` FROM c`, n/10, at, 2*n)
	d.exec(`INSERT INTO errand_tag SELECT 'tenth', id FROM errand_job WHERE id % 10 = 5`)
	d.exec(`INSERT INTO errand_tag SELECT 'few', id FROM errand_job WHERE id % 1009 = 0`)
	d.exec(`INSERT INTO errand_number SELECT lane * 32 + state, COUNT(*) FROM (SELECT lane, state FROM errand_job
UNION ALL SELECT lane, 6 FROM errand_dead UNION ALL SELECT lane, state FROM errand_finished) GROUP BY lane, state`)
	d.exec(`UPDATE errand_number SET n = ?1 WHERE id = 1`, 3*n)
	s := d.open()
	enqueue(b, s, "running", 20)
	lease(b, s, 20, "running")
	return s
}

// BenchmarkJobs_Args makes a page of 50 jobs with args of 256 KiB, of which none is shown, or all are.
func BenchmarkJobs_Args(b *testing.B) {
	s, err := sqlite.Open(filepath.Join(b.TempDir(), "jobs.db"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for range 50 {
		if _, err := s.Enqueue(b.Context(), t0, []storage.NewJob{{Queue: "q", Kind: "k", Args: make([]byte, 256<<10)}}); err != nil {
			b.Fatal(err)
		}
	}
	for name, most := range map[string]int64{"left-out": 16 << 10, "whole": 0} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := s.Jobs(context.Background(), storage.Filter{Args: true, MaxArgs: most}, "", 50)
				if err != nil || len(p.Jobs) != 50 || (p.Jobs[0].ArgsBytes > 0) != (most > 0) {
					b.Fatal(len(p.Jobs), err)
				}
			}
		})
	}
}

// BenchmarkJobs makes the first page of 100 of many lists, beside a million jobs that
// wait, or ERRAND_LIST_JOBS of them, and a tenth as many dead and finished ones.
func BenchmarkJobs(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("ERRAND_LIST_JOBS"))
	if err != nil {
		n = 1_000_000
	}
	s := crowd(b, n)
	states := func(all ...storage.State) []storage.State { return all }
	for _, list := range []struct {
		name string
		f    storage.Filter
	}{
		{"all", storage.Filter{}},
		{"running", storage.Filter{States: states(storage.Running)}},
		{"ready", storage.Filter{States: states(storage.Ready)}},
		{"scheduled", storage.Filter{States: states(storage.Scheduled)}},
		{"dead", storage.Filter{States: states(storage.Dead)}},
		{"done", storage.Filter{States: states(storage.Done)}},
		{"cancelled", storage.Filter{States: states(storage.Cancelled)}},
		{"queue", storage.Filter{Queue: "b"}},
		{"queue-rare", storage.Filter{Queue: "z"}},
		{"queue-rare-scheduled", storage.Filter{Queue: "z", States: states(storage.Scheduled)}},
		{"queue-rare-dead", storage.Filter{Queue: "z", States: states(storage.Dead)}},
		{"kind", storage.Filter{Kind: "many"}},
		{"kind-dead", storage.Filter{Kind: "more", States: states(storage.Dead)}},
		{"tag", storage.Filter{Tag: "tenth"}},
		{"tag-few", storage.Filter{Tag: "few"}},
		{"tag-queue-rare", storage.Filter{Tag: "tenth", Queue: "z"}},
		{"created-last", storage.Filter{CreatedFrom: t0.Add(time.Duration(n) * 100 * time.Microsecond * 9 / 10)}},
		{"created-middle", storage.Filter{CreatedFrom: t0.Add(time.Duration(n) * 40 * time.Microsecond), CreatedBefore: t0.Add(time.Duration(n) * 41 * time.Microsecond)}},
		{"due", storage.Filter{DueFrom: t0.Add(70 * time.Minute), DueBefore: t0.Add(71 * time.Minute), States: states(storage.Scheduled)}},
		{"error", storage.Filter{Error: "503 service"}},
		{"error-rare-dead", storage.Filter{Error: "/77:", States: states(storage.Dead)}},
		{"ended", storage.Filter{EndedFrom: t0, EndedBefore: t0.Add(time.Second), States: states(storage.Dead)}},
	} {
		b.Run(list.name, func(b *testing.B) {
			for b.Loop() {
				p, err := s.Jobs(context.Background(), list.f, "", 100)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(p.Jobs)), "jobs")
				b.ReportMetric(float64(p.Looked), "looked")
			}
		})
	}
}
