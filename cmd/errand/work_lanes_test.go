package main

import (
	"context"
	"testing"
	"time"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// beforeCounts does something each time that the jobs are about to be counted.
type beforeCounts struct {
	storage.Store
	do func()
}

func (s *beforeCounts) Counts(ctx context.Context) ([]storage.Count, error) {
	s.do()
	return s.Store.Counts(ctx)
}

// A hold that ends while the jobs are looked at, as the probe has ended that ran, does not
// count as one that holds them.
func TestWorkLanes_holdEnds(t *testing.T) {
	store := &beforeCounts{storagetest.NewMemory().Open(), func() {}}
	q, err := queue.New(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := q.Enqueue(t.Context(), queue.RawArgs{OfKind: "run", JSON: []byte("{}")}, nil); err != nil {
		t.Fatal(err)
	}
	l, lane := &workLanes{queue: q, kinds: []string{"run"}, queues: []string{"default"}}, queue.Lane{Kind: "run"}
	if err := q.Hold(t.Context(), lane, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := l.state(t.Context(), time.Second); err != nil || s.live != 1 || s.free != 0 {
		t.Fatalf("held: %+v, %v", s, err)
	}
	store.do = func() {
		if _, err := q.Release(t.Context(), lane, "held"); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := l.state(t.Context(), time.Second); err != nil || s.free != 1 {
		t.Errorf("released in between: %+v, %v", s, err)
	}
}
