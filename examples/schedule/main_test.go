package main

import (
	"bytes"
	"context"
	"log"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// screen is where the program writes; it interrupts it once enough has been seen.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	see  *regexp.Regexp
	stop context.CancelFunc
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.text.Write(b)
	if s.see.Match(s.text.Bytes()) {
		s.stop()
	}
	return n, err
}

// show runs the program until its screen shows something.
func show(t *testing.T, path, see string) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := &screen{see: regexp.MustCompile(see), stop: stop}
	if err := run(ctx, path, log.New(s, "", 0)); err != nil {
		t.Fatal(err)
	}
	return s.text.String()
}

func TestProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	text := show(t, path, `(?s)  pulse .*  slow |  slow .*  pulse `)
	for _, want := range []string{
		"minute  * * * * *", "night   30 2 * * mon-fri  next", "pulse   * * * * * *", "slow    @every 2s",
		"pulse   this second, of 2", "slow    what takes three seconds, of 2", "slow    fired 1,", "night   fired 0, missed 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the program does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "removed") {
		t.Errorf("the first run has removed something:\n%s", text)
	}

	// The next release has lost one.
	before := schedules
	t.Cleanup(func() { schedules = before })
	schedules = schedules[:3]
	if text := show(t, path, `  pulse `); !strings.Contains(text, "removed night\n") || strings.Contains(text, "mon-fri") {
		t.Errorf("the program keeps a schedule that it does not declare:\n%s", text)
	}
}
