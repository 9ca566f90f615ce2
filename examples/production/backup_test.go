package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/errandtest"
)

// There is one copy a day, the last seven are kept, and the latest can be opened.
//
//errand:shows a production main
func TestBackup(t *testing.T) {
	q, dir := errandtest.New(t, nil), t.TempDir()
	if _, err := q.Enqueue(t.Context(), SendEmail{To: "ada@example.org"}, nil); err != nil {
		t.Fatal(err)
	}
	handle := backup(q, dir)
	for day := 1; day <= 10; day++ {
		job := &errand.Job[Backup]{Headers: map[string]string{"errand-tick": fmt.Sprintf("2026-11-%02dT03:30:00Z", day)}}
		for range 2 {
			if err := handle(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
	}
	copies, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(copies) != keepBackups || filepath.Base(copies[0]) != "backup-2026-11-04.db" {
		t.Fatalf("the copies are %v, %v", copies, err)
	}
	restored, err := errand.Open(t.Context(), copies[keepBackups-1], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	if counts, err := restored.Counts(t.Context()); err != nil || len(counts) != 1 || counts[0].N != 1 {
		t.Errorf("the copy has %v, %v: want one job", counts, err)
	}
}

// The schedule is declared, and its job does the same.
func TestBackup_schedule(t *testing.T) {
	q, dir := errandtest.New(t, nil), t.TempDir()
	if err := scheduleBackups(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	e, err := q.Schedules().Run(t.Context(), "backup")
	if err != nil {
		t.Fatal(err)
	}
	w := errand.NewWorker(q, nil)
	errand.Handle(w, backup(q, dir))
	errandtest.Drain(t, q, w, nil)
	if j, err := q.Job(t.Context(), e.ID); err != nil || j.State != errand.Done {
		t.Errorf("the job is %s, %v: want done", j.State, err)
	}
}
