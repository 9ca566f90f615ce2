package main

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	queue "github.com/errandq/errand"
)

// The flags are the options of the job.
func TestEnqueue_flags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "q.db")
	out := succeed(t, "jobs", "enqueue", file, "--create", "--kind", "k", "--args", `{"a": 1}`, "--queue", "mail", "--priority", "-7",
		"--due", "2100-01-02T03:04:05Z", "--unique", "once", "--unique-forever", "--header", "a=b=c", "--header", "d=", "--tag", "x", "--tag", "y",
		"--timeout", "3s", "--policy", "forever", "--start-within", "2s", "--finish-within", "1h30m", "--origin", "pi,7")
	id, err := queue.ParseID(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	onFile(t, file, func(q *queue.Queue) {
		j, err := q.Job(t.Context(), id)
		if err != nil || j.Kind != "k" || string(j.Args) != `{"a":1}` || j.Queue != "mail" || j.Priority != -7 ||
			!j.DueAt.Equal(time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)) || j.Unique != "once" ||
			!maps.Equal(j.Headers, map[string]string{"a": "b=c", "d": ""}) || !slices.Equal(j.Tags, []string{"x", "y"}) ||
			j.Timeout != 3*time.Second || !j.StartBy.Equal(j.DueAt.Add(2*time.Second)) || !j.Deadline.Equal(j.DueAt.Add(90*time.Minute)) || j.Policy == nil || j.Policy.Retry.Retries == 0 || j.Origin != (queue.Origin{Device: "pi", ID: "7"}) {
			t.Errorf("the job is %+v, %v", j, err)
		}
		if _, err := q.ReleaseUnique(t.Context(), "k", "once"); err != nil {
			t.Error(err)
		}
	})
	if out := succeed(t, "jobs", "show", file, id.String()); !strings.Contains(out, "\norigin     pi,7\n") {
		t.Errorf("the job is shown as\n%s", out)
	}
	succeed(t, "jobs", "enqueue", file, "--kind", "k", "--delay", "1h")
}

// A job whose key is held can change the one that holds it.
func TestEnqueue_onConflict(t *testing.T) {
	file := filepath.Join(t.TempDir(), "q.db")
	enqueue := []string{"jobs", "enqueue", file, "--kind", "k", "--unique", "a"}
	id := strings.TrimSpace(succeed(t, append(enqueue, "--create")...))
	for mode, want := range map[string]string{"keep": "duplicate of ", "replace": "replaced in ", "after": "replaced in "} {
		if out := succeed(t, append(enqueue, "--on-conflict", mode, "--args", `{"mode":"`+mode+`"}`)...); out != want+id+"\n" {
			t.Errorf("%s prints %q, want %q", mode, out, want+id)
		}
	}
	succeed(t, append(enqueue, "--on-conflict", "debounce", "--quiet-for", "1h", "--max-wait", "2h", "--unique-for", "24h")...)
	onFile(t, file, func(q *queue.Queue) {
		known, err := queue.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		if j, err := q.Job(t.Context(), known); err != nil || j.State != queue.Scheduled || string(j.Args) != "{}" {
			t.Errorf("the job is %+v, %v", j, err)
		}
	})
}
