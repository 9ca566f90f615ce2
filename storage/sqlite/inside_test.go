package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// What Tx knows of the counters is right, whatever the application does with its
// savepoints, and whoever has written before: the keys have neither gaps nor doubles, and
// the counts, which the end of the test checks, are those of the jobs.
func TestStore_Tx_KnowsTheCounters(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			app, s, d := appStore(t, nil)
			ctx, random := t.Context(), rand.New(rand.NewPCG(seed, 0))
			boom := errors.New("boom")
			add := func(tx *sql.Tx) error {
				jobs := make([]storage.NewJob, 1+random.IntN(2))
				for i := range jobs {
					jobs[i] = newJob("default", fmt.Sprint("kind", random.IntN(3)))
				}
				_, err := s.EnqueueTx(ctx, tx, t0, jobs)
				return err
			}
			do := func(tx *sql.Tx, text string) error { _, err := tx.Exec(text); return err }
			calls := []func(*sql.Tx) error{
				add, add,
				func(tx *sql.Tx) error { // raises no key
					_, err := s.CancelTx(ctx, tx, t0, storage.NewID(t0, 0, 1<<40), storage.Retention{})
					if errors.Is(err, storage.ErrNotFound) {
						err = nil
					}
					return err
				},
				func(tx *sql.Tx) error {
					err := errors.Join(do(tx, "SAVEPOINT mine"), add(tx))
					if random.IntN(2) == 0 {
						err = errors.Join(err, do(tx, "ROLLBACK TO mine"))
					}
					return errors.Join(err, do(tx, "RELEASE mine"))
				},
			}
			for range 20 {
				switch random.IntN(5) {
				case 0: // by another connection of this Store
					enqueue(t, s, "a", 1)
				case 1: // of the application
					tx, err := app.BeginTx(ctx, nil)
					if err = errors.Join(err, add(tx), tx.Commit()); err != nil {
						t.Fatal(err)
					}
				default:
					end := error(nil)
					if random.IntN(4) == 0 {
						end = boom
					}
					err := inTx(ctx, s, func(tx *sql.Tx) error {
						for range random.IntN(4) {
							if err := calls[random.IntN(len(calls))](tx); err != nil {
								return err
							}
						}
						return end
					})
					if !errors.Is(err, end) || end == nil && err != nil {
						t.Fatal(err)
					}
				}
				if n := d.number("SELECT next_job - 1 - (SELECT COUNT(*) FROM errand_job) FROM errand_meta"); n != 0 {
					t.Fatalf("the next key is %d too high", n)
				}
			}
		})
	}
}

// A transaction that is over is seen, whoever has ended it.
func TestStore_Tx_EndedInside(t *testing.T) {
	for _, text := range []string{"COMMIT", "ROLLBACK", "INSERT OR ROLLBACK INTO orders VALUES (1)"} {
		_, s, d := appStore(t, nil)
		d.exec("INSERT INTO orders VALUES (1)")
		err := inTx(t.Context(), s, func(tx *sql.Tx) error {
			_, _ = tx.Exec(text)
			_, err := s.EnqueueTx(t.Context(), tx, t0, one())
			return err
		})
		if !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("%s: %v, want ErrTxDone", text, err)
		}
		if n := d.number("SELECT COUNT(*) FROM errand_job"); n != 0 {
			t.Errorf("%s: %d jobs outside of a transaction", text, n)
		}
		if err := inTx(t.Context(), s, func(tx *sql.Tx) error { _, err := s.EnqueueTx(t.Context(), tx, t0, one()); return err }); err != nil {
			t.Errorf("%s: the next transaction: %v", text, err)
		}
	}
}

// After a transaction of the application the Store knows its lanes and what other
// processes have set, though no worker and no call has told it.
func TestStore_AppTx_KnowsWhatIsNew(t *testing.T) {
	app, s, d := appStore(t, nil)
	other := d.open()
	for way, in := range inAppTx(t.Context(), app, s) {
		if err := other.Configure(t.Context(), storage.Lane{Queue: way}, storage.Settings{storage.SettingMaxJobs: 7}); err != nil {
			t.Fatal(err)
		}
		err := in(func(tx *sql.Tx) error {
			_, err := s.EnqueueTx(context.Background(), tx, t0, []storage.NewJob{newJob("default", way)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		generation := d.number("SELECT n FROM errand_number WHERE id = 4")
		for limit := time.Now().Add(time.Minute); s.Stale(generation) && time.Now().Before(limit); { // as the commit is looked for
			runtime.Gosched()
		}
		if s.Stale(generation) {
			t.Errorf("after a transaction %s the next one has to read settings and lanes", way)
		}
	}
}

// What a call that has added no job left is not known: the application may have rolled it
// back. Nor is anything known after somebody else has written.
func TestStore_Tx_KnowsNoMore(t *testing.T) {
	_, s, d := appStore(t, nil)
	ctx := t.Context()
	at := func(tx *sql.Tx, now time.Time) error { _, err := s.EnqueueTx(ctx, tx, now, one()); return err }
	waits := enqueue(t, s, "a", 1)[0].ID
	err := inTx(ctx, s, func(tx *sql.Tx) error {
		_, err := tx.Exec("SAVEPOINT mine")
		_, e := s.CancelTx(ctx, tx, t0.Add(time.Hour), waits, storage.Retention{})
		_, back := tx.Exec("ROLLBACK TO mine")
		return errors.Join(err, e, back)
	})
	if err != nil {
		t.Fatal(err)
	}
	now := t0.Add(time.Minute)
	if err := inTx(ctx, s, func(tx *sql.Tx) error { return at(tx, now) }); err != nil {
		t.Fatal(err)
	}
	if clock := d.number("SELECT clock FROM errand_meta"); clock != now.UnixMicro() {
		t.Errorf("the clock is at %v, want %v: that of the last job", time.UnixMicro(clock), now)
	}
	if err := d.open().Configure(ctx, storage.Lane{Queue: "default"}, storage.Settings{storage.SettingMaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	if err := inTx(ctx, s, func(tx *sql.Tx) error { return at(tx, now) }); !errors.Is(err, storage.ErrQueueFull) {
		t.Errorf("%v, want ErrQueueFull, as another process has just set", err)
	}
}

// While the application reads what its own UPDATE returns SQLite begins no savepoint. A call
// does without it.
func TestStore_Tx_WhileRowsAreReturned(t *testing.T) {
	app, s, _ := appStore(t, nil)
	if _, err := app.Exec("CREATE TABLE mine (n INTEGER); INSERT INTO mine VALUES (1), (2), (3)"); err != nil {
		t.Fatal(err)
	}
	job := newJob("default", "a")
	for name, call := range map[string]func(tx *sql.Tx, i int) error{
		"several jobs": func(tx *sql.Tx, _ int) error {
			_, err := s.EnqueueTx(t.Context(), tx, t0, []storage.NewJob{job, job})
			return err
		},
		"a message": func(tx *sql.Tx, i int) error {
			_, err := s.PublishMessagesTx(t.Context(), tx, t0, []storage.Publication{message(fmt.Sprintf("m%d", i), job)})
			return err
		},
	} {
		n := 0
		err := inTx(t.Context(), s, func(tx *sql.Tx) error {
			rows, err := tx.Query("UPDATE mine SET n = n + 1 RETURNING n")
			if err != nil {
				return err
			}
			defer rows.Close()
			for ; rows.Next(); n++ {
				if err := call(tx, n); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		if err != nil || n != 3 {
			t.Errorf("%s: %d calls, %v; want 3", name, n, err)
		}
	}
	if c := counts(t, s); c[storage.Ready] != 9 {
		t.Errorf("counts %v, want 9 ready", c)
	}
}

// Then nothing that a refused call has written can be taken back, and so the transaction
// can't commit, though the application passes over the answer.
func TestStore_Tx_RefusedWhileRowsAreReturned(t *testing.T) {
	app, s, _ := appStore(t, nil)
	if err := s.Configure(t.Context(), storage.Lane{Queue: "small"}, storage.Settings{storage.SettingMaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, "a", 1)
	if _, err := app.Exec("CREATE TABLE mine (n INTEGER); INSERT INTO mine VALUES (1), (2), (3)"); err != nil {
		t.Fatal(err)
	}
	gone := message("gone", newJob("default", "a"))
	gone.Existing = true
	for name, call := range map[string]func(tx *sql.Tx) error{
		"not there": func(tx *sql.Tx) error {
			_, err := s.PublishMessagesTx(t.Context(), tx, t0, []storage.Publication{message("first", newJob("default", "new-kind")), gone})
			return err
		},
		"full": func(tx *sql.Tx) error {
			_, err := s.EnqueueTx(t.Context(), tx, t0, []storage.NewJob{newJob("default", "a"), newJob("small", "a"), newJob("small", "a")})
			return err
		},
	} {
		err := inTx(t.Context(), s, func(tx *sql.Tx) error {
			rows, err := tx.Query("UPDATE mine SET n = n + 1 RETURNING n")
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
			if err := call(tx); !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrQueueFull) {
				t.Errorf("%s: %v, want a refusal", name, err)
			}
			return rows.Close()
		})
		if !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrQueueFull) {
			t.Errorf("%s: the transaction ends with %v, want the refusal", name, err)
		}
		var n int
		if err := app.QueryRow("SELECT sum(n) FROM mine").Scan(&n); err != nil || n != 6 {
			t.Errorf("%s: the application's rows add up to %d, %v; want 6, as before", name, n, err)
		}
		enqueue(t, s, "a", 1)
	}
	if c := counts(t, s); c[storage.Ready] != 3 {
		t.Errorf("counts %v, want 3 ready", c)
	}
}
