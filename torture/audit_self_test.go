//go:build unix

package torture_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What the audit is there to find it finds: on a database that was tampered
// with, and in a ledger that says what cannot be.
func TestAudit_SeesWhatIsWrong(t *testing.T) {
	l, path := sample(t, true)
	l.audit(t, path).mustBeClean(t, "nothing")
	const done = `(SELECT MAX(id) FROM errand_finished WHERE state = 4 AND args IS NOT NULL)`
	const back = `INSERT INTO errand_job (id, lane, state, priority, due_at, token, attempt, salt, created_at, timeout, policy, args)
SELECT id, lane, 2, priority, due_at, token, attempt, salt, created_at, timeout, policy, args FROM errand_finished WHERE id = ` + done
	for name, c := range map[string]struct {
		tamper string
		finds  string
	}{
		"a waiting job is gone":            {`DELETE FROM errand_job WHERE id = (SELECT MIN(id) FROM errand_job)`, "lost: "},
		"a finished job is gone":           {`DELETE FROM errand_finished WHERE id = ` + done, "lost: "},
		"a finished job waits again":       {back + `; DELETE FROM errand_finished WHERE id = ` + done, "lost: "},
		"a finished job is in two tables":  {back, "broken: jobs in more than one table"},
		"an outcome is another":            {`UPDATE errand_finished SET state = 5 WHERE id = ` + done, "lost: "},
		"an outcome of an older lease":     {`UPDATE errand_finished SET token = 0 WHERE id = ` + done, "lost: "},
		"an outcome that nobody reported":  {`UPDATE errand_finished SET token = token + 100000 WHERE id = ` + done, "unexpected: "},
		"another job has its place":        {`UPDATE errand_finished SET args = CAST('{"N":7000}' AS BLOB) WHERE id = ` + done, "lost: "},
		"a job that nobody enqueued":       {`UPDATE errand_job SET args = CAST('{"N":7000}' AS BLOB) WHERE id = (SELECT MIN(id) FROM errand_job)`, "unexpected: "},
		"a job was enqueued twice":         {strings.Replace(back, "SELECT id", "SELECT id + 100000", 1), "unexpected: "},
		"a count is wrong":                 {`UPDATE errand_number SET n = n + 1 WHERE id >= 32 AND id % 32 = 2`, "broken: wrong counts"},
		"one job fewer was enqueued":       {`UPDATE errand_number SET n = n - 1 WHERE id >= 32 AND id % 32 = 23`, "lost: total of enqueued in queue default"},
		"one job more was enqueued":        {`UPDATE errand_number SET n = n + 1 WHERE id >= 32 AND id % 32 = 23`, "unexpected: total of done in queue default"},
		"a death is not counted":           {`UPDATE errand_number SET n = n - 1 WHERE id >= 32 AND id % 32 = 26`, "lost: total of dead in queue default"},
		"a death is counted twice":         {`UPDATE errand_number SET n = n + 1 WHERE id >= 32 AND id % 32 = 26`, "unexpected: total of dead in queue default"},
		"a redrive is not counted":         {`UPDATE errand_number SET n = n - 1 WHERE id >= 32 AND id % 32 = 27`, "lost: total of done in queue default"},
		"a cancelled job is counted twice": {`INSERT INTO errand_number SELECT id + 1, 1 FROM errand_number WHERE id >= 32 AND id % 32 = 23`, "unexpected: total of cancelled in queue default"},
		"a job was evicted":                {`INSERT INTO errand_number SELECT id - 2, 1 FROM errand_number WHERE id >= 32 AND id % 32 = 23`, "unexpected: total of evicted in queue default"},
		"the jobs are of another queue":    {`UPDATE errand_lane SET queue = 'other'`, "lost: total of enqueued in queue default"},
		"a key that will be given again":   {`UPDATE errand_number SET n = 3 WHERE id = 1`, "broken: uncounted jobs"},
		"a token that will be given again": {`UPDATE errand_number SET n = 3 WHERE id = 2; UPDATE errand_job SET token = 5`, "broken: tokens from the future"},
		"a transaction without its row":    {`DELETE FROM mine`, "a job without the row of its transaction"},
		"a transaction without its job":    {`DELETE FROM errand_finished WHERE CAST(args AS TEXT) LIKE '%"Plan":"tx"%'`, "a row without the job of its transaction"},
		"two jobs have one unique key":     {`UPDATE errand_job SET unique_key = 'k' WHERE id = (SELECT MIN(id) FROM errand_job)`, "broken: jobs without their unique key"},
		"large args are gone":              {`DELETE FROM errand_payload`, "broken: "},
	} {
		t.Run(name, func(t *testing.T) {
			to := copyTo(t, path)
			db, err := raw(to)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(c.tamper); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if f := l.audit(t, to); !strings.Contains(f.String(), c.finds) {
				t.Errorf("found %v: want %q", f, c.finds)
			}
		})
	}
}

func TestLedger_SeesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ says, finds string }{
		"an outcome that is not there": {"leased 1 900000 8 default\nending 1 900000 1 9000000000000000\nended 1 900000", "lost: "},
		"a lease after the end":        {"leased 1 900000 8 default", "lost: "},
		"a token handed out twice":     {"leased 1 900000 8 default\nleased 1 900000 9 default", "unexpected: token 900000"},
		"an attempt that is run twice": {"run 1 77\nrun 1 77", "unexpected: "},
		"a run without a lease":        {"run 1 77\nrun 1 78", "unexpected: "},
		"a run again without reason":   {"leased 1 900000 77 default\nrun 1 77\nrun 1 78", "though its lease was not lost"},
	} {
		t.Run(name, func(t *testing.T) {
			f := openLocal(t, filepath.Join(ramDir(t), "jobs.db"), part{Workers: 1})
			close(f.release)
			if err := f.enqueue(10); err != nil {
				t.Fatal(err)
			}
			await(t, time.Minute, "it is done", func() bool { return f.worked(t) })
			f.close(t)
			l, by := f.ledger, &child{t: t}
			l.audit(t, f.path).mustBeClean(t, "nothing")
			for line := range strings.SplitSeq(c.says, "\n") {
				if _, err := l.note(by, line); err != nil {
					t.Fatal(err)
				}
			}
			if f := l.audit(t, f.path); !strings.Contains(f.String(), c.finds) {
				t.Errorf("found %v: want %q", f, c.finds)
			}
		})
	}
}
