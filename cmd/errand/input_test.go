package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
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
