package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/kit"
	"github.com/errandq/errand/storage"
)

// A job keeps its origin in all states, handlers see it, and it is found by it.
func TestOrigin(t *testing.T) {
	ctx := t.Context()
	var entered []errand.Origin
	q := openQueue(t, &errand.Options{Logger: quiet})
	w := errand.NewWorker(q, &errand.WorkerOptions{Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, j *errand.Job[errand.RawArgs]) error {
			entered = append(entered, j.Origin)
			return next(ctx, j)
		}
	}}, Concurrency: 1})
	here, there := errand.Origin{Device: "pi:17", ID: "01890a5d,a=="}, errand.Origin{Device: "pi:17", ID: "2"}
	var seen, batch, raw errand.Origin
	errand.Handle(w, func(_ context.Context, j *errand.Job[Upload]) error {
		seen = j.Origin
		return j.Then(note{}, &errand.JobOptions{Queue: "later", Origin: there})
	})
	errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[value]) error {
		batch = jobs[0].Origin
		return nil
	}, errand.BatchOptions{Max: 1})
	errand.HandleRaw(w, "raw", func(_ context.Context, j *errand.Job[errand.RawArgs]) error {
		raw = j.Origin
		return errand.Permanent(errors.New("no"))
	})
	keeps := func(when string, id errand.ID, want errand.Origin, tags ...string) {
		t.Helper()
		if j := lookUp(t, q, id); j.Origin != want || !slices.Equal(j.Tags, tags) {
			t.Errorf("%s: a %s job comes from %v and has the tags %q, want %v and %q", when, j.State, j.Origin, j.Tags, want, tags)
		}
	}
	found := func(what string, f errand.JobFilter, want ...errand.ID) {
		t.Helper()
		if got := listAll(t, q, f, 1); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	plain := enqueue(t, q, note{}, &errand.JobOptions{Tags: []string{"red"}, Queue: "later"})
	upload := enqueue(t, q, Upload{}, &errand.JobOptions{Origin: here, Tags: []string{"red"}})
	value := enqueue(t, q, value{1}, &errand.JobOptions{Origin: here})
	dies := enqueue(t, q, errand.RawArgs{OfKind: "raw", JSON: []byte("{}")}, &errand.JobOptions{Origin: errand.Origin{Device: "hub", ID: "~"}})
	keeps("enqueued", plain, errand.Origin{}, "red")
	keeps("enqueued", upload, here, "red")
	found("by ID there", errand.JobFilter{Origin: here}, value, upload)
	kit.Work(q, w, 3)
	if seen != here || batch != here || raw.ID != "~" || len(entered) != 3 || slices.Contains(entered, errand.Origin{}) {
		t.Errorf("handlers saw %v, %v and %v, middleware %v", seen, batch, raw, entered)
	}
	keeps("done", upload, here, "red")
	keeps("dead", dies, raw)
	found("by ID there", errand.JobFilter{Origin: here}, value, upload)
	found("by device", errand.JobFilter{Origin: errand.Origin{Device: "pi:17"}, States: []errand.State{errand.Done}}, value, upload)
	for _, tag := range storage.FromTags(here) {
		found("by its tag", errand.JobFilter{Tag: tag, States: []errand.State{errand.Done}}, value, upload)
	}
	found("by another ID", errand.JobFilter{Origin: errand.Origin{Device: "hub", ID: "01890a5d,a=="}})
	follows := must(q.Jobs(ctx, errand.JobFilter{Parent: upload}, nil)).Jobs
	if len(follows) != 1 || follows[0].Origin != there || follows[0].Tags != nil {
		t.Errorf("what follows: %+v", follows)
	}
	if r, err := q.DeadLetters().Redrive(ctx, errand.JobFilter{Origin: raw}, nil); err != nil || r.Redriven != 1 {
		t.Errorf("redriven: %+v, %v", r, err)
	}
	keeps("redriven", dies, raw)
	must(q.Change(ctx, errand.JobFilter{IDs: []errand.ID{dies}}, errand.JobChange{Queue: "other", Args: errand.RawArgs{OfKind: "raw", JSON: []byte("[]")}}))
	must(q.CancelAll(ctx, errand.JobFilter{Origin: errand.Origin{Device: "hub"}}))
	keeps("cancelled", dies, raw)

	j := lookUp(t, q, dies)
	text := string(must(json.Marshal(j)))
	var read errand.JobInfo
	if err := json.Unmarshal([]byte(text), &read); err != nil || read.Origin != raw || !strings.Contains(text, `"origin":{"device":"hub","id":"~"}`) {
		t.Errorf("%s: read %v, %v", text, read.Origin, err)
	}
	if text := string(must(json.Marshal(lookUp(t, q, plain)))); strings.Contains(text, "origin") {
		t.Errorf("without an origin: %s", text)
	}
}

func TestOrigin_refused(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	const form, visible = "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", "must be 1 to 128 visible ASCII characters without spaces"
	long := strings.Repeat("x", 129)
	cut := `"` + long[:100] + `"... (129 bytes)`
	var jobs []errand.NewJob
	for _, o := range []errand.Origin{{ID: "1"}, {Device: "a"}, {Device: "a b", ID: "a b"}, {Device: long, ID: long}, {Device: "a,b", ID: "é"}, {Device: long[1:], ID: long[1:]}} {
		jobs = append(jobs, errand.NewJob{Args: note{}, Options: &errand.JobOptions{Origin: o}})
	}
	jobs = append(jobs, errand.NewJob{Args: note{}, Options: &errand.JobOptions{Tags: []string{"errand.from:a"}}})
	_, err := q.EnqueueMany(t.Context(), jobs)
	wantFaults(t, err, fault{"jobs[0].origin.device", `""`, form}, fault{"jobs[1].origin.id", `""`, visible},
		fault{"jobs[2].origin.device", `"a b"`, form}, fault{"jobs[2].origin.id", `"a b"`, visible},
		fault{"jobs[3].origin.device", cut, form}, fault{"jobs[3].origin.id", cut, visible},
		fault{"jobs[4].origin.device", `"a,b"`, form}, fault{"jobs[4].origin.id", `"é"`, visible},
		fault{"jobs[6].tags[0]", `"errand.from:a"`, `must not begin with "errand.from:", as those of JobOptions.Origin do`})
	err = q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@hourly", Args: note{}, Options: &errand.JobOptions{Origin: errand.Origin{Device: "a", ID: "1"}}})
	wantFaults(t, err, fault{"options.origin.device", `"a"`, "must be empty"})
	wantNothing(t, q)
	for _, c := range []struct {
		f    errand.JobFilter
		want fault
	}{
		{errand.JobFilter{Origin: errand.Origin{ID: "1"}}, fault{"origin.device", `""`, form}},
		{errand.JobFilter{Origin: errand.Origin{Device: "a", ID: " "}}, fault{"origin.id", `" "`, visible}},
		{errand.JobFilter{Tag: "errand.from:a b"}, fault{"tag.device", `"a b"`, form}},
		{errand.JobFilter{Tag: "errand.from:a,"}, fault{"tag.id", `""`, visible}},
		{errand.JobFilter{Origin: errand.Origin{Device: "a"}, Tag: "b"}, fault{"origin.device", `"a"`, "must be empty if tag or parent is set"}},
		{errand.JobFilter{Origin: errand.Origin{Device: "a"}, Parent: errand.ID{1}}, fault{"origin.device", `"a"`, "must be empty if tag or parent is set"}},
		{errand.JobFilter{Origin: errand.Origin{Device: "a"}, IDs: []errand.ID{{1}}}, fault{"ids", "1", "must be the only condition"}},
	} {
		_, err := q.Jobs(t.Context(), c.f, nil)
		wantFaults(t, err, c.want)
	}
}
