package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// What is written of a lane is fixed, byte for byte.
func TestLaneOf_JSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		of   queue.LaneStats
		want string
	}{
		{queue.LaneStats{Queue: "mail", Kind: "send"}, `{"queue":"mail","kind":"send","scheduled":0,"ready":0,"running":0,"done":0,"cancelled":0,"expired":0,"dead":0,"bytes":0}`},
		{
			queue.LaneStats{
				Queue: "mail", Kind: "send", Scheduled: 1, Ready: 2, Running: 3, Done: 4, Cancelled: 5, Expired: 6, Dead: 7, Blocked: 8, Bytes: 9,
				RunningBytes: 10, Evicted: 11, DeadEvicted: 12, OldestDue: at.Add(-1500 * time.Millisecond), LastSuccess: at, LastFailure: queue.LastFailure{At: at, Error: "e"},
				Holds: []queue.HoldState{{Reason: "paused"}}, Rate: &queue.Rate{Since: at, Done: 0.5},
			},
			`{"queue":"mail","kind":"send","scheduled":1,"ready":2,"running":3,"done":4,"cancelled":5,"expired":6,"dead":7,"blocked":8,"bytes":9,` +
				`"oldest_due":"2026-03-01T05:59:58.5Z","waits_s":1.5,"last_success":"2026-03-01T06:00:00Z","last_failure":{"at":"2026-03-01T06:00:00Z","error":"e"},` +
				`"held":["paused"],"rate":{"since":"2026-03-01T06:00:00Z","enqueued":0,"done":0.5,"failed":0,"dead":0}}`,
		},
		{queue.LaneStats{Queue: "mail", Kind: "send", OldestDue: at.Add(time.Hour)}, `{"queue":"mail","kind":"send","scheduled":0,"ready":0,"running":0,` +
			`"done":0,"cancelled":0,"expired":0,"dead":0,"bytes":0,"oldest_due":"2026-03-01T07:00:00Z"}`},
	} {
		if b, err := json.Marshal(laneOf(&c.of, at)); err != nil || string(b) != c.want {
			t.Errorf("%v, got\n%s\nwant\n%s", err, b, c.want)
		}
	}
}

// Errors of jobs come from anywhere.
func TestPrintTimes_harmless(t *testing.T) {
	var b bytes.Buffer
	p := printer{w: &b}
	newTool(nil, &b, &b).printTimes(&p, []laneState{{Lane: queue.Lane{Queue: evil, Kind: evil}, Held: []string{evil}, LastFailure: queue.LastFailure{At: time.Now(), Error: evil}}})
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
