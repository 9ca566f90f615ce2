//go:build unix

package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/errandq/errand"
)

func init() { roles["lots"] = lots }

// runStatements are the statements of runs of the store: one leases neighbouring jobs, one copies
// those that are done, and one deletes them.
var runStatements = map[string]struct {
	op    int32
	table string
}{
	"lease": {lib.SQLITE_UPDATE, "errand_job"},
	"keep":  {lib.SQLITE_INSERT, "errand_finished"},
	"drop":  {lib.SQLITE_DELETE, "errand_job"},
}

// lots is a program that enqueues plain jobs in lots, and works on them, so that they are leased
// and ended in runs. It kills itself in the middle of a statement of a run if Plan names one.
func lots(p part, v *voice) error {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(p.Seed, 1))
	if s, ok := runStatements[p.Plan]; ok {
		left, last, begun := 1+r.IntN(150), int64(0), false
		onChange(func(c *driver.SQLitePreUpdateData) {
			within := c.Op == s.op && c.TableName == s.table
			key := max(c.OldRowID, c.NewRowID)
			if c.Op == lib.SQLITE_DELETE {
				key = c.OldRowID
			}
			if within && begun && key == last+1 {
				left--
			}
			if last, begun = key, within; left == 0 {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
				select {}
			}
		})
	}
	q, err := p.open(v, nil)
	if err != nil {
		return err
	}
	m := &mixer{part: p, voice: v, q: q}
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 4, LeaseDuration: time.Minute, MaxCrashes: 1_000_000})
	worked := make(chan struct{}, 500)
	errand.Handle(w, func(_ context.Context, job *errand.Job[order]) error {
		v.say("run %d %d", job.ID.Key(), job.Attempt)
		select {
		case <-worked:
		default: // a job of another program
		}
		return outcome(job.Args.N, job.Attempt)
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	v.say("ready")
	for m.next < p.Jobs {
		if err := m.enqueueLot(ctx, 1+r.IntN(100), worked); err != nil {
			return err
		}
	}
	if !p.Finish {
		return <-ended // when it is killed
	}
	await := time.NewTicker(20 * time.Millisecond)
	defer await.Stop()
	for left := true; left; <-await.C {
		counts, err := q.Counts(ctx)
		if err != nil {
			return err
		}
		left = false
		for _, c := range counts {
			left = left || c.State == errand.Ready || c.State == errand.Running || c.State == errand.Scheduled
		}
	}
	if err := w.Shutdown(ctx); err != nil {
		return err
	}
	return q.Close()
}

// onChange has f called before each change of a row, by each connection that is opened after it.
func onChange(f func(*driver.SQLitePreUpdateData)) {
	driver.RegisterConnectionHook(func(c driver.ExecQuerierContext, _ string) error {
		c.(driver.HookRegisterer).RegisterPreUpdateHook(func(d driver.SQLitePreUpdateData) { f(&d) })
		return nil
	})
}

// enqueueLot enqueues n jobs in one call, when there is room for them in worked.
func (m *mixer) enqueueLot(ctx context.Context, n int, worked chan<- struct{}) error {
	var jobs []errand.NewJob
	var lines []string
	first := m.First + m.next
	for i := range n {
		worked <- struct{}{}
		jobs = append(jobs, errand.NewJob{Args: order{N: first + i}})
		lines = append(lines, fmt.Sprintf("try %d default", first+i))
	}
	m.next += n
	m.voice.lines(lines)
	all, err := m.q.EnqueueMany(ctx, jobs)
	lines = lines[:0]
	for i, e := range all {
		lines = append(lines, fmt.Sprintf("enqueued %d %s", first+i, e.ID))
	}
	m.voice.lines(lines)
	return err
}

// outcome is what becomes of a job of a lot: most are done, with few between them that are not.
// What is not done says of which job it is.
func outcome(n, attempt int) error {
	why := fmt.Errorf("this is job %d", n)
	switch {
	case n%32 == 3 && attempt == 1:
		return why
	case n%32 == 13:
		return errand.Permanent(why)
	case n%32 == 23:
		return errand.Cancel(why)
	}
	return nil
}

// sqlOutcomes has the jobs that have ended, and the failures of all.
const sqlOutcomes = `WITH ended AS (
SELECT id, state, attempt, args, error FROM errand_finished UNION ALL SELECT id, 6, attempt, args, error FROM errand_dead),
every AS (SELECT id, args FROM errand_job UNION ALL SELECT id, args FROM ended)
SELECT CAST(args AS TEXT), state, attempt, COALESCE(error, '') FROM ended UNION ALL
SELECT CAST(every.args AS TEXT), 0, attempt, h.error FROM errand_history h JOIN every ON id = job WHERE h.error LIKE 'this is%'`

// wantOutcomes fails the test unless each job that has ended has done so as outcome says, with its
// own error. It returns how many have ended, and how many failures there are.
func wantOutcomes(t *testing.T, path, after string) (ended, failures int) {
	t.Helper()
	db, err := raw(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(sqlOutcomes)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var args, text string
		var state, attempt int
		var o order
		if err := rows.Scan(&args, &state, &attempt, &text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(args), &o); err != nil {
			t.Fatal(err)
		}
		want, own := done, fmt.Sprintf("this is job %d", o.N)
		switch n := o.N % 32; {
		case state == 0:
			failures++
			want = 0
		case n == 3 && attempt == 1:
			want = ready // again
		case n == 13:
			want = dead
		case n == 23:
			want = cancelled
		default:
			own = ""
		}
		if state > 0 {
			ended++
		}
		if state != want || text != own {
			t.Errorf("%s: job %d, attempt %d, is in state %d with error %q: want %d, %q", after, o.N, attempt, state, text, want, own)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ended, failures
}

// A program whose jobs are leased and ended in runs is killed five hundred times: at random
// moments, and in the middle of each statement of a run. After each kill no job is lost, twice, or
// has the outcome of another one, and what is counted is what there is.
func TestKill_Runs(t *testing.T) { inBoth(t, killRuns) }

func killRuns(t *testing.T, relaxed bool) {
	t.Parallel()
	const aFile = 10 // kills
	random, within := dice(t), []string{"", "lease", "keep", "drop"}
	kills, jobs, ended, failures, duplicates := map[string]int{}, 0, 0, 0, 0
	var l *ledger
	var p part
	over := func() {
		p.First, p.Jobs, p.Plan, p.Finish = p.First+1_000_000, 0, "", true
		start(t, l, p).finish(2 * time.Minute)
		f := l.audit(t, p.DB)
		f.mustBeClean(t, "%v kills, and all finished", kills)
		e, n := wantOutcomes(t, p.DB, "all finished")
		if e < f.jobs { // more if a program was killed before it acknowledged a lot
			t.Errorf("%d of %d jobs have ended", e, f.jobs)
		}
		jobs, ended, failures, duplicates = jobs+f.jobs, ended+e, failures+n, duplicates+f.duplicates
	}
	rounds(t, 12, 250, func(i int) { // of each durability
		if i%aFile == 0 {
			if l != nil {
				over()
			}
			l, p = newLedger(), part{Role: "lots", DB: filepath.Join(ramDir(t), "jobs.db"), Relaxed: relaxed}
		}
		p.First, p.Jobs, p.Seed, p.Plan = p.First+1_000_000, 1_000_000, random.Uint64(), within[i%len(within)]
		c := start(t, l, p)
		c.faulty.Store(true)
		if p.Plan == "" {
			c.hearsWithin(2*time.Minute, "ready")
			<-time.After(between(random, 0, 200*time.Millisecond))
			c.kill()
		} else {
			limit := time.AfterFunc(2*time.Minute, func() { _ = c.cmd.Process.Signal(syscall.SIGQUIT) })
			c.reap()
			limit.Stop()
		}
		if s, ok := c.state.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("a program that was to be killed in a run (%q) has ended: %v", p.Plan, c.state)
		}
		kills[p.Plan]++
		l.audit(t, p.DB).mustBeClean(t, "%v kills", kills)
		wantOutcomes(t, p.DB, "killed")
	})
	if l != nil && !t.Failed() {
		over()
	}
	t.Logf("kills by where in a run, none for a random moment: %v; %d jobs, %d ended, %d failures, %d runs cut off", kills, jobs, ended, failures, duplicates)
}
