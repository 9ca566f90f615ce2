package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

// What the caps of a queue do is seen by the callers of this process: the error says how
// full it is, subscribers learn which jobs were evicted, and the numbers say how many.
func TestQueue_Caps(t *testing.T) {
	ctx := t.Context()
	q := openQueue(t, nil)
	lane := errand.Lane{Queue: "telemetry"}
	if err := q.Configure(ctx, lane, errand.Settings{MaxJobs: new(2)}); err != nil {
		t.Fatal(err)
	}
	o := &errand.JobOptions{Queue: "telemetry"}
	first := enqueue(t, q, note{}, o)
	enqueue(t, q, note{}, o)
	_, err := q.Enqueue(ctx, note{}, o)
	var full *errand.QueueFullError
	if !errors.As(err, &full) || !errors.Is(err, errand.ErrQueueFull) || full.Queue != "telemetry" || full.Jobs != 2 || full.MaxJobs != 2 {
		t.Errorf("Enqueue returned %v", err)
	}
	size := int64(len(`{"Text":"","N":0}`) + errand.JobOverhead)
	use := fmt.Sprintf("jobs that wait: 2 of at most 2, their bytes: %d ", 2*size)
	if text := fmt.Sprintf(`errand: queue "telemetry" is full: there is no room for a job of %d bytes: %s(refuse)`, size, use); full.Size != size || err.Error() != text {
		t.Errorf("%q with size %d, want %q", err, full.Size, text)
	}
	full.WhenFull = errand.EvictOldest
	if text := fmt.Sprintf(`errand: queue "telemetry" is full: there is no room for a job of %d bytes, as too few of them may be evicted: %s(evict-oldest)`, size, use); full.Error() != text {
		t.Errorf("%q, want %q", full, text)
	}
	if full.MaxBytes = size - 1; !strings.Contains(full.Error(), fmt.Sprintf("full: a job of %d bytes is larger than the cap: ", size)) {
		t.Errorf("%q, want that the job is too large", full)
	}
	events, err := q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventEvicted}, Queue: "telemetry"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Configure(ctx, lane, errand.Settings{WhenFull: new(errand.EvictOldest)}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, note{}, o)
	e := <-events.Events()
	if e.ID != first || e.Queue != "telemetry" || e.Kind != "note" || e.At.IsZero() {
		t.Errorf("event %+v, want that the first job was evicted", e)
	}
	stats, err := q.Stats(ctx)
	if err != nil || len(stats) != 1 || stats[0].Evicted != 1 || stats[0].Ready != 2 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}

// Health has the caps that are almost reached, with their use, and too little free space.
func TestQueue_Health_Caps(t *testing.T) {
	ctx := t.Context()
	q := openQueue(t, nil)
	set := func(lane errand.Lane, s errand.Settings) {
		t.Helper()
		if err := q.Configure(ctx, lane, s); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, want ...errand.HealthReason) {
		t.Helper()
		h := q.Health(ctx, nil)
		for i := range h.Reasons {
			if r := &h.Reasons[i]; r.Code != errand.HealthCap {
				r.Text = "" // it has what is free
			}
		}
		if !h.Live || !h.Ready || !slices.Equal(h.Reasons, want) {
			t.Errorf("%s: %+v, want %+v", what, h, want)
		}
	}
	lane := errand.Lane{Queue: "telemetry"}
	o := &errand.JobOptions{Queue: "telemetry"}
	set(lane, errand.Settings{MaxJobs: new(20)})
	for range 18 {
		enqueue(t, q, note{}, o)
	}
	is("90 %")
	enqueue(t, q, note{}, o)
	args, err := json.Marshal(note{})
	if err != nil {
		t.Fatal(err)
	}
	use := int64(19 * (errand.JobOverhead + len(args)))
	r := errand.HealthReason{Code: errand.HealthCap, Text: `95 % of a cap of queue "telemetry" are in use (refuse)`, Queue: "telemetry", MaxJobs: 20, Jobs: 19, Bytes: use}
	is("95 %", r)
	set(errand.Lane{}, errand.Settings{MaxBytes: &use, WhenFull: new(errand.EvictOldest)})
	is("the file", errand.HealthReason{Code: errand.HealthCap, Text: `100 % of a cap of the file are in use (evict-oldest)`, MaxBytes: use, Jobs: 19, Bytes: use}, r)
	set(errand.Lane{}, errand.Settings{MaxBytes: new(int64(0)), MinFree: new(int64(1 << 62))})
	set(lane, errand.Settings{MaxJobs: new(0), MinFree: new(int64(1))})
	is("space", errand.HealthReason{Code: errand.HealthSpace})
}

// A job that runs counts for no cap: Health and CapUse say the same as Enqueue.
func TestQueue_Health_CapsOfRunning(t *testing.T) {
	q := openQueue(t, nil)
	lane := errand.Lane{Queue: "default"}
	if err := q.Configure(t.Context(), lane, errand.Settings{MaxBytes: new(int64(1000))}); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
		close(started)
		<-ctx.Done()
		return nil
	})
	enqueue(t, q, note{Text: strings.Repeat("x", 850)}, nil)
	if h := q.Health(t.Context(), nil); len(h.Reasons) == 0 || h.Reasons[0].Code != errand.HealthCap {
		t.Errorf("while it waits: %+v, want a cap", h)
	}
	run(t, w)
	<-started
	if h := q.Health(t.Context(), nil); len(h.Reasons) > 0 {
		t.Errorf("while it runs: %+v", h)
	}
	stats, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := errand.LaneSettings{Lane: lane}
	if u := set.CapUse(stats); u.Jobs != 0 || u.Bytes != 0 || stats[0].Bytes < 850 || stats[0].RunningBytes != stats[0].Bytes {
		t.Errorf("use %+v, stats %+v", u, stats)
	}
}

// Dead letters beyond a cap that evicts are deleted, counted and told of, and those that
// block their group stay. Health has a reason from 80 % on.
func TestQueue_DeadCap(t *testing.T) {
	g := newGraveyard(t)
	ctx := t.Context()
	lane := errand.Lane{Queue: "default", Kind: "note"}
	if err := g.Configure(ctx, lane, errand.Settings{MaxDead: new(5)}); err != nil {
		t.Fatal(err)
	}
	var dead []errand.ID
	die := func(o *errand.JobOptions) {
		t.Helper()
		dead = append(dead, g.bury(note{}, o, errand.ReasonPermanent, "no"))
	}
	is := func(what string, want ...errand.HealthReason) {
		t.Helper()
		h := g.Health(ctx, nil)
		got := slices.DeleteFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthClock })
		if !h.Live || !h.Ready || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", what, h, want)
		}
	}
	die(&errand.JobOptions{Group: "a"})
	die(nil)
	die(nil)
	is("60 %")
	die(nil)
	r := errand.HealthReason{Code: errand.HealthDead, Text: `there are 4 dead letters of kind note in queue default, of at most 5 (keep)`, Queue: "default", Kind: "note", MaxDead: 5, Dead: 4}
	is("80 %", r)
	die(nil)
	die(nil)
	r.Text, r.Dead = `there are 6 dead letters of kind note in queue default, of at most 5 (keep)`, 6
	is("kept", r)
	events, err := g.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventDeadEvicted}}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Configure(ctx, lane, errand.Settings{MaxDead: new(3), WhenDeadFull: new(errand.EvictDead)}); err != nil {
		t.Fatal(err)
	}
	die(nil)
	for _, want := range dead[1:5] {
		if e := <-events.Events(); e.ID != want || e.Queue != "default" || e.Kind != "note" || e.At.IsZero() {
			t.Errorf("event %+v, want that %v was evicted", e, want)
		}
	}
	page, err := g.DeadLetters().List(ctx, errand.JobFilter{}, nil)
	var left []errand.ID
	for _, j := range page.Jobs {
		left = append(left, j.ID)
	}
	if want := []errand.ID{dead[6], dead[5], dead[0]}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, %v, want %v", left, err, want)
	}
	stats, err := g.Stats(ctx)
	if err != nil || len(stats) != 1 || stats[0].Dead != 3 || stats[0].DeadEvicted != 4 || stats[0].Evicted != 0 {
		t.Errorf("stats %+v, %v", stats, err)
	}
}
