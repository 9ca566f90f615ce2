package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// deadFile makes a file with n dead letters of the kind send.
func deadFile(t *testing.T, n int) (path string, ids []queue.ID) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "jobs.db")
	q, err := queue.Open(t.Context(), path, &queue.Options{Queues: map[string]queue.QueueOptions{"default": {MaxDeaths: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	w := queue.NewWorker(q, &queue.WorkerOptions{Concurrency: 1})
	queue.HandleRaw(w, "send", func(context.Context, *queue.Job[queue.RawArgs]) error {
		return queue.Permanent(errors.New("no such address"))
	})
	for i := range n {
		e, err := q.Enqueue(ctx, queue.RawArgs{OfKind: "send", JSON: json.RawMessage(fmt.Sprintf(`{"to":{"name":"n%d"},"n":0}`, i))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	kit.Work(q, w, n)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return path, ids
}

// bulkOf reads what a verb says of a bulk job.
func bulkOf(t *testing.T, out string) (b queue.BulkInfo) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &b); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return b
}

// With --rate a verb starts a bulk job, and does the work itself where no worker runs.
func TestBulk_rate(t *testing.T) {
	path, ids := deadFile(t, 12)
	for _, c := range []struct {
		args    []string
		do      queue.BulkAction
		changed int64
	}{
		{[]string{"dead", "edit", path, ids[0].String(), "--set", "to.name=Ada Byron", "--set", "n=5"}, queue.BulkRedrive, 1},
		{[]string{"dead", "redrive", path, "--all", "--rate", "1000", "--by", "ada", "--yes"}, queue.BulkRedrive, 11},
		{[]string{"jobs", "reschedule", path, "--kind", "send", "--delay", "1h", "--rate", "0", "--yes"}, queue.BulkChange, 12},
		{[]string{"jobs", "run", path, ids[1].String(), "--rate", "0"}, queue.BulkRunNow, 1},
		{[]string{"jobs", "run", path, "--all", "--first-runs", "--rate", "0"}, queue.BulkRunNow, 11},
		{[]string{"jobs", "cancel", path, "--all", "--rate", "0", "--yes"}, queue.BulkCancel, 12},
		{[]string{"dead", "purge", path, "--all", "--rate", "0", "--yes"}, queue.BulkDelete, 0},
		{[]string{"jobs", "rm", path, "--state", "cancelled", "--rate", "0", "--yes"}, queue.BulkDelete, 12},
	} {
		if c.do != queue.BulkRedrive { // whose dry run says more
			dry := bulkOf(t, succeed(t, append(c.args, "--dry-run", "--json")...))
			if dry.Do != c.do || dry.Total != c.changed || !dry.ID.IsZero() || len(dry.Sample) != int(min(c.changed, 10)) {
				t.Errorf("%q in a dry run: %+v", c.args, dry)
			}
		}
		b := bulkOf(t, succeed(t, append(c.args, "--json")...))
		if b.Do != c.do || b.State != queue.Done || b.Changed != c.changed || b.Left != 0 {
			t.Errorf("%q: %+v", c.args, b)
		}
		if c.do == queue.BulkRedrive && c.changed == 1 {
			if out := succeed(t, "jobs", "show", path, ids[0].String(), "--json"); !strings.Contains(strings.Join(strings.Fields(out), ""), `{"n":5,"to":{"name":"AdaByron"}}`) {
				t.Errorf("the job that was edited is %s", out)
			}
		}
	}
	out := succeed(t, "bulk", "ls", path)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 9 || !strings.Contains(out, "ada") {
		t.Errorf("the list is\n%s", out)
	}
}

// The help of a verb names the states of the jobs that it takes.
func TestBulk_states(t *testing.T) {
	for verb, do := range map[string]queue.BulkAction{
		"jobs cancel": queue.BulkCancel, "jobs reschedule": queue.BulkChange, "jobs edit": queue.BulkChange, "jobs rm": queue.BulkDelete,
	} {
		help, want := succeed(t, append(strings.Fields(verb), "--help")...), "only in this state: "+strings.Trim(fmt.Sprint(do.States()), "[]")+" "
		if !strings.Contains(strings.Join(strings.Fields(help), " "), want) {
			t.Errorf("%s: want %q in\n%s", verb, want, help)
		}
	}
}

// Bulk jobs are held, go on and are cancelled by verbs of their own. Who waits for one that is
// held can be interrupted, and the work is done later.
func TestBulk_steer(t *testing.T) {
	path, _ := deadFile(t, 5)
	succeed(t, "bulk", "pause", path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q, err := queue.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.StartBulk(t.Context(), queue.Bulk{Do: queue.BulkRedrive, Filter: queue.JobFilter{All: true}})
	if err := errors.Join(err, q.Close()); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if status := run(ctx, []string{"bulk", "watch", path, "--serve"}, nil, &text, &text); status != statusInterrupted {
		t.Errorf("an interrupted watch ended with %d: %s", status, &text)
	}
	if out := succeed(t, "bulk", "ls", path); !strings.Contains(out, "paused") {
		t.Errorf("the list is\n%s", out)
	}
	succeed(t, "bulk", "resume", path)
	if out := succeed(t, "bulk", "ls", path); !strings.Contains(out, "no worker runs") {
		t.Errorf("the list is\n%s", out)
	}
	if b := bulkOf(t, succeed(t, "bulk", "watch", path, b.ID.String(), "--serve", "--json")); b.Changed != 5 || b.State != queue.Done {
		t.Errorf("it ended as %+v", b)
	}
	succeed(t, "bulk", "pause", path)
	q, err = queue.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err = q.StartBulk(t.Context(), queue.Bulk{Do: queue.BulkDelete, Filter: queue.JobFilter{All: true}})
	if err := errors.Join(err, q.Close()); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, "bulk", "cancel", path, "--all"); !strings.Contains(out, b.ID.String()+": cancelled") {
		t.Errorf("cancel says %s", out)
	}
	if status, out, errs := errand(t, "", "bulk", "watch", path, b.ID.String()); status != statusFindings || !strings.Contains(out, "cancelled") {
		t.Errorf("watch of one that was cancelled: %d, %s%s", status, out, errs)
	}
	for _, args := range [][]string{
		{"bulk", "cancel", path}, {"bulk", "cancel", path, "--all", b.ID.String()}, {"bulk", "watch", path, idForm},
		{"dead", "redrive", path, "--all", "--by", "ada", "--yes"}, {"dead", "redrive", path, "--all", "--rate", "-1", "--yes"},
		{"dead", "edit", path, "--all", "--set", "nothing", "--yes"}, {"dead", "purge", path, b.ID.String(), "--rate", "1", "--yes"},
		{"jobs", "cancel", path, "--queue", "errand.bulk", "--rate", "1", "--yes"},
	} {
		if status, out, errs := errand(t, "", args...); status == 0 {
			t.Errorf("%q: status 0, %s%s", args, out, errs)
		}
	}
}
