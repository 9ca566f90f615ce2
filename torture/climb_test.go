//go:build unix

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

func init() { roles["climb"] = runClimb }

// climb is a job of ten steps, whose handler kills its process. Its way says when.
type climb struct{ Way string }

func (climb) Kind() string { return "climb" }

const (
	beforeIt = "before the checkpoint of step 7" // in the first attempt
	afterIt  = "after the checkpoint of step 7"  // the same
	always   = "after each step"
	idle     = "after a checkpoint that says nothing new"
	inTurn   = "after a checkpoint with the other of two values"
)

const steps = 10

// runClimb is the program. It ends when the job has.
func runClimb(p part, v *voice) error {
	ctx := context.Background()
	q, err := errand.Open(ctx, p.DB, groupOptions(p.Relaxed))
	if err != nil {
		return err
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{LeaseDuration: time.Minute})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[climb]) error {
		at := 0
		if _, err := job.Resume(&at); err != nil {
			return err
		}
		die := func() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL); select {} }
		keep := func(n int) {
			if err := job.Checkpoint(ctx, n); err != nil {
				panic(err)
			}
		}
		for ; at < steps; at++ {
			last := at == 7 && job.Attempt == 1
			v.say("step %d", at)
			switch job.Args.Way {
			case idle:
				keep(1)
				die()
			case inTurn:
				keep(1 - at)
				die()
			case beforeIt:
				if last {
					die()
				}
			}
			keep(at + 1)
			if job.Args.Way == afterIt && last || job.Args.Way == always && at < steps-1 {
				die()
			}
		}
		return nil
	})
	page, err := q.Jobs(ctx, errand.JobFilter{Kind: "climb"}, nil)
	if err != nil || len(page.Jobs) != 1 {
		return fmt.Errorf("%d jobs: %w", len(page.Jobs), err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	if _, err := errand.Await[any](ctx, q, page.Jobs[0].ID); !errors.Is(err, errand.ErrNoResult) && !errors.Is(err, errand.ErrDead) {
		return err
	}
	return errors.Join(w.Shutdown(ctx), <-stopped, q.Close())
}

// A job whose process dies goes on where its last checkpoint was. It does not die of that as
// long as it gets on, but if it does not, or only seems to.
func TestKill_Checkpoint(t *testing.T) {
	t.Parallel()
	for way, c := range map[string]struct {
		kills int // of the processes
		state errand.State
		steps string // that are begun
		long  bool
	}{
		beforeIt: {1, errand.Done, "0 1 2 3 4 5 6 7 7 8 9", false},
		afterIt:  {1, errand.Done, "0 1 2 3 4 5 6 7 8 9", false},
		always:   {9, errand.Done, "0 1 2 3 4 5 6 7 8 9", false},
		idle:     {3, errand.Dead, "0 1 1", false},
		inTurn:   {storage.CheckpointResets + 3, errand.Dead, strings.TrimSpace(strings.Repeat("0 1 ", storage.CheckpointResets/2+1)) + " 0", true},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(ramDir(t), "jobs.db")
			q, err := errand.Open(t.Context(), path, groupOptions(true))
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			e, err := q.Enqueue(t.Context(), climb{way}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var begun []string
			kills := 0
			for {
				climber := start(t, newLedger(), part{Role: "climb", DB: path, Relaxed: true})
				for line := range climber.said {
					begun = append(begun, strings.TrimPrefix(line, "step "))
				}
				if climber.reap(); !climber.killed() {
					break
				}
				if kills++; c.long && !full() && kills == 6 {
					return // and it lives
				}
			}
			if got := strings.Join(begun, " "); kills != c.kills || got != c.steps {
				t.Errorf("%d processes were killed, want %d, in steps %s, want %s", kills, c.kills, got, c.steps)
			}
			j, err := q.Job(t.Context(), e.ID)
			if err != nil || j.State != c.state || j.State == errand.Dead && (j.Reason != errand.ReasonCrashed || j.Checkpoint == nil) {
				t.Errorf("the job is %s for reason %q, at %s, %v", j.State, j.Reason, j.Checkpoint, err)
			}
			wantRules(t, path)
		})
	}
}

// killed reports whether a child has been killed, and fails if it has ended badly otherwise.
func (c *child) killed() bool {
	c.t.Helper()
	if c.state.Success() {
		return false
	}
	s, ok := c.state.Sys().(syscall.WaitStatus)
	if !ok || s.Signal() != syscall.SIGKILL {
		c.t.Fatalf("a child has ended with %v", c.state)
	}
	return true
}
