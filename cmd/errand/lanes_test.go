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

// Who pauses or holds a queue, and the note of why, are in the list and in why a job waits.
func TestQueues_note(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	id := strings.Fields(succeed(t, "jobs", "enqueue", path, "--kind", "send", "--queue", "mail", "--create"))[0]
	succeed(t, "queues", "pause", path, "mail", "--by", "ada", "--note", "ticket 4711")
	succeed(t, "queues", "hold", path, "mail", "--by", "bob", "--note", "no contract yet")
	for _, args := range [][]string{{"queues", "ls", path}, {"jobs", "why", path, id}} {
		if out := succeed(t, args...); !strings.Contains(out, "ada") || !strings.Contains(out, "ticket 4711") || !strings.Contains(out, "bob") || !strings.Contains(out, "no contract yet") {
			t.Errorf("errand %q: %s", args, out)
		}
	}
}
