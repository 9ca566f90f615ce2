package apitest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// nested returns arrays in each other.
func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

// What is nested too deep for a document around it is refused at each door, and what is taken can
// be shown.
func TestDepth(t *testing.T) {
	q := openQueue(t, nil)
	ctx := t.Context()
	raw := func(depth int) errand.RawArgs { return errand.RawArgs{OfKind: "deep", JSON: nested(depth)} }
	const want = "must be nested at most 1000 deep"
	id := enqueue(t, q, raw(1000), &errand.JobOptions{Queue: "waits"})
	if info := lookUp(t, q, id); second(json.Marshal(info)) != nil {
		t.Error("what was taken cannot be shown")
	}
	doors := map[string]error{
		"args":       second(q.Enqueue(ctx, raw(1001), nil)),
		"change":     second(q.Change(ctx, errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Args: raw(1001)})),
		"schedule":   q.Schedule(ctx, errand.Schedule{Name: "deep", Spec: "@daily", Args: raw(1001)}),
		`set["a.b"]`: second(q.StartBulk(ctx, errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{Kind: "deep"}, Set: map[string]json.RawMessage{"a.b": nested(999)}})),
	}
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	done := make(chan struct{})
	errand.Handle(w, func(ctx context.Context, job *errand.Job[note]) error {
		defer close(done)
		doors["checkpoint"] = job.Checkpoint(ctx, nested(1001))
		doors["result"] = job.SetResult(nested(1001))
		return nil
	})
	enqueue(t, q, note{}, nil)
	stop := run(t, w)
	<-done
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for door, err := range doors {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "deep") {
			t.Errorf("%s: %v, want: %s", door, err, want)
		}
	}
}
