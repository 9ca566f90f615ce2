package errandtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

type SendEmail struct{ To string }

func (SendEmail) Kind() string { return "send_email" }

type Audit struct{ What string }

func (*Audit) Kind() string { return "audit" }

// recorder is a test whose failures are the result of another one.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	text     strings.Builder
	cleanups []func()
	log      *strings.Builder // nil: it is of no interest
}

func (r *recorder) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.WriteString(text + "\n")
}

func (r *recorder) Errorf(format string, args ...any) { r.add(fmt.Sprintf(format, args...)) }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Output() io.Writer {
	if r.log != nil {
		return r.log
	}
	return io.Discard
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.add(fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.add(fmt.Sprint(args...))
	runtime.Goexit()
}

// failure returns what f and its cleanups report, and is empty if that is nothing.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-ended
	return r.text.String()
}

// wantFailure checks that f fails with all of these words.
func wantFailure(t *testing.T, f func(testing.TB), words ...string) {
	t.Helper()
	got := failure(t, f)
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("the failure lacks %q: %q", w, got)
		}
	}
}

// inBoth runs f outside of a bubble and in one.
func inBoth(t *testing.T, f func(t *testing.T)) {
	t.Run("time", func(t *testing.T) {
		t.Parallel()
		f(t)
	})
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t testing.TB, q *errand.Queue, args errand.Args, o *errand.JobOptions) errand.ID {
	t.Helper()
	e, err := q.Enqueue(context.Background(), args, o)
	check(t, err)
	return e.ID
}

// worker returns a worker of emails.
func worker(q *errand.Queue, h func(context.Context, *errand.Job[SendEmail]) error) *errand.Worker {
	w := errand.NewWorker(q, nil)
	errand.Handle(w, h)
	return w
}

func done(context.Context, *errand.Job[SendEmail]) error { return nil }

var errDown = errors.New("the provider is down")

func to(name string) func(errandtest.Enqueued[SendEmail]) error {
	return func(e errandtest.Enqueued[SendEmail]) error {
		if e.Args.To != name {
			return fmt.Errorf("it goes to %s", e.Args.To)
		}
		return nil
	}
}

// The doctor looks at the file when the test ends.
//
//errand:shows tests of users | | a queue of errandtest is examined as errand doctor --full does when the test ends; what it finds fails the test
func TestNew_examines(t *testing.T) {
	wantFailure(t, func(t testing.TB) {
		q := errandtest.New(t, nil)
		enqueue(t, q, SendEmail{"ada"}, nil)
		check(t, q.Tx(context.Background(), func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE errand_number SET n = n + 1 WHERE id >= 32 AND id % 32 = 2")
			return err
		}))
	}, "the file is damaged", "1 kept count")
	if got := failure(t, func(t testing.TB) { enqueue(t, errandtest.New(t, nil), SendEmail{"ada"}, nil) }); got != "" {
		t.Errorf("a file that is whole: %s", got)
	}
}

// The log of a queue is in the output of its test, but not that Drain moves the clock on, and
// nothing is written after the test.
func TestNew_log(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t, log: &strings.Builder{}}
	q := errandtest.New(r, nil)
	enqueue(t, q, SendEmail{"ada"}, &errand.JobOptions{Delay: time.Hour})
	errandtest.Drain(t, q, worker(q, func(context.Context, *errand.Job[SendEmail]) error { return errand.Permanent(errDown) }),
		&errandtest.DrainOptions{Scheduled: true})
	for _, f := range r.cleanups {
		f()
	}
	if log := r.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "job is dead") {
		t.Errorf("the log: %s", log)
	}
}

func TestNew_options(t *testing.T) {
	wantFailure(t, func(t testing.TB) { errandtest.New(t, &errand.Options{MaxArgs: -1}) }, "max_args")
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	q := errandtest.New(t, &errand.Options{Clock: func() time.Time { return at }})
	enqueue(t, q, SendEmail{"ada"}, &errand.JobOptions{Delay: time.Hour})
	errandtest.Drain(t, q, worker(q, done), &errandtest.DrainOptions{Scheduled: true})
	if now := q.Clock().Now; !now.Equal(at.Add(time.Hour)) {
		t.Errorf("the clock shows %v: want that of the options, an hour later", now)
	}
}

// A queue of New has a file of its own, as one of errand.Open, whatever it was copied from.
func TestNew_Copies(t *testing.T) {
	first, second := errandtest.New(t, nil), errandtest.New(t, &errand.Options{SQLite: errand.SQLiteOptions{Ballast: 4096}})
	if _, err := first.Enqueue(t.Context(), SendEmail{}, nil); err != nil {
		t.Fatal(err)
	}
	third := errandtest.New(t, nil)
	for q, want := range map[*errand.Queue]int{first: 1, second: 0, third: 0} {
		if jobs, err := q.Jobs(t.Context(), errand.JobFilter{}, nil); err != nil || len(jobs.Jobs) != want {
			t.Errorf("%d jobs, %v, want %d", len(jobs.Jobs), err, want)
		}
		info, err := os.Stat(errandtest.Path(q))
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("its file: %v, %v", info, err)
		}
		if _, err := os.Stat(errandtest.Path(q) + "-ballast"); (err == nil) != (q == second) {
			t.Errorf("the ballast: %v", err)
		}
	}
	wantFailure(t, func(t testing.TB) {
		errandtest.New(t, &errand.Options{SQLite: errand.SQLiteOptions{Existing: true}})
	}, "errandtest: ", "jobs.db")
}
