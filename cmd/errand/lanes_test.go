package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// Errors of jobs come from anywhere.
func TestPrintTimes_harmless(t *testing.T) {
	var b bytes.Buffer
	p := printer{w: &b}
	newTool(nil, &b, &b).printTimes(&p, []laneJSON{{Queue: evil, Kind: evil, Held: []string{evil}, LastFailure: queue.LastFailure{At: time.Now(), Error: evil}}})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 || !isSafe(strings.Join(lines, "")) || !strings.HasSuffix(lines[1], safe(evil)) {
		t.Errorf("%d lines: %q", len(lines), b.String())
	}
}
