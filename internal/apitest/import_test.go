package apitest

import (
	"errors"
	"sync"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

// A job that was imported before is left out, also if two imports run at the same time, and as long as it
// is there: its tag goes with it.
func TestImport(t *testing.T) {
	ctx := t.Context()
	q := openQueue(t, &errand.Options{Logger: quiet})
	var jobs []errand.NewJob
	var from []errand.ID
	for i := range 20 {
		tags := []string{"1", "2", "3", "4", "5", "6", "7", "8"} // as many as there may be
		jobs = append(jobs, errand.NewJob{Args: Upload{}, Options: &errand.JobOptions{Tags: tags}})
		from = append(from, errand.ID{1, byte(i / 2)})
	}
	in := func() (n int) {
		added, before, err := door.Import(ctx, q, jobs, from)
		check(err)
		for i, e := range added {
			switch {
			case !e.Duplicate:
				n++
			case !before[i] || len(must(q.Jobs(ctx, errand.JobFilter{Tag: storage.ImportTag(from[i])}, nil)).Jobs) != 1:
				t.Errorf("job %d is a duplicate of %v", i, e)
			}
		}
		return n
	}
	var both sync.WaitGroup
	var n [2]int
	for i := range n {
		both.Go(func() { n[i] = in() })
	}
	both.Wait()
	if n[0]+n[1] != 10 {
		t.Errorf("%d jobs came in: want 10", n)
	}
	must(q.CancelAll(ctx, errand.JobFilter{All: true}))
	if n := in(); n != 0 {
		t.Errorf("%d jobs came in that are cancelled: want none", n)
	}
	must(q.Delete(ctx, errand.JobFilter{Tag: storage.ImportTag(from[0]), States: []errand.State{errand.Cancelled}}))
	if n := in(); n != 1 {
		t.Errorf("%d jobs came in that are gone: want 1", n)
	}
	_, err := q.Enqueue(ctx, Upload{}, &errand.JobOptions{Tags: []string{storage.ImportTag(from[0])}})
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "tags[0]" {
		t.Errorf("a tag of an import: %v", err)
	}
}

// Of two lines from one job that another holds the unique key of, none was imported before.
func TestImport_held(t *testing.T) {
	ctx := t.Context()
	q := openQueue(t, &errand.Options{Logger: quiet})
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}
	id := enqueue(t, q, Upload{}, o)
	job := errand.NewJob{Args: Upload{}, Options: o}
	added, before, err := door.Import(ctx, q, []errand.NewJob{job, job}, []errand.ID{{1}, {1}})
	check(err)
	for i, e := range added {
		if !e.Duplicate || e.ID != id || before[i] {
			t.Errorf("%d: %+v, before: %t", i, e, before[i])
		}
	}
	_, _, err = door.Import(ctx, q, make([]errand.NewJob, 10_001), make([]errand.ID, 10_001))
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "jobs" {
		t.Errorf("too many jobs: %v", err)
	}
}
