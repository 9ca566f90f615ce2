package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// uncounted is how many jobs the numbers do not count.
const uncounted = "SELECT COUNT(*) FROM errand_job WHERE id >= (SELECT n FROM errand_number WHERE id = 1)"

// recount compares what readers say with the rows of the jobs.
func recount(t *testing.T, raw *sql.DB, s *sqlite.Store, now time.Time) {
	t.Helper()
	ctx := t.Context()
	invariantsOf(t, raw)
	stats, err := s.Stats(ctx)
	counts, e := s.Counts(ctx)
	holds, e2 := s.Holds(ctx, now)
	live, e3 := s.CountLive()
	if err := errors.Join(err, e, e2, e3); err != nil {
		t.Fatal(err)
	}
	if want := numberOf(t, raw, "SELECT COUNT(*) FROM errand_job"); live != want {
		t.Errorf("%d jobs live, want %d", live, want)
	}
	var waiting, isReady, counted int64
	for _, l := range stats {
		of := func(what string) int64 {
			return numberOf(t, raw, "SELECT "+what+" FROM errand_job WHERE lane = ?1", l.Number)
		}
		got := []int64{l.Scheduled, l.Ready, l.Running, l.Blocked, l.Bytes}
		want := []int64{
			of("COALESCE(SUM(state = 1), 0)"), of("COALESCE(SUM(state = 2), 0)"), of("COALESCE(SUM(state = 3), 0)"), of("COALESCE(SUM(state = 7), 0)"),
			numberOf(t, raw, `SELECT COALESCE(SUM(COALESCE(length(j.args), 0) + COALESCE(length(p.args), 0)), 0)
FROM errand_job j LEFT JOIN errand_payload p ON p.job = j.id WHERE lane = ?1`, l.Number),
		}
		if !slices.Equal(got, want) {
			t.Errorf("lane %v has %v, want %v", l.Lane, got, want)
		}
		var oldest int64
		if !l.OldestDue.IsZero() {
			oldest = l.OldestDue.UnixMicro()
		}
		if want := of("COALESCE(MIN(CASE state WHEN 2 THEN due_at END), 0)"); oldest != want {
			t.Errorf("the oldest job of lane %v was due at %d, want %d", l.Lane, oldest, want)
		}
		if l.Kind == "kind0" {
			waiting, isReady = l.Scheduled+l.Ready, l.Ready
		}
	}
	for _, c := range counts {
		if c.State == storage.Scheduled || c.State == storage.Ready {
			counted += c.N
		}
	}
	if want := numberOf(t, raw, "SELECT COUNT(*) FROM errand_job WHERE state IN (1, 2)"); counted != want {
		t.Errorf("%d jobs wait by Counts, want %d", counted, want)
	}
	if len(holds) != 1 || holds[0].Waiting != waiting || holds[0].Ready != isReady {
		t.Errorf("%+v: want a hold for which %d jobs wait, %d of them ready", holds, waiting, isReady)
	}
	if n := numberOf(t, raw, uncounted); n > 64 {
		t.Errorf("%d jobs are not counted", n)
	}
}

// Whatever two processes and transactions of the application do in turn, what is said of jobs that
// the numbers do not count yet is what their rows say, no key is given again, and the clock never
// goes back: not after the last job has ended, after a kill, a commit that failed, or savepoints
// that were rolled back to.
func TestUncounted_Histories(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			app, first, d := appStore(t, nil)
			raw := d.raw()
			defer raw.Close()
			ctx, random := t.Context(), rand.New(rand.NewPCG(seed, 7))
			all, now := []*sqlite.Store{first, d.open()}, t0
			if err := first.Hold(ctx, t0, storage.Hold{Lane: storage.Lane{Queue: "default", Kind: "kind0"}, Reason: "r"}); err != nil {
				t.Fatal(err)
			}
			var ids []storage.ID
			var held []storage.Leased
			given := map[int64]bool{}
			pick := func() *sqlite.Store { return all[random.IntN(len(all))] }
			jobs := func(n int) []storage.NewJob {
				out := make([]storage.NewJob, n)
				for i := range out {
					j := newJob("default", fmt.Sprint("kind", random.IntN(3)))
					j.Priority = random.IntN(3)
					switch random.IntN(12) {
					case 0:
						j.Delay = time.Hour
					case 1:
						j.Args = []byte(`"` + strings.Repeat("x", 5000) + `"`) // beside the row
					case 2:
						j.Unique = fmt.Sprint("key", random.IntN(3))
					case 3:
						j.Group = "g"
					}
					out[i] = j
				}
				return out
			}
			keep := func(out []storage.Enqueued, err error) error {
				for _, e := range out {
					if !e.Duplicate && err == nil {
						ids = append(ids, e.ID)
					}
				}
				if errors.Is(err, storage.ErrDuplicate) {
					err = nil
				}
				return err
			}
			cancel := func(call func(storage.ID) error) error {
				if len(ids) == 0 {
					return nil
				}
				i := len(ids) - 1 - random.IntN(min(2, len(ids))) // mostly what is not counted
				err := call(ids[i])
				if errors.Is(err, storage.ErrNotFound) {
					err = nil
				}
				return err
			}
			inside := func(s *sqlite.Store, tx *sql.Tx) error {
				exec := func(text string) error { _, err := tx.Exec(text); return err }
				for range 1 + random.IntN(4) {
					mine := random.IntN(2) == 0
					if mine {
						if err := exec("SAVEPOINT mine"); err != nil {
							return err
						}
					}
					before := len(ids)
					err := keep(s.EnqueueTx(ctx, tx, now, jobs(1+random.IntN(2))))
					if err == nil && random.IntN(3) == 0 {
						err = cancel(func(id storage.ID) error { _, err := s.CancelTx(ctx, tx, now, id, storage.Retention{}); return err })
					}
					if err != nil {
						return err
					}
					if mine {
						if random.IntN(2) == 0 {
							if err := exec("ROLLBACK TO mine"); err != nil {
								return err
							}
							ids = ids[:before]
						}
						if err := exec("RELEASE mine"); err != nil {
							return err
						}
					}
				}
				return nil
			}
			boom := errors.New("boom")
			left, clock, seen := 0, int64(0), map[storage.ID]bool{}
			for step := range 120 {
				s, before := pick(), len(ids)
				now = now.Add(time.Duration(random.IntN(3)-1) * time.Second)
				var err error
				switch op := random.IntN(20); op {
				default:
					err = keep(s.Enqueue(ctx, now, jobs(1)))
				case 9:
					err = keep(s.Enqueue(ctx, now, jobs(1+random.IntN(90))))
				case 10, 11:
					err = cancel(func(id storage.ID) error { _, err := s.Cancel(ctx, now, id, storage.Retention{}); return err })
				case 12, 13: // of the application
					tx, e := app.BeginTx(ctx, nil)
					if e != nil {
						t.Fatal(e)
					}
					if err = inside(first, tx); err == nil && op == 12 {
						err = tx.Commit()
					} else {
						err, ids = errors.Join(err, tx.Rollback()), ids[:before]
					}
				case 14, 15:
					err = inTx(ctx, s, func(tx *sql.Tx) error {
						if err := inside(s, tx); err != nil || op == 14 {
							return err
						}
						return boom
					})
					if errors.Is(err, boom) {
						err, ids = nil, ids[:before]
					}
				case 16:
					_, err = s.RunNow(ctx, now, storage.Selection{}, storage.Waiting{First: true})
				case 17:
					var r storage.ExchangeResult
					r, err = first.Exchange(ctx, now, storage.Exchange{LeaseDuration: time.Hour, Wants: want(3, "kind0", "kind1", "kind2"), Finish: ends(storage.OutcomeDone, held...)})
					held = r.Leased
				case 18:
					s.Fault(func(bool) error { return storage.ErrIO })
					if _, err := s.Enqueue(ctx, now, jobs(1)); err == nil {
						t.Fatal("a commit that fails has succeeded")
					}
					s.Fault(nil)
				case 19:
					all[1].Kill()
					all[1] = d.open()
				}
				if err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				for _, id := range ids[min(before, len(ids)):] {
					if given[id.Key()] && !seen[id] {
						t.Errorf("step %d: key %d was given again", step, id.Key())
					}
					given[id.Key()], seen[id] = true, true
				}
				if n := numberOf(t, raw, "SELECT clock FROM errand_meta"); n < clock {
					t.Errorf("step %d: the clock went back from %d to %d", step, clock, n)
				} else {
					clock = n
				}
				if numberOf(t, raw, uncounted) > 0 {
					left++
				}
				recount(t, raw, pick(), now)
				if t.Failed() {
					t.Fatalf("step %d", step)
				}
			}
			if left < 20 {
				t.Errorf("%d of 120 steps have left jobs that the numbers do not count", left)
			}
		})
	}
}

// The 65th lone job writes the numbers of all.
func TestUncounted_Most(t *testing.T) {
	d := newDB(t, nil)
	s := d.open()
	for n := range int64(131) {
		enqueue(t, s, "a", 1)
		want := n % 65 // the first creates the lane
		if got := d.number(uncounted); got != want {
			t.Fatalf("after %d jobs %d are not counted, want %d", n+1, got, want)
		}
	}
}

// A key is not given again when the last job is gone, whoever has deleted it and wherever.
func TestUncounted_LastJobGone(t *testing.T) {
	app, s, d := appStore(t, nil)
	enqueue(t, s, "a", 1)
	highest := int64(1)
	for name, gone := range map[string]func(id storage.ID) error{
		"cancelled": func(id storage.ID) error { _, err := s.Cancel(t.Context(), t0, id, storage.Retention{}); return err },
		"done": func(storage.ID) error {
			finish(t, s, lease(t, s, 10, "a")...)
			return nil
		},
		"dead": func(storage.ID) error {
			_, err := s.Exchange(t.Context(), t0, storage.Exchange{LeaseDuration: time.Hour, Finish: ends(storage.OutcomeDead, lease(t, s, 10, "a")...)})
			return err
		},
		"kept": func(storage.ID) error {
			_, err := s.Exchange(t.Context(), t0, storage.Exchange{LeaseDuration: time.Hour, Finish: ends(storage.OutcomeDone, lease(t, s, 10, "a")...), Retention: keptFor(time.Hour)})
			return err
		},
	} {
		id := enqueue(t, s, "a", 1)[0].ID
		if id.Key() <= highest {
			t.Errorf("before it is %s: key %d after %d", name, id.Key(), highest)
		}
		if highest = id.Key(); d.number(uncounted) == 0 {
			t.Errorf("before it is %s the job is counted", name)
		}
		if err := gone(id); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s = d.open()
	}
	for name, in := range inAppTx(t.Context(), app, s) {
		err := in(func(tx *sql.Tx) error {
			out, err := s.EnqueueTx(t.Context(), tx, t0, one())
			if err != nil {
				return err
			}
			if out[0].ID.Key() <= highest {
				t.Errorf("in a transaction %s: key %d after %d", name, out[0].ID.Key(), highest)
			}
			highest = out[0].ID.Key()
			_, err = s.CancelTx(t.Context(), tx, t0, out[0].ID, storage.Retention{})
			return err
		})
		if err != nil && !errors.Is(err, storage.ErrWrongDatabase) {
			t.Fatal(err)
		}
	}
	if id := enqueue(t, s, "a", 1)[0].ID; id.Key() <= highest {
		t.Errorf("key %d after %d", id.Key(), highest)
	}
}

// A cap is exact where jobs are not counted yet, also of those that another process has added.
func TestUncounted_Caps(t *testing.T) {
	for _, set := range []storage.Settings{
		{storage.SettingMaxJobs: 64}, {storage.SettingMaxJobs: 65}, {storage.SettingMaxJobs: 66}, {storage.SettingMaxJobs: 131},
		{storage.SettingMaxBytes: 65 * (2 + storage.JobOverhead)},
	} {
		t.Run(fmt.Sprint(set), func(t *testing.T) {
			d := newDB(t, nil)
			all := []*sqlite.Store{d.open(), d.open()}
			want := max(set[storage.SettingMaxJobs], set[storage.SettingMaxBytes]/(2+storage.JobOverhead))
			enqueue(t, all[0], "a", 1)
			for _, queue := range []string{"default", ""} { // one cap of the queue, the same of the file
				if err := all[0].Configure(t.Context(), storage.Lane{Queue: queue}, set); err != nil {
					t.Fatal(err)
				}
			}
			for n := int64(1); n < want; n++ {
				if _, err := all[n/3%2].Enqueue(context.Background(), t0, one()); err != nil {
					t.Fatalf("job %d of %d: %v", n+1, want, err)
				}
			}
			for _, s := range all {
				if _, err := s.Enqueue(context.Background(), t0, one()); !errors.Is(err, storage.ErrQueueFull) {
					t.Errorf("job %d: %v, want ErrQueueFull", want+1, err)
				}
			}
			d.Invariants(t)
		})
	}
}

// A key that was never given, and a job that is lost, are found, and the next key stays as it is.
func TestUncounted_Damage(t *testing.T) {
	for _, c := range []struct{ damage, rule string }{
		{`UPDATE errand_job SET id = 1 << 62 WHERE id = 1`, "keys from the future"},
		{`UPDATE errand_job SET id = 9223372036854775807 WHERE id = 1`, "keys from the future"},
		{`DELETE FROM errand_job WHERE id = 4`, "uncounted jobs"},
		{`UPDATE errand_job SET id = id + 1 WHERE id = 5`, "uncounted jobs"},
	} {
		d := newDB(t, nil)
		s := d.open()
		for range 5 {
			enqueue(t, s, "a", 1)
		}
		s.Kill()
		d.exec(c.damage)
		raw := d.raw()
		found, err := sqlite.CheckInvariants(t.Context(), raw)
		if err != nil || !says(found, c.rule) {
			t.Errorf("%s: found %v (%v)", c.damage, found, err)
		}
		if err := raw.Close(); err != nil {
			t.Fatal(err)
		}
		if key := enqueue(t, d.open(), "a", 1)[0].ID.Key(); key > 7 {
			t.Errorf("%s: the next key is %d", c.damage, key)
		}
	}
}
