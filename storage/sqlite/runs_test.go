package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// What a Store remembers of its leases is not believed once the lease is another one, or lost.
func TestLeases_StaleFacts(t *testing.T) {
	ctx := context.Background()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ends := map[string]func(l storage.Lease) storage.Exchange{
		"retry": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeRetry, DueAt: t0.Add(time.Hour), Failure: &storage.NewFailure{Phase: "returned"}}}}
		},
		"return": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeReturned}}}
		},
		"extend": func(l storage.Lease) storage.Exchange { return storage.Exchange{Extend: []storage.Lease{l}} },
		"done": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeDone}}}
		},
		"dead": func(l storage.Lease) storage.Exchange {
			return storage.Exchange{Finish: []storage.Finish{{Lease: l, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent}}}
		},
	}
	for name, c := range map[string]struct {
		stale func(s storage.Store, d *db, l storage.Leased)
		want  map[string]storage.ItemResult // storage.Lost if it has none
	}{
		"asked to stop": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Cancel(ctx, t0, l.ID, storage.Retention{Default: time.Hour})
				step(err)
			},
			want: map[string]storage.ItemResult{
				"retry": storage.Applied, "return": storage.Applied, "extend": storage.Cancelling, "done": storage.Applied, "dead": storage.Applied,
			},
		},
		"taken": {
			stale: func(_ storage.Store, d *db, l storage.Leased) {
				d.exec(`UPDATE errand_job SET token = (SELECT n FROM errand_number WHERE id = 2) WHERE id = ?1`, l.Key)
				d.exec(`UPDATE errand_number SET n = n + 1 WHERE id = 2`)
			},
		},
		"moved to another lane": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeSnooze}}})
				step(err)
				_, err = s.Change(ctx, t0, storage.Selection{IDs: []storage.ID{l.ID}}, storage.Edit{Queue: "other"})
				step(err)
			},
		},
		"moved, and leased again": {
			stale: func(s storage.Store, _ *db, l storage.Leased) {
				_, err := s.Exchange(ctx, t0, storage.Exchange{Finish: []storage.Finish{{Lease: l.Lease, Outcome: storage.OutcomeSnooze}}})
				step(err)
				_, err = s.Change(ctx, t0, storage.Selection{IDs: []storage.ID{l.ID}}, storage.Edit{Queue: "other"})
				step(err)
				got, err := s.Exchange(ctx, t0, storage.Exchange{LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{"other"}, Kinds: []string{"a"}, N: 1}}})
				if step(err); len(got.Leased) != 1 {
					t.Fatalf("leased %v", got.Leased)
				}
			},
		},
		"ended": {
			stale: func(s storage.Store, _ *db, l storage.Leased) { finish(t, s, l) },
		},
	} {
		for end, exchange := range ends {
			t.Run(name+"/"+end, func(t *testing.T) {
				d := newDB(t, nil)
				s := d.open()
				enqueue(t, s, "a", 1)
				l := lease(t, s, 1, "a")[0]
				plant := s.Facts(l.Token)
				c.stale(s, d, l)
				plant()
				rec, err := s.Job(ctx, l.ID)
				x := exchange(l.Lease)
				x.Retention.Default, x.LeaseDuration = time.Hour, time.Minute
				got, exchangeErr := s.Exchange(ctx, t0, x)
				step(exchangeErr)
				want, ok := c.want[end]
				if !ok {
					want = storage.Lost
				}
				if r := append(got.Finished, got.Extended...); len(r) != 1 || r[0] != want {
					t.Errorf("got %v, want %v", r, want)
				}
				after, errAfter := s.Job(ctx, l.ID)
				switch {
				case want == storage.Applied:
					state := storage.Cancelled // as it was asked for
					switch end {
					case "done":
						state = storage.Done
					case "dead":
						state = storage.Dead
					}
					if after.State != state {
						t.Errorf("the job is %v, want %v", after.State, state)
					}
				case after.State != rec.State || after.Queue != rec.Queue || after.Counters != rec.Counters || (err == nil) != (errAfter == nil):
					t.Errorf("the job was %+v, %v, and is %+v, %v", rec, err, after, errAfter)
				}
				d.Invariants(t)
			})
		}
	}
}

// twins are two Stores that are given the same calls. One writes runs, the other row by row.
type twins struct {
	*testing.T
	d [2]*db
	s [2]*sqlite.Store
}

func newTwins(t *testing.T) *twins {
	w := &twins{T: t}
	for i := range w.d {
		w.d[i] = newDB(t, &sqlite.Options{Durability: sqlite.Relaxed})
		w.s[i] = w.d[i].open()
	}
	w.s[1].RowByRow()
	return w
}

// both makes a call of both Stores, whose answers and files must be the same afterwards.
func (w *twins) both(what string, call func(s *sqlite.Store, d *db) (any, error)) {
	w.Helper()
	var got [2]string
	for i, s := range w.s {
		answer, err := call(s, w.d[i])
		got[i] = fmt.Sprintf("%+v, %v", answer, err)
	}
	if got[0] != got[1] {
		w.Fatalf("%s: with runs %s\nrow by row %s", what, got[0], got[1])
	}
	if a, b := w.d[0].rows(), w.d[1].rows(); a != b {
		w.Fatalf("%s: with runs\n%s\nrow by row\n%s", what, a, b)
	}
}

// exchange is both for an exchange, without the IDs of jobs, which are random. It returns what was
// leased.
func (w *twins) exchange(what string, x storage.Exchange) []storage.Leased {
	w.Helper()
	x.LeaseDuration = time.Minute
	var leased []storage.Leased
	w.both(what, func(s *sqlite.Store, _ *db) (any, error) {
		r, err := s.Exchange(context.Background(), t0, x)
		for i := range r.Leased {
			r.Leased[i].ID = storage.ID{}
		}
		r.Then = nil
		leased = r.Leased
		return r, err
	})
	return leased
}

func (w *twins) enqueue(jobs ...storage.NewJob) {
	w.Helper()
	w.both("enqueue", func(s *sqlite.Store, _ *db) (any, error) {
		_, err := s.Enqueue(context.Background(), t0, jobs)
		return nil, err
	})
}

// id returns the ID of a job, which is another in each Store.
func (d *db) id(key int64) storage.ID {
	var salt uint32
	var created int64
	raw := d.raw()
	defer raw.Close()
	if err := raw.QueryRow(`SELECT salt, created_at FROM errand_job WHERE id = ?1 UNION ALL
SELECT salt, created_at FROM errand_finished WHERE id = ?1 UNION ALL SELECT salt, created_at FROM errand_dead WHERE id = ?1`, key).Scan(&salt, &created); err != nil {
		return storage.ID{}
	}
	return storage.NewID(time.UnixMicro(created), salt, key)
}

// rows returns what the tables have that the end of a job writes, without what is random.
func (d *db) rows() string {
	d.t.Helper()
	return d.rowsOf("errand_job", "errand_finished", "errand_dead", "errand_number", "errand_history", "errand_option", "errand_kept", "errand_unique")
}

// all is rows for all that calls on jobs write.
func (d *db) all() string {
	d.t.Helper()
	return d.rows() + d.rowsOf("errand_payload", "errand_tag", "errand_policy", "errand_cause", "errand_error", "errand_epoch", "errand_origin", "errand_hold") +
		fmt.Sprint("urgent: ", d.number("SELECT COUNT(*) || COALESCE(SUM(job), 0) FROM errand_urgent"))
}

func (d *db) rowsOf(tables ...string) string {
	d.t.Helper()
	raw := d.raw()
	defer raw.Close()
	var out strings.Builder
	for _, table := range tables {
		all, err := raw.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
		if err != nil {
			d.t.Fatal(err)
		}
		columns, _ := all.Columns()
		for all.Next() {
			values, dest := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := all.Scan(dest...); err != nil {
				d.t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s", table)
			for i, c := range columns {
				if c != "salt" && (table != "errand_history" || c != "instance") {
					fmt.Fprintf(&out, " %s=%v", c, values[i])
				}
			}
			out.WriteString("\n")
		}
		if err := all.Err(); err != nil {
			d.t.Fatal(err)
		}
		_ = all.Close()
	}
	return out.String()
}

func ends(o storage.Outcome, all ...storage.Leased) (out []storage.Finish) {
	for _, l := range all {
		f := storage.Finish{Lease: l.Lease, Outcome: o}
		switch o {
		case storage.OutcomeRetry:
			f.DueAt, f.Failure = t0.Add(time.Second), &storage.NewFailure{Phase: "returned", Error: "no"}
		case storage.OutcomeDead:
			f.Reason, f.Error = storage.ReasonPermanent, "no"
		}
		out = append(out, f)
	}
	return out
}

func keptFor(d time.Duration) storage.Retention { return storage.Retention{Default: d} }

func plainJobs(n int) []storage.NewJob {
	jobs := make([]storage.NewJob, n)
	for i := range jobs {
		jobs[i] = newJob("default", "a")
	}
	return jobs
}

// members returns jobs of so many groups in turn.
func members(n, groups int) []storage.NewJob {
	jobs := plainJobs(n)
	for i := range jobs {
		jobs[i].Group = fmt.Sprint("g", i%groups)
	}
	return jobs
}

// Plain jobs are leased, kept and deleted by statements of many rows, and members of groups that are
// not kept too: no statement of one row is prepared.
func TestRuns_Formed(t *testing.T) {
	s := newDB(t, nil).open()
	enqueue(t, s, "a", 1)
	finish(t, s, lease(t, s, 1, "a")...) // registers the instance, and then any job might be urgent
	s.Unprepare()
	for _, c := range []struct {
		keep time.Duration
		jobs []storage.NewJob
	}{{0, plainJobs(50)}, {time.Hour, plainJobs(50)}, {0, members(100, 50)}} {
		if _, err := s.Enqueue(context.Background(), t0, c.jobs); err != nil {
			t.Fatal(err)
		}
		x := storage.Exchange{LeaseDuration: time.Minute, Retention: keptFor(c.keep), Finish: ends(storage.OutcomeDone, lease(t, s, 50, "a")...)}
		if len(x.Finish) != 50 {
			t.Fatalf("leased %d jobs, want 50", len(x.Finish))
		}
		slices.Reverse(x.Finish)
		if _, err := s.Exchange(context.Background(), t0, x); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.RunsOf(); got != [2]bool{true, false} {
		t.Errorf("statements of runs, and of one row, are prepared: %v, want only those of runs", got)
	}
}

// Runs are deleted so that SQLite writes fewer pages than for rows in the order of their keys.
func TestRuns_Pages(t *testing.T) {
	w := newTwins(t)
	jobs := plainJobs(2000)
	for i := range jobs {
		jobs[i].Args = []byte(`"` + strings.Repeat("x", 400) + `"`)
	}
	w.enqueue(jobs...)
	log := func(d *db) int64 {
		info, err := os.Stat(d.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for _, d := range w.d { // a reader keeps the log from beginning anew
		raw := d.raw()
		defer raw.Close()
		tx, err := raw.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT * FROM errand_number"); err != nil {
			t.Fatal(err)
		}
	}
	begun := [2]int64{log(w.d[0]), log(w.d[1])}
	var l []storage.Leased
	for len(jobs) > 0 {
		l = w.exchange("end and lease", storage.Exchange{Finish: ends(storage.OutcomeDone, l...), Wants: want(250, "a")})
		jobs = jobs[len(l):]
	}
	w.exchange("end", storage.Exchange{Finish: ends(storage.OutcomeDone, l...)})
	runs, rows := log(w.d[0])-begun[0], log(w.d[1])-begun[1]
	if t.Logf("%d bytes with runs, %d row by row", runs, rows); runs <= 0 || runs > rows*5/6 {
		t.Errorf("%d bytes were written with runs, %d row by row: want at most 5/6 of that", runs, rows)
	}
}

// Jobs with neighbouring keys whose tokens are not neighbours are no run, and need no second
// transaction.
func TestRuns_Tokens(t *testing.T) {
	w := newTwins(t)
	jobs := plainJobs(30)
	for i := range jobs {
		jobs[i].Priority = i % 2
	}
	w.enqueue(jobs...)
	l := w.exchange("lease", storage.Exchange{Wants: want(30, "a")})
	begun := w.s[0].Begun()
	w.exchange("end", storage.Exchange{Finish: ends(storage.OutcomeDone, l...)})
	if n := w.s[0].Begun() - begun; n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
}

// A run in the middle of which a job is not as it was taken to be is written row by row, with the
// outcomes that it has without runs.
func TestRuns_Broken(t *testing.T) {
	ctx := context.Background()
	const n = 30
	for name, change := range map[string]func(w *twins, l []storage.Leased){
		"nothing": func(*twins, []storage.Leased) {},
		"taken": func(w *twins, l []storage.Leased) {
			w.both("take", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`UPDATE errand_job SET token = 900 WHERE id = ?1; UPDATE errand_number SET n = 901 WHERE id = 2`, l[10].Key)
				return nil, nil
			})
		},
		"a range taken": func(w *twins, l []storage.Leased) {
			w.both("take", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`UPDATE errand_job SET token = token + 900 WHERE id >= ?1; UPDATE errand_number SET n = 2000 WHERE id = 2`, l[10].Key)
				return nil, nil
			})
		},
		"ended before": func(w *twins, l []storage.Leased) {
			plants := [2]func(){w.s[0].Facts(l[10].Token), w.s[1].Facts(l[10].Token)}
			w.exchange("end", storage.Exchange{Finish: ends(storage.OutcomeDone, l[10]), Retention: keptFor(time.Hour)})
			plants[0]()
			plants[1]()
		},
		"put back before": func(w *twins, l []storage.Leased) {
			plants := [2]func(){w.s[0].Facts(l[10].Token), w.s[1].Facts(l[10].Token)}
			w.exchange("put back", storage.Exchange{Finish: ends(storage.OutcomeRetry, l[10])})
			plants[0]()
			plants[1]()
		},
		"moved to another lane": func(w *twins, l []storage.Leased) {
			plants := [2]func(){w.s[0].Facts(l[10].Token), w.s[1].Facts(l[10].Token)}
			w.exchange("put back", storage.Exchange{Finish: ends(storage.OutcomeRetry, l[10])})
			w.both("move", func(s *sqlite.Store, d *db) (any, error) {
				step, err := s.Change(ctx, t0, storage.Selection{IDs: []storage.ID{d.id(l[10].Key)}}, storage.Edit{Queue: "other"})
				return step.N, err
			})
			plants[0]()
			plants[1]()
		},
		"asked to stop": func(w *twins, l []storage.Leased) {
			w.both("cancel", func(s *sqlite.Store, d *db) (any, error) {
				return s.Cancel(ctx, t0, d.id(l[10].Key), keptFor(time.Hour))
			})
		},
		"gone": func(w *twins, l []storage.Leased) {
			w.both("delete", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`DELETE FROM errand_job WHERE id = ?1`, l[10].Key)
				return nil, nil
			})
		},
		"without args": func(w *twins, l []storage.Leased) {
			w.both("damage", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`UPDATE errand_job SET args = NULL WHERE id = ?1`, l[10].Key)
				return nil, nil
			})
		},
		"in another state": func(w *twins, l []storage.Leased) {
			w.both("damage", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`UPDATE errand_job SET state = 2 WHERE id = ?1`, l[10].Key)
				return nil, nil
			})
		},
		"kept already": func(w *twins, l []storage.Leased) {
			w.both("damage", func(_ *sqlite.Store, d *db) (any, error) {
				d.exec(`INSERT INTO errand_finished (id, lane, state, priority, due_at, token, attempt, salt, created_at, ended_at, purge_at)
VALUES (?1, 1, 4, 0, 0, 0, 1, 1, 0, 0, 1)`, l[10].Key)
				return nil, nil
			})
		},
	} {
		for _, c := range []struct {
			keep time.Duration
			jobs []storage.NewJob
		}{{0, plainJobs(n)}, {time.Hour, plainJobs(n)}, {0, members(2*n, n)}, {time.Hour, members(2*n, n)}} {
			keep := c.keep
			t.Run(fmt.Sprintf("%s, group %q, kept for %v", name, c.jobs[0].Group, keep), func(t *testing.T) {
				w := newTwins(t)
				w.enqueue(newJob("other", "a"))
				w.enqueue(c.jobs...)
				l := w.exchange("lease", storage.Exchange{Wants: want(n, "a")})
				change(w, l)
				x := storage.Exchange{Finish: ends(storage.OutcomeDone, l...), Retention: keptFor(keep)}
				w.exchange("end", x)
				w.exchange("end again", x)
				x.Wants = want(n, "a")
				x.Finish = append(ends(storage.OutcomeDone, l[12]), ends(storage.OutcomeRetry, l[11])...)
				w.exchange("lease again", x)
				if name != "kept already" && name != "without args" && name != "in another state" && (name != "gone" || c.jobs[0].Group == "") { // which no rule allows
					w.d[0].Invariants(t)
				}
			})
		}
	}
}

// What follows a job joins its group as that is after the ends before it in the exchange.
func TestRuns_Then(t *testing.T) {
	w := newTwins(t)
	w.enqueue(members(60, 20)...)
	l := w.exchange("lease", storage.Exchange{Wants: want(20, "a")})
	x := storage.Exchange{Finish: ends(storage.OutcomeDone, l...)}
	for i := 10; i < 20; i++ { // once the first ten have ended
		x.Finish[i].Then = members(i-9, 20)
	}
	w.exchange("end", x)
	w.d[0].Invariants(t)
	if n := w.d[0].number("SELECT COUNT(*) FROM errand_job WHERE state = 2"); n != 20 {
		t.Errorf("%d jobs are ready, want the first of each of 20 groups", n)
	}
}

// What is ended twice, in one exchange or in two of one transaction, is ended once.
func TestRuns_EndedTwice(t *testing.T) {
	w := newTwins(t)
	w.enqueue(plainJobs(90)...)
	l := w.exchange("lease", storage.Exchange{Wants: want(90, "a")})
	w.exchange("twice in one", storage.Exchange{Finish: append(ends(storage.OutcomeDone, l[:30]...), ends(storage.OutcomeDone, l[10:20]...)...)})
	w.exchange("done and put back", storage.Exchange{Finish: append(ends(storage.OutcomeDone, l[30:60]...), ends(storage.OutcomeRetry, l[40])...)})
	for i, s := range w.s {
		release, results := s.Stall(), make(chan []storage.ItemResult, 2)
		for range 2 {
			go func() {
				r, err := s.Exchange(context.Background(), t0, storage.Exchange{Finish: ends(storage.OutcomeDone, l[60:]...)})
				if err != nil {
					t.Error(err)
				}
				results <- r.Finished
			}()
		}
		for s.Waiting() < 2 {
			runtime.Gosched()
		}
		release()
		applied := 0
		for range 2 {
			for _, r := range <-results {
				if r == storage.Applied {
					applied++
				}
			}
		}
		if applied != 30 {
			t.Errorf("Store %d: %d ends applied, want 30", i, applied)
		}
		w.d[i].Invariants(t)
	}
	w.both("afterwards", func(*sqlite.Store, *db) (any, error) { return nil, nil })
}

// A lease that FinishTx has ended is known not to be part of a run.
func TestRuns_EndedInATransaction(t *testing.T) {
	w := newTwins(t)
	w.enqueue(plainJobs(30)...)
	l := w.exchange("lease", storage.Exchange{Wants: want(30, "a")})
	for _, x := range l {
		for _, s := range w.s {
			if err := s.Started(x.Lease, t0); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.both("FinishTx", func(s *sqlite.Store, _ *db) (r any, err error) {
		err = inTx(context.Background(), s, func(tx *sql.Tx) error {
			r, _, err = s.FinishTx(context.Background(), tx, t0, ends(storage.OutcomeDone, l[10]), keptFor(time.Hour), nil)
			return err
		})
		return r, err
	})
	begun := w.s[0].Begun()
	w.exchange("end", storage.Exchange{Finish: ends(storage.OutcomeDone, l...), Retention: keptFor(time.Hour)})
	if n := w.s[0].Begun() - begun; n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
	w.d[0].Invariants(t)
}

// A job that an index has as ready, and is not, stops neither more nor less than without runs.
func TestRuns_LeaseBroken(t *testing.T) {
	w := newTwins(t)
	w.enqueue(plainJobs(30)...)
	for _, d := range w.d {
		index := `PRAGMA writable_schema = 1; UPDATE sqlite_schema SET sql = replace(sql, %s) WHERE name = 'errand_job_ready'`
		d.exec(fmt.Sprintf(index, `'state = 2', 'state = 2 AND id <> 10'`))
		d.exec(`UPDATE errand_job SET state = 5 WHERE id = 10`)
		d.exec(fmt.Sprintf(index, `'state = 2 AND id <> 10', 'state = 2'`))
	}
	w.exchange("lease", storage.Exchange{Wants: want(30, "a")})
	_, err := w.s[0].Exchange(context.Background(), t0, storage.Exchange{LeaseDuration: time.Minute, Wants: want(30, "a")})
	if !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("error %v, want ErrCorrupt", err)
	}
	w.exchange("lease those before", storage.Exchange{Wants: want(9, "a")})
}

// A job that was read ahead, and is changed before the run in whose middle it would be leased, is
// not leased with it, whoever has changed it.
func TestRuns_LeaseChanged(t *testing.T) {
	const changed = 25
	for name, change := range map[string]func(s *sqlite.Store, id storage.ID) error{
		"cancelled": func(s *sqlite.Store, id storage.ID) error {
			_, err := s.Cancel(context.Background(), t0, id, keptFor(time.Hour))
			return err
		},
		"moved to another lane": func(s *sqlite.Store, id storage.ID) error {
			_, err := s.Change(context.Background(), t0, storage.Selection{IDs: []storage.ID{id}}, storage.Edit{Queue: "other"})
			return err
		},
		"deleted": func(s *sqlite.Store, id storage.ID) error {
			if _, err := s.Cancel(context.Background(), t0, id, keptFor(0)); err != nil {
				return err
			}
			if _, err := s.Job(context.Background(), id); !errors.Is(err, storage.ErrNotFound) {
				return fmt.Errorf("the job is there, or %w", err)
			}
			return nil
		},
	} {
		for _, c := range []struct {
			by   string
			jobs []storage.NewJob
		}{{"the process", plainJobs(40)}, {"another process", plainJobs(40)}, {"the process", members(40, 40)}, {"another process", members(40, 40)}} {
			by := c.by
			t.Run(fmt.Sprintf("%s by %s, group %q", name, by, c.jobs[0].Group), func(t *testing.T) {
				w, kinds := newTwins(t), []string{"a", "b", "c", "d", "e", "f"}
				for i := range c.jobs { // of few lanes none is read ahead
					c.jobs[i].Kind = kinds[i%len(kinds)]
				}
				w.enqueue(c.jobs...)
				l := w.exchange("lease", storage.Exchange{Wants: want(10, kinds...)})
				if lanes, _, err := w.s[0].KeptAhead(); lanes != len(kinds) || err != nil {
					t.Fatalf("jobs of %d lanes are read ahead, %v: want %d", lanes, err, len(kinds))
				}
				w.both(name, func(s *sqlite.Store, d *db) (any, error) {
					id := d.id(changed)
					if by == "another process" {
						s = d.open()
						defer s.Close()
					}
					return nil, change(s, id)
				})
				l = append(l, w.exchange("lease the rest", storage.Exchange{Wants: want(40, kinds...)})...)
				if len(l) != 39 || slices.ContainsFunc(l, func(l storage.Leased) bool { return l.Key == changed }) {
					t.Errorf("leased %d of 40 jobs: want all but job %d", len(l), changed)
				}
				w.exchange("end", storage.Exchange{Finish: ends(storage.OutcomeDone, l...), Retention: keptFor(time.Hour)})
				w.d[0].Invariants(t)
			})
		}
	}
}

// A disk that is full in the middle of a run has room for what is written row by row: each row that
// is kept takes the place of one that goes. If it has none for that either, nothing is changed.
func TestRuns_Full(t *testing.T) {
	w := newTwins(t)
	jobs := plainJobs(300)
	for i := range jobs {
		jobs[i].Args = []byte(`"` + strings.Repeat("x", 1000) + `"`)
	}
	w.enqueue(jobs...)
	l := w.exchange("lease", storage.Exchange{Wants: want(300, "a")})
	before := w.d[0].rows()
	x := storage.Exchange{Finish: ends(storage.OutcomeDone, l...), Retention: keptFor(time.Hour)}
	for _, s := range w.s {
		s.MostPages(20)
		s.RoomForChanges(10)
	}
	w.exchange("no room", x)
	if after := w.d[0].rows(); after != before {
		t.Errorf("the tables were\n%s\nand are\n%s", before, after)
	}
	for _, s := range w.s {
		s.Fault(nil)
	}
	begun := w.s[0].Begun()
	w.exchange("end", x)
	if n := w.s[0].Begun() - begun; n != 2 {
		t.Errorf("%d transactions, want one that was full and one row by row", n)
	}
	if n := w.d[0].number("SELECT COUNT(*) FROM errand_finished"); n != 300 {
		t.Errorf("%d jobs are kept, want 300", n)
	}
	w.d[0].Invariants(t)
}

// Another process comes and goes between the runs of this one.
func TestRuns_SecondProcess(t *testing.T) {
	w := newTwins(t)
	w.enqueue(plainJobs(60)...)
	mine := w.exchange("lease", storage.Exchange{Wants: want(20, "a")})
	var theirs []storage.Leased
	others := [2]*sqlite.Store{w.d[0].open(), w.d[1].open()}
	w.both("another process leases", func(s *sqlite.Store, d *db) (any, error) {
		for i := range w.s {
			if w.s[i] == s {
				theirs = lease(t, others[i], 20, "a")
			}
		}
		return len(theirs), nil
	})
	mine = append(mine, w.exchange("lease more", storage.Exchange{Wants: want(20, "a")})...)
	w.exchange("end, and what is not held", storage.Exchange{Finish: ends(storage.OutcomeDone, slices.Concat(mine[:30], theirs[:10])...), Retention: keptFor(time.Hour)})
	for _, o := range others {
		if got := finish(t, o, theirs[10:]...); slices.Contains(got, storage.Lost) {
			t.Errorf("the other process has lost %v", got)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	w.exchange("end the rest", storage.Exchange{Finish: ends(storage.OutcomeDone, mine[30:]...), Retention: keptFor(time.Hour)})
	for _, d := range w.d {
		d.Invariants(t)
	}
}

// Histories with and without runs come to the same.
func TestRuns_Histories(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			w := newTwins(t)
			var held []storage.Leased
			for range 25 {
				switch r.IntN(5) {
				case 0, 1:
					jobs := plainJobs(1 + r.IntN(40))
					if seed%2 > 0 {
						jobs = members(len(jobs), 1+r.IntN(30))
					}
					for i := range jobs {
						switch j := &jobs[i]; r.IntN(25) {
						case 0:
							j.Unique = fmt.Sprint("key ", r.IntN(5))
						case 1:
							j.Group = "g"
						case 2:
							j.Headers = []byte(`{"h":"1"}`)
						case 3:
							j.Priority = r.IntN(3)
						case 4:
							j.Timeout = time.Second
						case 5:
							j.Queue = "other"
						case 6:
							j.Args = []byte(`"` + strings.Repeat("x", 3000) + `"`)
						case 7:
							j.Policy = []byte(`{"numRetries":1}`)
						}
					}
					w.enqueue(jobs...)
				case 2, 3:
					r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
					n := r.IntN(len(held) + 1)
					x := storage.Exchange{Retention: keptFor(time.Duration(r.IntN(2)) * time.Hour)}
					x.Retention.Lanes = map[storage.Lane]time.Duration{{Queue: "other", Kind: "a"}: time.Duration(r.IntN(3)) * time.Hour}
					for _, l := range held[:n] {
						o := storage.OutcomeDone
						if r.IntN(8) == 0 {
							o = storage.Outcome(1 + r.IntN(9))
						}
						x.Finish = append(x.Finish, ends(o, l)...)
						if r.IntN(20) == 0 {
							x.Finish[len(x.Finish)-1].Then = members(r.IntN(3), 1+r.IntN(30))
						}
						if r.IntN(40) == 0 { // twice
							x.Finish = append(x.Finish, ends(o, l)...)
						}
					}
					x.Wants = []storage.Want{{Queues: []string{"default", "other"}, Kinds: []string{"a"}, N: r.IntN(60)}}
					if r.IntN(4) == 0 {
						x.Wants[0].ByGroup = 1 + r.IntN(9)
					}
					held = append(slices.Clone(held[n:]), w.exchange("exchange", x)...)
				case 4:
					if len(held) == 0 {
						continue
					}
					l := held[r.IntN(len(held))]
					w.both("cancel", func(s *sqlite.Store, d *db) (any, error) {
						return s.Cancel(context.Background(), t0, d.id(l.Key), keptFor(time.Hour))
					})
				}
			}
			w.d[0].Invariants(t)
		})
	}
}

// Histories of jobs with all that few have come to the same with and without runs, and whether or
// not jobs are read ahead of their leases.
func TestRuns_HistoriesOfAll(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			w := newTwins(t)
			now := t0
			w.d[1].exec("CREATE TABLE app (n INTEGER PRIMARY KEY)") // a commit of another connection each time
			both := func(what string, call func(s *sqlite.Store, d *db) (any, error)) {
				t.Helper()
				var got [2]string
				for i, s := range w.s {
					if i == 1 { // which then knows nothing of what it has read ahead
						w.d[i].exec("INSERT INTO app DEFAULT VALUES")
					}
					answer, err := call(s, w.d[i])
					if err != nil {
						t.Fatalf("%s: Store %d: %v", what, i, err)
					}
					got[i] = fmt.Sprintf("%+v", answer)
				}
				if got[0] != got[1] {
					t.Fatalf("%s: with runs %s\nrow by row %s", what, got[0], got[1])
				}
				if a, b := w.d[0].all(), w.d[1].all(); a != b {
					al, bl := strings.Split(a, "\n"), strings.Split(b, "\n")
					for _, l := range al {
						if !slices.Contains(bl, l) {
							t.Log("runs: ", l)
						}
					}
					for _, l := range bl {
						if !slices.Contains(al, l) {
							t.Log("rows: ", l)
						}
					}
					t.Fatalf("%s: differ", what)
				}
			}
			kinds := []string{"a", "b"}
			if seed%2 == 1 {
				kinds = []string{"a", "b", "c", "d", "e", "f", "g"}
			}
			jobs := func(n int) []storage.NewJob {
				all := make([]storage.NewJob, n)
				for i := range all {
					j := &all[i]
					*j = newJob("default", kinds[r.IntN(len(kinds))])
					if seed%2 == 0 {
						j.Kind = "a"
					}
					if r.IntN(4) > 0 {
						j.Group = fmt.Sprint("g", r.IntN(12))
					}
					switch r.IntN(16) {
					case 0:
						j.Unique = fmt.Sprint("key ", r.IntN(4))
						switch r.IntN(4) {
						case 0:
							j.UniqueFor = 5 * time.Second
						case 1:
							j.Conflict = &storage.Conflict{Mode: storage.Replace}
						case 2:
							j.Conflict = &storage.Conflict{Mode: storage.After}
							j.Group = ""
						}
					case 1:
						j.Headers = []byte(`{"h":"1"}`)
					case 2:
						j.Priority = r.IntN(3)
					case 3:
						j.Queue = "other"
					case 4:
						j.Args = []byte(`"` + strings.Repeat("x", 3000) + `"`)
					case 5:
						j.Policy = []byte(fmt.Sprintf(`{"numRetries":%d}`, r.IntN(3)))
					case 6:
						j.StartWithin = time.Duration(1+r.IntN(4)) * time.Second
						j.OnExpire = []storage.State{storage.Dead, storage.Expired, ""}[r.IntN(3)]
					case 7:
						j.FinishWithin = time.Duration(1+r.IntN(6)) * time.Second
					case 8:
						j.Tags = []string{"t1", fmt.Sprint("u", r.IntN(3))}
					case 9:
						j.Delay = time.Duration(r.IntN(3)) * time.Second
					case 10:
						j.StartWithin, j.Doubtful = 3*time.Second, true
					}
				}
				return all
			}
			var held []storage.Leased
			finishes := func(all []storage.Leased) (out []storage.Finish) {
				for _, l := range all {
					o := storage.OutcomeDone
					if r.IntN(7) == 0 {
						o = storage.Outcome(1 + r.IntN(9))
					}
					f := ends(o, l)[0]
					if o == storage.OutcomeRetry {
						f.DueAt = now.Add(time.Duration(r.IntN(3)) * time.Second)
						f.Stays = r.IntN(2) == 0
					}
					if o == storage.OutcomeUnavailable {
						f.Since, f.Error = l.Token, "off"
						f.Spent = &storage.Finish{Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Second), Failure: &storage.NewFailure{Phase: "returned", Error: "no"}}
					}
					switch r.IntN(12) {
					case 0:
						f.Then = jobs(1 + r.IntN(3))
					case 1:
						f.Result = []byte(`1`)
					case 2:
						f.Progress = &storage.Progress{Done: 1, At: now}
					}
					out = append(out, f)
				}
				return out
			}
			for range 60 {
				switch op := r.IntN(16); op {
				case 0, 1, 2:
					all := jobs(1 + r.IntN(30))
					both("enqueue", func(s *sqlite.Store, _ *db) (any, error) {
						_, err := s.Enqueue(ctx, now, all)
						return nil, err
					})
				case 3, 4, 5, 6, 7:
					if r.IntN(2) == 0 {
						r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
					}
					n := r.IntN(len(held) + 1)
					x := storage.Exchange{LeaseDuration: time.Minute, Urgent: r.IntN(2)}
					if r.IntN(3) == 0 {
						x.Retention = keptFor(time.Hour)
					}
					x.Finish = finishes(held[:n])
					if r.IntN(6) == 0 && n > 0 {
						x.Finish = append(x.Finish, finishes(held[:1])...)
					}
					for _, l := range held[n/2:] {
						if r.IntN(4) == 0 {
							x.Extend = append(x.Extend, l.Lease)
						}
					}
					if r.IntN(5) > 0 {
						x.Wants = []storage.Want{{Queues: []string{"default", "other"}, Kinds: kinds, N: r.IntN(25)}}
						if r.IntN(2) == 0 {
							x.Wants[0].ByGroup = 1 + r.IntN(6)
						}
					}
					x.Doubtful = r.IntN(2) == 0
					var leased []storage.Leased
					both("exchange", func(s *sqlite.Store, _ *db) (any, error) {
						res, err := s.Exchange(ctx, now, x)
						for i := range res.Leased {
							res.Leased[i].ID = storage.ID{}
						}
						for i := range res.Expired {
							res.Expired[i].ID = storage.ID{}
						}
						res.Then = nil
						leased = res.Leased
						return res, err
					})
					held = append(slices.Clone(held[n:]), leased...)
				case 8:
					if len(held) > 0 {
						l := held[r.IntN(len(held))]
						both("cancel", func(s *sqlite.Store, d *db) (any, error) {
							_, err := s.Cancel(ctx, now, d.id(l.Key), keptFor(time.Hour))
							return err == nil, nil
						})
					}
				case 9:
					key := 1 + r.Int64N(200)
					both("run now", func(s *sqlite.Store, d *db) (any, error) {
						_, err := s.RunNow(ctx, now, storage.Selection{IDs: []storage.ID{d.id(key)}}, storage.Waiting{First: true})
						return err == nil, nil
					})
				case 10:
					var e storage.Edit
					switch r.IntN(4) {
					case 0:
						p := 1
						e.Priority = &p
					case 1:
						e.Queue = []string{"other", "default"}[r.IntN(2)]
					case 2:
						e.Args = []byte(`{"new":1}`)
					case 3:
						e.Delay = time.Second
					}
					key := 1 + r.Int64N(200)
					both("change", func(s *sqlite.Store, d *db) (any, error) {
						_, err := s.Change(ctx, now, storage.Selection{IDs: []storage.ID{d.id(key), d.id(key + 1)}}, e)
						return err == nil, nil
					})
				case 11:
					if len(held) > 0 {
						c := storage.Checkpoint{Lease: held[r.IntN(len(held))].Lease, Data: []byte("at")}
						both("checkpoint", func(s *sqlite.Store, _ *db) (any, error) { return s.Checkpoint(ctx, c) })
					}
				case 12:
					set := storage.Settings{storage.SettingGroupLimit: int64(1 + r.IntN(3)), storage.SettingDeadHead: int64(r.IntN(2)) * int64(storage.PassDead)}
					if r.IntN(3) == 0 {
						set[storage.SettingOrder] = int64(storage.Turns)
					}
					both("configure", func(s *sqlite.Store, _ *db) (any, error) {
						return nil, s.Configure(ctx, storage.Lane{Queue: "default"}, set)
					})
					both("regroup", func(s *sqlite.Store, _ *db) (any, error) { return s.Regroup(ctx, "default", "") })
				case 13:
					now = now.Add(time.Duration(r.IntN(2500)) * time.Millisecond)
				case 14:
					key := 1 + r.Int64N(200)
					both("redrive", func(s *sqlite.Store, d *db) (any, error) {
						_, err := s.Redrive(ctx, now, storage.Selection{IDs: []storage.ID{d.id(key), d.id(key + 1), d.id(key + 2)}}, "")
						return err == nil, nil
					})
				case 15:
					n := min(len(held), r.IntN(4))
					if n == 0 {
						continue
					}
					fs := finishes(held[:n])
					start := r.IntN(2) == 0
					both("FinishTx", func(s *sqlite.Store, _ *db) (any, error) {
						if start {
							for _, f := range fs {
								if err := s.Started(f.Lease, now); err != nil {
									return nil, err
								}
							}
						}
						var res []storage.ItemResult
						err := s.Tx(ctx, func(tx any) (err error) {
							res, _, err = s.FinishTx(ctx, tx, now, fs, keptFor(0), nil)
							return err
						})
						return fmt.Sprintf("%d %t", res, err == nil), nil
					})
				}
				w.d[0].Invariants(t)
			}
		})
	}
}
