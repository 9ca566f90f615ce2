package torture_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/sqlite"
)

// brings is what the outcomes of a drain bring beside the end of their jobs.
type brings struct {
	What string // result, follow, rows, checkpoint or dead
	Size int
	args int
}

// followers is how many jobs follow each one that is done.
const followers = 10

var drains = []brings{
	{"result", 1 << 10, 4 << 10}, {"result", 20 << 10, 4 << 10}, {"result", 60_000, 4 << 10}, {"follow", 100 << 10, 40 << 10},
	{"rows", 256 << 10, 40 << 10}, {"checkpoint", 60_000, 4 << 10}, {"dead", 8 << 10, 4 << 10},
}

// A disk is filled by jobs alone. What they bring when they end is far more than they had: all
// end, as far as there is room, and the others once what has ended is deleted. The totals say that
// each has ended once.
//
//errand:shows [brought] | | a disk filled by jobs alone: results, rows of Finish and checkpoints on real disks, also over kills and power cuts
func TestDiskFull_Outcomes(t *testing.T) {
	needsRoot(t, "ext4 on loop devices")
	for _, size := range []int64{12, 32, 128} {
		for _, b := range drains {
			for _, way := range []string{"goes on", "opened again", "killed", "cut off"} {
				name := fmt.Sprintf("%d MiB/%s/%d/%s", size, b.What, b.Size, way)
				if *drainAll || slices.Contains(drainsFirst, name) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						b.drain(t, size<<20, way)
					})
				}
			}
		}
	}
}

var drainAll = flag.Bool("drain.all", false, "fill and drain disks of all sizes in all ways: about 40 minutes")

// drainsFirst are those that take a minute.
var drainsFirst = []string{"12 MiB/result/20480/goes on", "12 MiB/rows/262144/killed", "12 MiB/checkpoint/60000/cut off"}

func (b brings) drain(t *testing.T, size int64, way string) {
	random := dice(t)
	l, d := newLedger(), newDisk(t, size)
	path := filepath.Join(d.dir, "jobs.db")
	p := part{Role: "drain", DB: path, Plan: b.What, Size: b.Size, Args: b.args, Boot: "boot-0"}
	c := start(t, l, p)
	begun := time.Now()
	if _, err := fmt.Sscan(c.hearsWithin(5*time.Minute, "full "), &p.Jobs); err != nil {
		t.Fatal(err)
	}
	full := sizes(d.dir)
	for i := 0; way != "goes on" && i < 5; i++ {
		<-time.After(between(random, time.Second, 4*time.Second))
		switch way {
		case "opened again":
			c.finishSoon(time.Minute)
		case "killed":
			c.kill()
		case "cut off":
			powerOff(d, c)
			d.unmount()
			d.mount()
			p.Boot = fmt.Sprintf("boot-%d", i+1)
		}
		c = start(t, l, p)
	}
	said := c.hearsWithin(15*time.Minute, "drained ")
	c.reap()
	t.Logf("| %d MiB | %s | %d | %s | %d jobs | %s | %v | full: %s; drained: %s",
		size>>20, b.What, b.Size, way, p.Jobs, said, time.Since(begun).Round(time.Second), full, sizes(d.dir))
	d.unmount()
}

func init() { roles["drain"] = drainDisk }

// drainDisk is a program that fills its disk, unless that was done, and runs what it has. When
// nothing ends any more it deletes what has ended.
func drainDisk(p part, v *voice) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	store, err := sqlite.Open(p.DB, &sqlite.Options{Logger: log})
	if err != nil {
		return err
	}
	patient := policy.Policy{MinDelay: 50 * time.Millisecond, MaxDelay: time.Second, Retries: 100_000}
	q, err := errand.New(ctx, store, &errand.Options{Policy: patient, Logger: log, Queues: map[string]errand.QueueOptions{"default": {MaxDeaths: -1}}})
	if err != nil {
		return err
	}
	d := &drainer{part: p, q: q}
	if p.Jobs == 0 {
		create := func(tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE mine (n INTEGER PRIMARY KEY, pad BLOB)")
			return err
		}
		if err := q.Tx(ctx, create); err != nil {
			return err
		}
		a := &alone{args: p.Args}
		if d.Jobs, err = a.fill(q); !errors.Is(err, errand.ErrFull) {
			return fmt.Errorf("after %d jobs: %w, want ErrFull", d.Jobs, err)
		}
		v.say("full %d", d.Jobs)
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 16})
	errand.Handle(w, d.handle)
	errand.Handle(w, func(context.Context, *errand.Job[follower]) error { return nil })
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	said, err := d.wait(ctx)
	stop()
	if err = errors.Join(err, <-ended, q.Close()); err == nil && said != "" {
		v.say("drained %s", said)
	}
	return err
}

type drainer struct {
	part
	q       *errand.Queue
	deletes int
	most    time.Duration // that nothing ended, though all was deleted
}

// follower is a job that follows.
type follower struct {
	Of, N int
	Pad   string
}

func (follower) Kind() string { return "follower" }

func (d *drainer) handle(ctx context.Context, job *errand.Job[order]) error {
	pad := strings.Repeat("x", d.Size)
	switch d.Plan {
	case "result":
		return job.SetResult(pad)
	case "follow":
		for i := range followers {
			if err := job.Then(follower{Of: job.Args.N, N: i, Pad: pad}, nil); err != nil {
				return err
			}
		}
		return nil
	case "rows":
		return job.Finish(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO mine VALUES (?, ?)", job.Args.N, pad)
			return err
		})
	case "checkpoint":
		return job.Checkpoint(ctx, pad)
	}
	switch {
	case job.Args.N%10 > 0: // what waits with a history cannot be deleted
		return nil
	case job.Attempt <= 2:
		return errors.New(pad)
	}
	return errand.Permanent(errors.New(pad))
}

// wait waits until all jobs have ended, and says how that went.
func (d *drainer) wait(ctx context.Context) (string, error) {
	moved, was := time.Now(), int64(-1)
	looks := time.NewTicker(100 * time.Millisecond)
	defer looks.Stop()
	for quiet := 5 * time.Second; ; {
		select {
		case <-ctx.Done():
			return "", nil
		case <-looks.C:
		}
		ends, err := d.ends(ctx)
		if err != nil {
			return "", unlessStopped(ctx, err)
		}
		left, err := d.left(ctx)
		switch {
		case err != nil:
			return "", unlessStopped(ctx, err)
		case left == 0:
			return d.verdict(ctx, ends)
		case ends != was:
			d.most = max(d.most, time.Since(moved))
			moved, was, quiet = time.Now(), ends, 5*time.Second
		case time.Since(moved) > 5*time.Minute:
			return "", fmt.Errorf("nothing ends for 5 minutes: %d have ended, %d are left: %s", ends, left, sizes(filepath.Dir(d.DB)))
		case time.Since(moved) > quiet:
			if quiet += 5 * time.Second; ctx.Err() != nil {
				return "", nil
			}
			if err := d.delete(ctx); err != nil && ctx.Err() == nil {
				return "", fmt.Errorf("deleting: %w: %s", err, sizes(filepath.Dir(d.DB)))
			}
		}
	}
}

// unlessStopped returns err, unless the program was asked to end.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// ends returns how many jobs have ended.
func (d *drainer) ends(ctx context.Context) (n int64, err error) {
	all, err := d.q.Totals(ctx)
	for i := range all {
		n += all[i].Done + all[i].Dead
	}
	return n, err
}

// left returns how many jobs have not ended.
func (d *drainer) left(ctx context.Context) (n int64, err error) {
	counts, err := d.q.Counts(ctx)
	for _, c := range counts {
		if !slices.Contains([]errand.State{errand.Done, errand.Dead, errand.Cancelled}, c.State) {
			n += c.N
		}
	}
	return n, err
}

// delete deletes what has ended, and what it has brought.
func (d *drainer) delete(ctx context.Context) error {
	d.deletes++
	_, err := d.q.Delete(ctx, errand.JobFilter{States: []errand.State{errand.Done, errand.Dead}})
	if err != nil || d.Plan != "rows" {
		return err
	}
	return d.q.Tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE mine SET pad = NULL WHERE n IN (SELECT n FROM mine WHERE pad IS NOT NULL LIMIT 20)")
		return err
	})
}

// verdict says how all have ended, and what is wrong with it.
func (d *drainer) verdict(ctx context.Context, ends int64) (string, error) {
	want, rows := int64(d.Jobs), 0
	switch d.Plan {
	case "follow":
		want *= 1 + followers
	case "rows":
		err := d.q.Tx(ctx, func(tx *sql.Tx) error { return tx.QueryRow("SELECT COUNT(*) FROM mine").Scan(&rows) })
		if err != nil || rows != d.Jobs {
			return "", fmt.Errorf("%d rows of %d jobs: %w", rows, d.Jobs, err)
		}
	}
	if ends != want {
		return "", fmt.Errorf("%d have ended of %d", ends, want)
	}
	said, err := json.Marshal(map[string]any{"ended": ends, "deletes": d.deletes, "longest": d.most.Round(100 * time.Millisecond).String()})
	return string(said), err
}
