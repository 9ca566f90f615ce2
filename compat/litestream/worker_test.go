package litestream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

const (
	// workOn names the variable by which this program is a worker on a file.
	workOn = "ERRAND_LITESTREAM_QUEUE"
	// producing names the one by which that worker enqueues jobs too.
	producing = "ERRAND_LITESTREAM_PRODUCES"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(workOn); path != "" {
		if err := work(path, os.Getenv(producing) != ""); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// numbered is a job. Its pad makes the log grow.
type numbered struct {
	N   int
	Pad string
}

func (numbered) Kind() string { return "numbered" }

// kept is how many of the first jobs run until the worker is told "release".
const kept = 5

// work runs jobs until the standard input ends. It prints a line for each event, which is the
// ledger: "acked N", "begun N" and "ran N". A line that is printed outlives the process.
func work(path string, produces bool) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	q, err := errand.Open(ctx, path, &errand.Options{Logger: log})
	if err != nil {
		return err
	}
	release := make(chan struct{})
	if !produces {
		close(release)
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, job *errand.Job[numbered]) error {
		fmt.Println("begun", job.Args.N)
		if job.Args.N <= kept {
			select {
			case <-release:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		fmt.Println("ran", job.Args.N)
		return nil
	})
	failed := make(chan error, 3)
	go func() { failed <- w.Run(ctx) }()
	if produces {
		go func() { failed <- produce(ctx, q) }()
	}
	go func() { failed <- obey(ctx, q, release) }()
	err = <-failed
	if e := w.Shutdown(context.Background()); err == nil {
		err = e
	}
	return errors.Join(err, q.Close())
}

// produce enqueues one job after the other.
func produce(ctx context.Context, q *errand.Queue) error {
	for n := 1; ; {
		_, err := q.Enqueue(ctx, numbered{N: n, Pad: strings.Repeat("x", 1000)}, nil)
		switch {
		case err == nil:
			fmt.Println("acked", n)
			n++
		case !errors.Is(err, errand.ErrBusy): // else nothing was written: the machine is slow
			return err
		}
	}
}

// obey does what lines of the standard input say, until it ends.
func obey(ctx context.Context, q *errand.Queue, release chan struct{}) error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "release":
			close(release)
			fmt.Println("released 0")
		case "compact":
			freed, err := compact(ctx, q)
			for errors.Is(err, errand.ErrBusy) { // see produce
				freed, err = compact(ctx, q)
			}
			if err != nil {
				return err
			}
			fmt.Println("compacted", freed)
		}
	}
	return nil
}

// compact has the file rewritten, after jobs of another queue have left free room in it.
func compact(ctx context.Context, q *errand.Queue) (freed int64, err error) {
	const queue = "gone"
	for range 300 {
		_, err = q.Enqueue(ctx, numbered{Pad: strings.Repeat("x", 4000)}, &errand.JobOptions{Queue: queue})
		if err != nil {
			return 0, err
		}
	}
	_, err = q.CancelAll(ctx, errand.JobFilter{Queue: queue})
	if err == nil {
		_, err = q.Delete(ctx, errand.JobFilter{Queue: queue})
	}
	if err != nil {
		return 0, err
	}
	return q.Compact(ctx)
}
