package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program does its job, and being killed is how it ends.
func TestProgram(t *testing.T) {
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
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // that it was killed
	if text := strings.Join(said, "\n"); !strings.Contains(text, "sending to ada@example.org") {
		t.Errorf("the program said %q", text)
	}

	q, err := errand.Open(t.Context(), filepath.Join(dir, "jobs.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if counts, err := q.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].N != 1 {
		t.Errorf("Counts gave %v, %v: want one job", counts, err)
	}
}
