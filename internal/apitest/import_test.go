package apitest

import (
	"errors"
	"sync"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

// A job that came in before is left out, also if two imports run at the same time, and as long as it
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
		for i, e := range must(door.Import(ctx, q, jobs, from)) {
			switch {
			case !e.Duplicate:
				n++
			case e.Key != "" || len(must(q.Jobs(ctx, errand.JobFilter{Tag: storage.OriginTag(from[i])}, nil)).Jobs) != 1:
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
	must(q.Delete(ctx, errand.JobFilter{Tag: storage.OriginTag(from[0]), States: []errand.State{errand.Cancelled}}))
	if n := in(); n != 1 {
		t.Errorf("%d jobs came in that are gone: want 1", n)
	}
	_, err := q.Enqueue(ctx, Upload{}, &errand.JobOptions{Tags: []string{storage.OriginTag(from[0])}})
	if f, ok := errors.AsType[*errand.FieldError](err); !ok || f.Field != "tags[0]" {
		t.Errorf("a tag of an import: %v", err)
	}
}
