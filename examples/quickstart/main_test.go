//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART") != "" {
		main()
		return
	}
	kit.HeedSignals()
	os.Exit(m.Run())
}

// The program does its job, and ends with status 0 when it is told to stop.
//
//errand:shows the first program of the README | | SIGTERM, Ctrl-C and SIGHUP end it with status 0, its queue closed and its job done
func TestProgram(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) { testProgram(t, signal) })
	}
}

func testProgram(t *testing.T, signal os.Signal) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "QUICKSTART=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasSuffix(lines.Text(), "sending to ada@example.org") {
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v, want status 0; it said\n%s", err, strings.Join(said, "\n"))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "jobs.db-instance-*")); err != nil || len(left) > 0 {
		t.Errorf("the program has left %v, %v: the queue was not closed", left, err)
	}

	q, err := errand.Open(t.Context(), filepath.Join(dir, "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	counts, err := q.Counts(t.Context())
	if err != nil || len(counts) != 1 || counts[0].N != 1 || counts[0].State != errand.Done {
		t.Errorf("Counts returned %v, %v: want one job, done", counts, err)
	}
}
