package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
)

// silence is an input in which nothing comes. It interrupts who reads it.
type silence struct {
	ctx       context.Context
	interrupt func()
}

func (s *silence) Read([]byte) (int, error) {
	s.interrupt()
	<-s.ctx.Done() // of the test
	return 0, s.ctx.Err()
}

// An interrupt ends a verb that waits for input.
func TestInput_interrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	if _, err := fixture(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"dead", "import", path}, {"jobs", "enqueue", path, "--kind", "k", "--stdin"}, {"policy", "check", "-"}, {"policy", "show", "-"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		var errs strings.Builder
		status := run(ctx, args, &silence{t.Context(), interrupt}, &strings.Builder{}, &errs)
		if status != statusInterrupted || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("%q: status %d, %q", args, status, errs.String())
		}
	}
}

// The policy by which a job died may be one that an older build took and none takes now: retries at
// once though they are not said to be.
func TestImport_olderPolicy(t *testing.T) {
	line := `{"id":"` + queue.ID{1}.String() + `","kind":"k","queue":"q","args":{},"policy":{"healthyRetryPolicy":{"minDelayTarget":0,"maxDelayTarget":0,"numRetries":5}}}`
	path := filepath.Join(t.TempDir(), "jobs.db")
	var out, errs strings.Builder
	if status := run(t.Context(), []string{"dead", "import", path, "--create"}, strings.NewReader(line), &out, &errs); status != 0 || out.String() != "1 job imported\n" {
		t.Fatalf("status %d, %s%s", status, &out, &errs)
	}
	out.Reset()
	if status := run(t.Context(), []string{"jobs", "ls", path, "--json"}, strings.NewReader(""), &out, &errs); status != 0 || !strings.Contains(out.String(), `"numNoDelayRetries": 5`) {
		t.Errorf("status %d, %s%s", status, &out, &errs)
	}
}
