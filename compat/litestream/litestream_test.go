// Package litestream has a queue at work beside Litestream. Both are killed. What Litestream
// has kept is restored, examined and worked on.
package litestream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// TestLitestream kills the worker and Litestream, restores the replica, and has a worker go on.
func TestLitestream(t *testing.T) {
	s := newSite(t)
	w := s.work(true)
	w.wait("the first jobs began", func() bool { return len(w.of("begun")) > kept })
	replica := s.replicate()

	// The queue goes on without Litestream, does its own checkpoints, and rewrites the file.
	replica.kill()
	acked := len(w.of("acked"))
	w.wait("500 jobs without Litestream", func() bool { return len(w.of("acked")) >= acked+500 })
	w.say("compact")
	w.wait("the file was rewritten", func() bool { return len(w.of("compacted")) > 0 })
	acked = len(w.of("acked"))
	replica = s.replicate()
	replicated := len(w.of("acked")) // hence all up to acked are in the replica
	w.wait("500 jobs beside Litestream", func() bool { return len(w.of("acked")) >= replicated+500 })
	replicated = acked

	replica.kill()
	acked = len(w.of("acked")) // at most one more can be in the replica
	w.say("release")
	w.wait("the lost tail", func() bool {
		return len(w.of("acked")) >= acked+200 && !slices.ContainsFunc(first(kept), func(n int) bool { return !slices.Contains(w.of("ran"), n) })
	})
	w.die()

	s.restore()
	had := s.jobs()
	last := len(had)
	if !slices.Equal(numbers(had), first(last)) {
		t.Errorf("restored %d jobs: want all up to the last, %v", last, numbers(had))
	}
	if last < replicated || last > acked+1 {
		t.Errorf("restored %d jobs: want at least the %d that were replicated, and at most %d, the last with Litestream", last, replicated, acked+1)
	}
	var again []int // the jobs whose end is not in the replica
	for n, state := range had {
		if state != errand.Done {
			again = append(again, n)
		} else if !slices.Contains(w.of("ran"), n) {
			t.Errorf("job %d is done and has not run", n)
		}
	}
	slices.Sort(again)

	after := s.work(false)
	after.wait("the rest ran", func() bool { return len(after.of("ran")) >= len(again) })
	after.stop()
	if ran := slices.Sorted(slices.Values(after.of("ran"))); !slices.Equal(ran, again) {
		t.Errorf("after the restore jobs %v ran: want those that were not done, %v", ran, again)
	}
	for n, state := range s.jobs() {
		if state != errand.Done || n > last {
			t.Errorf("job %d is %s: want %d jobs, all done", n, state, last)
		}
	}
	s.doctor()
	repeated := slices.DeleteFunc(again, func(n int) bool { return !slices.Contains(w.of("ran"), n) })
	if !slices.Equal(repeated[:min(kept, len(repeated))], first(kept)) {
		t.Errorf("jobs %v ran before and after the restore: want those that ended in the lost tail, with 1 to %d", repeated, kept)
	}
	t.Logf("%d jobs acknowledged, %d restored, %d of them not done, %d had run: these ran again", len(w.of("acked")), last, len(again), len(repeated))
}

// first returns the numbers from 1 to n.
func first(n int) (all []int) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func numbers(jobs map[int]errand.State) []int { return slices.Sorted(maps.Keys(jobs)) }

// site is the programs and the folders of the test.
type site struct {
	*testing.T
	ctx                context.Context
	litestream, errand string // commands
	data, replica      string // folders
}

func newSite(t *testing.T) *site {
	ctx := t.Context()
	if end, ok := t.Deadline(); ok { // processes are to end with a test that hangs
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, end.Add(-10*time.Second))
		t.Cleanup(stop)
	}
	dir, err := os.MkdirTemp("", "ls") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{T: t, ctx: ctx, litestream: filepath.Join(dir, "litestream"), errand: filepath.Join(dir, "errand"),
		data: filepath.Join(dir, "data"), replica: filepath.Join(dir, "replica")}
	if err := s.build("", "github.com/benbjohnson/litestream/cmd/litestream", s.litestream); err != nil {
		t.Skip("Litestream cannot be had: ", err)
	}
	if err := errors.Join(s.build(filepath.Join("..", ".."), "./cmd/errand", s.errand), os.Mkdir(s.data, 0o700)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) build(dir, pkg, to string) error {
	cmd := exec.CommandContext(s.ctx, "go", "build", "-ldflags=-s -w", "-o", to, pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

func (s *site) path() string { return filepath.Join(s.data, "jobs.db") }

// env gives litestream.yml its folders.
func (s *site) env() []string {
	return append(os.Environ(), "DATA="+s.data, "REPLICA=file://"+s.replica)
}

// run runs a command to its end, and returns what it has printed.
func (s *site) run(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(s.ctx, name, args...)
	cmd.Env = s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %q: %w\n%s", filepath.Base(name), args, err, out)
	}
	return string(out), err
}

// must is run for a command that has to succeed.
func (s *site) must(name string, args ...string) string {
	s.Helper()
	out, err := s.run(name, args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// doctor examines the queue.
func (s *site) doctor() string { s.Helper(); return s.must(s.errand, "doctor", "--full", s.path()) }

// replicate starts Litestream, and waits until all that is committed is in the replica.
func (s *site) replicate() *process {
	s.Helper()
	p := s.start(exec.CommandContext(s.ctx, s.litestream, "replicate", "-config", "litestream.yml"))
	for {
		_, err := s.run(s.litestream, "sync", "-wait", "-socket", filepath.Join(s.data, "litestream.sock"), s.path())
		if err == nil {
			return p
		}
		if p.over() || s.ctx.Err() != nil {
			s.Fatal(err)
		}
	}
}

// restore restores the replica in another folder, as docs/operations.md says.
func (s *site) restore() {
	s.Helper()
	from := s.path()
	s.data = filepath.Join(filepath.Dir(s.data), "again")
	restored := filepath.Join(s.data, "restored.db")
	if err := os.Mkdir(s.data, 0o700); err != nil {
		s.Fatal(err)
	}
	s.Logf("%s", s.must(s.litestream, "restore", "-o", restored, "file://"+s.replica))
	out, err := s.run(s.errand, "doctor", "--full", restored)
	s.Logf("%s: %v\n%s", from, err, out)
	s.must(s.errand, "backup", restored, s.path())
	s.Logf("%s", s.doctor())
}

// jobs returns the states of all jobs.
func (s *site) jobs() map[int]errand.State {
	s.Helper()
	q, err := errand.Open(s.ctx, s.path(), &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = q.Close() }()
	all := map[int]errand.State{}
	for o := (errand.ListOptions{Limit: 1000, Args: true}); ; {
		page, err := q.Jobs(s.ctx, errand.JobFilter{}, &o)
		if err != nil {
			s.Fatal(err)
		}
		for _, job := range page.Jobs {
			var args numbered
			if err := json.Unmarshal(job.Args, &args); err != nil {
				s.Fatal(err)
			}
			all[args.N] = job.State
		}
		if o.After = page.Next; o.After == "" {
			return all
		}
	}
}
