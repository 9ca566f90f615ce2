package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

// charge is a job whose handler writes a row. N says which.
type charge struct{ N int }

// Kind names the type of job.
func (charge) Kind() string { return "charge" }

// shop is a queue in the file of an application.
type shop struct {
	t  *testing.T
	q  *errand.Queue
	db *sql.DB // of the application

	path string
}

func newShop(t *testing.T, o errand.Options) *shop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sqlite.OpenDB(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec("CREATE TABLE receipt (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	o.Logger = quiet
	q, err := errand.Open(t.Context(), path, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return &shop{t: t, q: q, db: db, path: path}
}

// receipts returns how many rows there are of a job.
func (s *shop) receipts(n int) (rows int) {
	s.t.Helper()
	if err := s.db.QueryRow("SELECT COUNT(*) FROM receipt WHERE n = ?", n).Scan(&rows); err != nil {
		s.t.Fatal(err)
	}
	return rows
}

// writeReceipt writes the row of a job.
func writeReceipt(tx *sql.Tx, n int) error {
	_, err := tx.Exec("INSERT INTO receipt VALUES (?)", n)
	return err
}

var errDeclined = errors.New("declined")

// The job ends with the commit of the transaction that its handler has completed it in, and
// only then.
func TestJob_Finish(t *testing.T) {
	t.Parallel()
	type handler = func(s *shop, ctx context.Context, job *errand.Job[charge]) error
	own := func(s *shop, f func(tx *sql.Tx) error) error { // a transaction of the application
		tx, err := s.db.Begin()
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	for name, c := range map[string]struct {
		run  handler // the first time; after that it finishes
		want string  // rows state attempts: errors of the history
	}{
		"finish": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return job.Finish(ctx, func(tx *sql.Tx) error { return writeReceipt(tx, job.Args.N) })
		}, "1 done 1"},
		"finish, and an error": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return errors.Join(job.Finish(ctx, func(tx *sql.Tx) error { return writeReceipt(tx, job.Args.N) }), errDeclined)
		}, "1 done 1"},
		"finish, and a panic": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			check(job.Finish(ctx, func(tx *sql.Tx) error { return writeReceipt(tx, job.Args.N) }))
			panic("too late")
		}, "1 done 1"},
		"finish that fails": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return job.Finish(ctx, func(tx *sql.Tx) error { return errors.Join(writeReceipt(tx, job.Args.N), errDeclined) })
		}, "1 done 2: declined"},
		"finish that fails, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			_ = job.Finish(ctx, func(tx *sql.Tx) error { return errors.Join(writeReceipt(tx, job.Args.N), errDeclined) })
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"finish twice": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			f := func(tx *sql.Tx) error { return writeReceipt(tx, job.Args.N) }
			check(job.Finish(ctx, f))
			if err := job.Finish(ctx, f); !errors.Is(err, errand.ErrFinished) {
				panic(fmt.Sprint("a second Finish: ", err))
			}
			return nil
		}, "1 done 1"},
		"finish in Tx": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error {
				err := job.Finish(ctx, func(tx *sql.Tx) error { return nil })
				if !errors.Is(err, errand.ErrBusy) {
					panic(fmt.Sprint("Finish in Tx: ", err))
				}
				return errDeclined
			})
		}, "1 done 2: declined"},
		"complete in Tx": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error {
				return errors.Join(job.CompleteTx(ctx, tx), writeReceipt(tx, job.Args.N))
			})
		}, "1 done 1"},
		"complete in Tx that fails, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			_ = s.q.Tx(ctx, func(tx *sql.Tx) error {
				return errors.Join(job.CompleteTx(ctx, tx), writeReceipt(tx, job.Args.N), errDeclined)
			})
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in Tx twice, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			_ = s.q.Tx(ctx, func(tx *sql.Tx) error {
				check(job.CompleteTx(ctx, tx))
				check(writeReceipt(tx, job.Args.N))
				if err := job.CompleteTx(ctx, tx); !errors.Is(err, errand.ErrFinished) {
					panic(fmt.Sprint("a second CompleteTx: ", err))
				}
				return nil
			})
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in Tx with a context that has ended, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			ended, end := context.WithCancel(ctx)
			end()
			if err := s.q.Tx(ctx, func(tx *sql.Tx) error {
				check(writeReceipt(tx, job.Args.N))
				_ = job.CompleteTx(ended, tx)
				return nil
			}); !errors.Is(err, context.Canceled) {
				panic(fmt.Sprint("Tx after such a CompleteTx: ", err))
			}
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in two of Tx, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			for range 2 {
				_ = s.q.Tx(ctx, func(tx *sql.Tx) error {
					check(writeReceipt(tx, job.Args.N))
					_ = job.CompleteTx(ctx, tx)
					return nil
				})
			}
			return nil
		}, "1 done 1"},
		"complete in a savepoint of Tx that is rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error {
				_, err := tx.Exec("SAVEPOINT mine")
				check(errors.Join(err, writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx)))
				_, err = tx.Exec("ROLLBACK TO mine")
				return err
			})
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"cancelled and completed in Tx": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return s.q.Tx(ctx, func(tx *sql.Tx) error {
				must(s.q.CancelTx(ctx, tx, job.ID))
				if err := job.CompleteTx(ctx, tx); !errors.Is(err, errand.ErrCancelled) {
					panic(fmt.Sprint("CompleteTx after CancelTx: ", err))
				}
				return errDeclined
			})
		}, "1 done 2: declined"},
		"finish in a goroutine that waits for the end": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			begun := make(chan struct{})
			go func() {
				_ = job.Finish(ctx, func(tx *sql.Tx) error {
					close(begun)
					<-ctx.Done()
					return ctx.Err()
				})
			}()
			<-begun
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in the application's": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return own(s, func(tx *sql.Tx) error { return errors.Join(writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx)) })
		}, "1 done 1"},
		"complete in the application's, and an error": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return errors.Join(errDeclined,
				own(s, func(tx *sql.Tx) error { return errors.Join(writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx)) }))
		}, "1 done 1"},
		"complete in the application's, rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return own(s, func(tx *sql.Tx) error {
				return errors.Join(writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx), errDeclined)
			})
		}, "1 done 2: declined"},
		"complete in the application's, rolled back and ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			_ = own(s, func(tx *sql.Tx) error {
				return errors.Join(writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx), errDeclined)
			})
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in a savepoint that is rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return own(s, func(tx *sql.Tx) error {
				_, err := tx.Exec("SAVEPOINT mine")
				check(errors.Join(err, writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx)))
				_, err = tx.Exec("ROLLBACK TO mine")
				return err
			})
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete after a savepoint that is rolled back": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return own(s, func(tx *sql.Tx) error {
				_, err := tx.Exec("SAVEPOINT mine")
				check(errors.Join(err, job.CompleteTx(ctx, tx)))
				_, err = tx.Exec("ROLLBACK TO mine")
				return errors.Join(err, writeReceipt(tx, job.Args.N), job.CompleteTx(ctx, tx))
			})
		}, "1 done 1"},
		"complete in two transactions, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			for range 2 {
				tx := must(s.db.Begin())
				check(writeReceipt(tx, job.Args.N))
				_ = job.CompleteTx(ctx, tx)
				_ = tx.Commit()
			}
			return nil
		}, "1 done 1"},
		"complete in a transaction that has ended": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			tx := must(s.db.Begin())
			check(errors.Join(writeReceipt(tx, job.Args.N), tx.Rollback()))
			if err := job.CompleteTx(ctx, tx); !errors.Is(err, sql.ErrTxDone) {
				panic(fmt.Sprint("CompleteTx in a transaction that has ended: ", err))
			}
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete in another database, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			other := must(sql.Open("sqlite", filepath.Join(s.t.TempDir(), "other.db")))
			defer other.Close()
			tx := must(other.Begin())
			if err := job.CompleteTx(ctx, tx); !errors.Is(err, errand.ErrWrongDatabase) {
				panic(fmt.Sprint("CompleteTx in another database: ", err))
			}
			if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
				panic(fmt.Sprint("Commit after that: ", err))
			}
			return nil
		}, "1 done 2: " + errand.ErrNotCommitted.Error()},
		"complete with rows open": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			return own(s, func(tx *sql.Tx) error {
				check(writeReceipt(tx, job.Args.N))
				rows := must(tx.Query("SELECT n FROM receipt UNION ALL SELECT 1 UNION ALL SELECT 2"))
				defer rows.Close()
				rows.Next()
				return job.CompleteTx(ctx, tx)
			})
		}, "1 done 1"},
		"complete with raw bytes open after it was cancelled, ignored": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			must(s.q.Cancel(ctx, job.ID))
			tx := must(s.db.Begin())
			check(writeReceipt(tx, job.Args.N))
			rows := must(tx.Query("SELECT 'a' UNION ALL SELECT 'b'"))
			defer rows.Close()
			var raw sql.RawBytes
			rows.Next()
			check(rows.Scan(&raw))
			if err := job.CompleteTx(ctx, tx); !errors.Is(err, errand.ErrCancelled) {
				panic(fmt.Sprint("CompleteTx after Cancel: ", err))
			}
			if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
				panic(fmt.Sprint("Commit after that: ", err))
			}
			return nil
		}, "0 cancelled 1"},
		"finish after it was cancelled": {func(s *shop, ctx context.Context, job *errand.Job[charge]) error {
			must(s.q.Cancel(ctx, job.ID))
			err := job.Finish(ctx, func(tx *sql.Tx) error { panic("called") })
			if !errors.Is(err, errand.ErrCancelled) {
				panic(fmt.Sprint("Finish after Cancel: ", err))
			}
			return err
		}, "0 cancelled 1"},
	} {
		for lane, retention := range map[string]time.Duration{"kept": time.Hour, "not kept": -1} {
			t.Run(name+", "+lane, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, errand.Options{Retention: retention, Policy: &policy.Policy{Retries: 3, NoDelayRetries: 3}})
				sub := subscribe(t, s.q, errand.EventFilter{}, 100)
				w := errand.NewWorker(s.q, nil)
				var last errand.JobInfo
				errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
					if job.Attempt == 1 {
						return c.run(s, ctx, job)
					}
					last = lookUp(t, s.q, job.ID)
					return job.Finish(ctx, func(tx *sql.Tx) error { return writeReceipt(tx, job.Args.N) })
				})
				id := enqueue(t, s.q, charge{7}, nil)
				end := errand.EventDone
				if strings.Contains(c.want, "cancelled") {
					end = errand.EventCancelled
				}
				stop := run(t, w)
				var seen []errand.Event
				for e := range sub.Events() {
					if seen = append(seen, e); e.Type == end {
						break
					}
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				j, err := s.q.Job(t.Context(), id)
				switch {
				case retention < 0 && errors.Is(err, errand.ErrNotFound):
					j = errand.JobInfo{State: errand.State(end), History: last.History}
					j.Attempt = seen[len(seen)-1].Attempt
				case err != nil:
					t.Fatal(err)
				}
				got := fmt.Sprint(s.receipts(7), " ", j.State, " ", j.Attempt)
				for _, f := range j.History {
					got += ": " + f.Error
				}
				if got != c.want {
					t.Errorf("got %q, want %q; %v", got, c.want, types(seen))
				}
				if n := len(slices.DeleteFunc(types(seen), func(s string) bool { return !strings.Contains(s, string(end)) })); n != 1 {
					t.Errorf("%d events of the end: %v", n, types(seen))
				}
				if w := must(s.q.Totals(t.Context())); end == errand.EventDone && (len(w) != 1 || len(w[0].Attempts) == 0) {
					t.Errorf("it counts for nothing: %+v", w)
				}
			})
		}
	}
}

// A goroutine that outlives its handler completes nothing, and what it has written goes.
func TestJob_CompleteTx_AfterTheHandler(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	returned, over := make(chan struct{}), make(chan error, 2)
	w := errand.NewWorker(s.q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[charge]) error {
		go func() {
			<-returned
			for _, in := range []func(func(tx *sql.Tx) error) error{
				func(f func(tx *sql.Tx) error) error { return s.q.Tx(context.Background(), f) },
				func(f func(tx *sql.Tx) error) error {
					tx := must(s.db.Begin())
					check(f(tx))
					return tx.Commit()
				},
			} {
				over <- in(func(tx *sql.Tx) error {
					check(writeReceipt(tx, job.Args.N))
					if err := job.CompleteTx(context.Background(), tx); !errors.Is(err, errand.ErrFinished) {
						panic(fmt.Sprint("CompleteTx after the handler: ", err))
					}
					return nil
				})
			}
		}()
		return nil
	})
	sub := subscribe(t, s.q, errand.EventFilter{Types: []errand.EventType{errand.EventDone}}, 10)
	enqueue(t, s.q, charge{7}, nil)
	run(t, w)
	<-sub.Events()
	close(returned)
	for range 2 {
		if err := <-over; err == nil {
			t.Error("the transaction has committed")
		}
	}
	if n := s.receipts(7); n != 0 {
		t.Errorf("%d rows of a goroutine that came too late", n)
	}
}

// A death that is followed by a notice is told, also to those who listen.
func TestOnDead_told(t *testing.T) {
	t.Parallel()
	s := newShop(t, errand.Options{})
	w := errand.NewWorker(s.q, nil)
	errand.Handle(w, func(context.Context, *errand.Job[charge]) error { return errand.Permanent(errDeclined) },
		errand.HandlerOptions{OnDead: &errand.OnDead{Kind: "notice"}})
	sub := subscribe(t, s.q, errand.EventFilter{}, 100)
	id := enqueue(t, s.q, charge{7}, nil)
	run(t, w)
	var notice errand.ID
	for e := range sub.Events() {
		if e.Kind == "notice" && e.Type == errand.EventEnqueued {
			notice = e.ID
		}
		if e.ID == id && e.Type == errand.EventDead {
			break
		}
	}
	if j := lookUp(t, s.q, notice); j.Kind != "notice" || !j.Parent.IsZero() {
		t.Errorf("told was %+v", j)
	}
}
