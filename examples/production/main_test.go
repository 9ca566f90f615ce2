//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	if os.Getenv("PRODUCTION") != "" {
		main()
		return
	}
	kit.HeedSignals()
	os.Exit(m.Run())
}

// The program takes an email over HTTP, sends it, and ends with status 0 when
// it is told to.
//
//errand:shows a production main | | it serves, works, keeps backups, stops in order, and its exit status says whether to start it again
func TestProgram(t *testing.T) {
	m, keys := provider(t, http.StatusOK)
	path := filepath.Join(t.TempDir(), "jobs.db")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-addr", "localhost:0", "-db", path, "-mail", m.url)
	cmd.Env = append(os.Environ(), "PRODUCTION=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		var line struct{ Level, Msg, Addr string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Level == "ERROR" {
			t.Errorf("the program said %s, %v", lines.Text(), err)
		}
		if line.Msg == "listening" {
			resp, err := http.Post("http://"+line.Addr+"/emails", "application/json", strings.NewReader(`{"to": "ada@example.org"}`))
			if err != nil || resp.StatusCode != http.StatusAccepted {
				t.Errorf("the program answered %v, %v", resp, err)
				break
			}
			_ = resp.Body.Close()
			<-keys
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v, want status 0", err)
	}
	q, err := errand.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if counts, err := q.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].State != errand.Done {
		t.Errorf("Counts returned %v, %v: want one job, done", counts, err)
	}
}

// What makes the program end by itself is in its status.
//
//errand:shows a production main
func TestStatus(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := run(t.Context(), "localhost:0", path, nil)
	taken := run(t.Context(), "no address", filepath.Join(dir, "jobs.db"), nil)
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{damaged, 3},
		{taken, 1},
		{fmt.Errorf("%w: job 17", errand.ErrStuck), 1},
		{errors.Join(context.Canceled, fmt.Errorf("%w: version 9", errand.ErrTooNew)), 3},
		{fmt.Errorf("%w: two names", errand.ErrUnsupportedDB), 1},
	} {
		if got := status(c.err); got != c.want {
			t.Errorf("%v: status %d, want %d", c.err, got, c.want)
		}
	}
}
