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
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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

	// The queue goes on without Litestream, and does its own checkpoints.
	replica.kill()
	acked := len(w.of("acked"))
	w.wait("500 jobs without Litestream", func() bool { return len(w.of("acked")) >= acked+500 })
	w.compact(1)
	replicated := len(w.of("acked")) // so many are in the replica after this
	replica = s.replicate()
	w.compact(2)
	acked = len(w.of("acked"))
	w.wait("500 jobs beside Litestream", func() bool { return len(w.of("acked")) >= acked+500 })

	replica.kill()
	w.say("release")
	w.wait("the ledger until then", func() bool { return len(w.of("released")) > 0 })
	acked = len(w.of("acked")) // at most one more can be in the replica
	w.wait("the lost tail", func() bool {
		return len(w.of("acked")) >= acked+200 && !slices.ContainsFunc(first(kept), func(n int) bool { return !slices.Contains(w.of("ran"), n) })
	})
	w.die()

	s.restore("again")
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
	if enqueued, done := s.totals(); enqueued != int64(last) || done != int64(last) {
		t.Errorf("%d jobs enqueued and %d done by the totals: want %d", enqueued, done, last)
	}
	if err := s.run("errand", "doctor", "--full", s.path()); err != nil {
		t.Error(err)
	}
	repeated := slices.DeleteFunc(slices.Clone(again), func(n int) bool { return !slices.Contains(w.of("ran"), n) })
	if !slices.Equal(repeated[:min(kept, len(repeated))], first(kept)) {
		t.Errorf("jobs %v ran before and after the restore: want those that ended in the lost tail, with 1 to %d", repeated, kept)
	}

	// Litestream goes on with the same replica.
	had = s.jobs()
	s.replicate().kill()
	s.restore("third")
	if got := s.jobs(); !maps.Equal(got, had) {
		t.Errorf("the replica of the restored queue has %d jobs: want all %d, done", len(got), len(had))
	}
	t.Logf("%d jobs were acknowledged. %d were restored, of these %d not done, of which %d had run.", len(w.of("acked")), last, len(again), len(repeated))
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
	ctx           context.Context
	bin           string // the folder of the commands
	data, replica string // folders
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
	s := &site{T: t, ctx: ctx, bin: dir, data: filepath.Join(dir, "data"), replica: filepath.Join(dir, "replica")}
	const litestream = "github.com/benbjohnson/litestream/cmd/litestream"
	if out, err := exec.CommandContext(ctx, "go", "list", "-deps", litestream).CombinedOutput(); err != nil {
		t.Skipf("Litestream cannot be had: %v: %s", err, strings.TrimSpace(string(out)))
	}
	if err := errors.Join(s.build("", litestream), s.build(filepath.Join("..", ".."), "./cmd/errand"), os.Mkdir(s.data, 0o700)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) build(dir, pkg string) error {
	cmd := exec.CommandContext(s.ctx, "go", "build", "-ldflags=-s -w", "-o", filepath.Join(s.bin, path.Base(pkg)), pkg)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "))
	}
	return nil
}

func (s *site) path() string { return filepath.Join(s.data, "jobs.db") }

// env returns the environment of commands, with the folders that litestream.yml names.
func (s *site) env() []string {
	return append(os.Environ(), "DATA="+s.data, "REPLICA=file://"+s.replica)
}

// run runs a command to its end, in the folder of the queue.
func (s *site) run(name string, args ...string) error {
	cmd := exec.CommandContext(s.ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.Env = s.data, s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	s.Logf("%s %q\n%s", name, args, out)
	return nil
}

// replicate starts Litestream, and waits until all that is committed is in the replica.
func (s *site) replicate() *process {
	s.Helper()
	p := s.start(exec.CommandContext(s.ctx, filepath.Join(s.bin, "litestream"), "replicate", "-config", "litestream.yml"))
	for {
		err := s.run("litestream", "sync", "-wait", "-socket", filepath.Join(s.data, "litestream.sock"), s.path())
		if err == nil {
			return p
		}
		if p.over() || s.ctx.Err() != nil { // else it has just been started
			s.Fatal(err)
		}
	}
}

// restore restores the replica in a new folder, by the commands of the page.
func (s *site) restore(folder string) {
	s.Helper()
	s.data = filepath.Join(s.bin, folder)
	if err := os.Mkdir(s.data, 0o700); err != nil {
		s.Fatal(err)
	}
	for line := range strings.Lines(section(s.T, "sh")) {
		words := strings.Fields(strings.ReplaceAll(line, "s3://bucket/jobs", "file://"+s.replica))
		if err := s.run(words[0], words[1:]...); err != nil {
			s.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(s.data, "backup.db"), s.path()); err != nil {
		s.Fatal(err)
	}
}

// section returns the block of a language in the section of docs/operations.md on Litestream.
func section(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n### Litestream\n")
	rest, _, _ = strings.Cut(rest, "\n##")
	_, rest, _ = strings.Cut(rest, "```"+language+"\n")
	block, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("docs/operations.md has no section on Litestream with a block of %s", language)
	}
	return block
}

// The page shows the settings that are tested, and names the version.
func TestPage(t *testing.T) {
	settings, err := os.ReadFile("litestream.yml")
	if err != nil {
		t.Fatal(err)
	}
	if got := section(t, "yaml"); got != string(settings) {
		t.Errorf("docs/operations.md has\n%swant litestream.yml:\n%s", got, settings)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`benbjohnson/litestream v([\d.]+)`).FindSubmatch(module)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	if version == nil || !strings.Contains(string(page), "tested with version "+string(version[1])+" ") {
		t.Errorf("docs/operations.md does not name the version of Litestream, %q", version)
	}
}

// read opens the queue, for the caller to close.
func (s *site) read() *errand.Queue {
	s.Helper()
	q, err := errand.Open(s.ctx, s.path(), &errand.Options{SQLite: errand.SQLiteOptions{ReadOnly: true}})
	if err != nil {
		s.Fatal(err)
	}
	return q
}

// totals returns how many jobs have been enqueued, and have ended well.
func (s *site) totals() (enqueued, done int64) {
	s.Helper()
	q := s.read()
	defer func() { _ = q.Close() }() // it has only read
	lanes, err := q.Totals(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	for _, lane := range lanes {
		if lane.Queue == "default" {
			enqueued, done = enqueued+lane.Enqueued, done+lane.Done
		}
	}
	return enqueued, done
}

// jobs returns the states of all jobs but those of compact, which may be in the replica too.
func (s *site) jobs() map[int]errand.State {
	s.Helper()
	q := s.read()
	defer func() { _ = q.Close() }() // it has only read
	all := map[int]errand.State{}
	for o := (errand.ListOptions{Limit: 1000, Args: true}); ; {
		page, err := q.Jobs(s.ctx, errand.JobFilter{Queue: "default"}, &o)
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
