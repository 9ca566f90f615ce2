package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
)

// A job is the same whether its args were raw or of a type when it was enqueued, and
// whether the handler takes them raw or decoded; here in one process, in every way.
func TestHandleRaw(t *testing.T) {
	q := openQueue(t, nil)
	typed := enqueue(t, q, note{"hi", 1}, nil)
	raw := errand.RawArgs{OfKind: "note", JSON: json.RawMessage(` { "Text" : "<&>", "N": 12345678901234567890.10 } `)}
	ids := map[errand.ID]string{
		typed: `{"Text":"hi","N":1}`,
		// As encoding/json writes it, but with the number as it was.
		enqueue(t, q, raw, &errand.JobOptions{Headers: map[string]string{"k": "v"}}): `{"Text":"\u003c\u0026\u003e","N":12345678901234567890.10}`,
		enqueue(t, q, &errand.RawArgs{OfKind: "note"}, nil):                          `null`,
	}
	got := make(chan *errand.Job[errand.RawArgs], len(ids))
	w := errand.NewWorker(q, nil)
	errand.HandleRaw(w, "note", func(_ context.Context, job *errand.Job[errand.RawArgs]) error {
		got <- job
		if job.ID == typed {
			return errand.Permanent(errors.New("no"))
		}
		return nil
	})
	kit.Work(q, w, len(ids))
	for range ids {
		job := <-got
		if job.Kind != "note" || job.Args.Kind() != "note" || string(job.Args.JSON) != ids[job.ID] || job.Attempt != 1 {
			t.Errorf("job %+v, want args %s", job, ids[job.ID])
		}
		if args := lookUp(t, q, job.ID).Args; string(args) != ids[job.ID] {
			t.Errorf("stored args %s", args)
		}
	}
	if j := lookUp(t, q, typed); j.State != errand.Dead || j.Error != "no" {
		t.Errorf("job %+v", j)
	}

	again := enqueue(t, q, errand.RawArgs{OfKind: "note", JSON: lookUp(t, q, typed).Args}, nil)
	decoded := make(chan *errand.Job[note], 1)
	w = errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		decoded <- job
		return nil
	})
	stop := run(t, w)
	if job := <-decoded; job.ID != again || job.Args != (note{"hi", 1}) {
		t.Errorf("job %+v", job)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// One call may bring raw args of several kinds, and a schedule may have raw args.
func TestRawArgs_kinds(t *testing.T) {
	q := openQueue(t, nil)
	a, b := errand.RawArgs{OfKind: "a"}, errand.RawArgs{OfKind: "b", JSON: []byte(`[1]`)}
	added, err := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: a}, {Args: b}, {Args: note{}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"a", "b", "note"} {
		if j := lookUp(t, q, added[i].ID); j.Kind != kind {
			t.Errorf("job %d has kind %q, want %q", i, j.Kind, kind)
		}
	}
	if err := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@hourly", Args: b}); err != nil {
		t.Fatal(err)
	}
	s, err := q.Schedules().Get(t.Context(), "s")
	if err != nil || s.Kind != "b" || string(s.Args) != "[1]" {
		t.Errorf("the schedule has kind %q, args %s, %v", s.Kind, s.Args, err)
	}
}
