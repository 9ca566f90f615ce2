package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// program is the built example.
var program string

func TestMain(m *testing.M) {
	kit.HeedSignals()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "outbox")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func TestOutbox_DeliversEverything(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "outbox.db")
	begin := time.Now()
	out := start(t, db).finish(t)
	t.Logf("in %v:\n%s", time.Since(begin).Round(time.Millisecond), out)

	events, malformed, hanging := theEvents(t)
	// An attempt that timed out though the receiver did not hang was cut too.
	if got, most := check(t, out, events), max(timeouts(t, db)-hanging, 0); got > most {
		t.Errorf("%d duplicates, though only %d attempts were cut", got, most)
	}
	for _, phase := range []string{"immediate", "pre-backoff", "backoff", "post-backoff"} {
		if !regexp.MustCompile(`(?m)^  ` + phase + ` +[1-9]`).MatchString(out) {
			t.Errorf("no retry of phase %s", phase)
		}
	}
	if !regexp.MustCompile(`(?m)^  permanent +` + strconv.Itoa(malformed) + `$`).MatchString(out) {
		t.Errorf("want %d permanent dead letters", malformed)
	}

	again := start(t, db).finish(t)
	if !strings.Contains(again, "\nall events are delivered\n") || !strings.HasSuffix(again, lastLine(out)) {
		t.Errorf("started again: %s", again)
	}
}

// A killed run is gone on with, and what was received twice was on its way
// when a run was killed. ERRAND_OUTBOX_KILLS says how many runs are killed,
// ERRAND_OUTBOX_SEED repeats the moments of a test that failed.
func TestOutbox_SurvivesKills(t *testing.T) {
	t.Parallel()
	kills, seed := fromEnv(t, "ERRAND_OUTBOX_KILLS", 3), fromEnv(t, "ERRAND_OUTBOX_SEED", time.Now().UnixNano())
	t.Logf("ERRAND_OUTBOX_KILLS=%d ERRAND_OUTBOX_SEED=%d", kills, seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	within := func(d time.Duration) time.Duration { return time.Duration(random.Int64N(int64(d))) }

	db := filepath.Join(t.TempDir(), "outbox.db")
	for i := range kills {
		r := start(t, db)
		switch i {
		case 0: // while it creates the file and enqueues
			r.kill(t, "start", within(100*time.Millisecond))
		case kills - 1: // while it redrives and delivers the dead letters
			r.waitFor("dead letters by reason:")
			r.kill(t, "first phase", within(30*time.Millisecond))
		default: // while there is certainly something left to do
			r.kill(t, "start", within(3*time.Second))
		}
	}
	out := start(t, db).finish(t)
	t.Logf("finished:\n%s", out)
	events, _, _ := theEvents(t)
	if got, most := check(t, out, events), int(kills)*concurrency; got > most {
		t.Errorf("%d duplicates, though at most %d attempts were cut", got, most)
	}
}

// check reads the last line of a run that is complete, and returns the number
// of duplicates.
func check(t *testing.T, out string, events int) (duplicates int) {
	t.Helper()
	want := fmt.Sprintf("events %d received %d lost 0 duplicates %%d dead 0\n", events, events)
	if _, err := fmt.Sscanf(lastLine(out), want, &duplicates); err != nil {
		t.Errorf("the last line is %q, want %q", lastLine(out), want)
	}
	return duplicates
}

func lastLine(out string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(out, "\n"), "\n")
	return lines[len(lines)-1] + "\n"
}

// theEvents counts them, and those that the receiver refuses or hangs on.
func theEvents(t *testing.T) (all, malformed, hanging int) {
	t.Helper()
	events := allOrders(t)
	for _, o := range events {
		if o.check() != nil {
			malformed++
		}
		if o.unlucky() {
			hanging++
		}
	}
	return len(events), malformed, hanging
}

// timeouts counts the attempts that ended by their timeout.
func timeouts(t *testing.T, db string) (n int) {
	t.Helper()
	q, err := errand.Open(t.Context(), db, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	events, err := loadEvents(eventsFile)
	if err != nil {
		t.Fatal(err)
	}
	ids, fresh, err := enqueue(t.Context(), q, events)
	if err != nil || fresh != 0 {
		t.Fatalf("%d events were not in the queue, %v", fresh, err)
	}
	for _, id := range ids {
		job, err := q.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range job.History {
			if strings.HasPrefix(f.Error, "timeout of ") {
				n++
			}
		}
	}
	return n
}

func fromEnv(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	n, err := strconv.ParseInt(cmp.Or(os.Getenv(name), strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	lines chan string // closed at the end of its output
	seen  strings.Builder
	errs  strings.Builder
}

func start(t *testing.T, db string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	p := &process{cmd: exec.CommandContext(ctx, program, "-db", db), lines: make(chan string, 1000)}
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				p.lines <- line
			}
			if err != nil {
				if err != io.EOF {
					p.lines <- err.Error()
				}
				return
			}
		}
	}()
	return p
}

// finish lets it run to its end, which must be a good one, and returns what it
// has printed.
func (p *process) finish(t *testing.T) string {
	t.Helper()
	for line := range p.lines {
		p.seen.WriteString(line)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v, stdout:\n%sstderr:\n%s", err, p.seen.String(), p.errs.String())
	}
	return p.seen.String()
}

// waitFor returns when it has printed the line, or has ended.
func (p *process) waitFor(line string) {
	for got := range p.lines {
		p.seen.WriteString(got)
		if got == line+"\n" {
			return
		}
	}
}

// kill kills it after d.
func (p *process) kill(t *testing.T, from string, d time.Duration) {
	t.Helper()
	timer := time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for line := range p.lines {
		p.seen.WriteString(line)
	}
	err := p.cmd.Wait()
	t.Logf("%v after %s: %v, had printed:\n%s%s", d.Round(time.Millisecond), from, err, p.seen.String(), p.errs.String())
	if err != nil && p.cmd.ProcessState.ExitCode() > 0 {
		t.Errorf("it failed before it was killed: %v", err)
	}
}
