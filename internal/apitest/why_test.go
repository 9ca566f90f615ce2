package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// codes returns the codes of the reasons why a job does not run.
func codes(t *testing.T, q *errand.Queue, id errand.ID) (w errand.Why, codes string) {
	t.Helper()
	w, err := q.Why(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, r := range w.Reasons {
		all = append(all, string(r.Code))
		if r.Text == "" || strings.Contains(r.Text, "%!") {
			t.Errorf("reason %s has the text %q", r.Code, r.Text)
		}
	}
	return w, strings.Join(all, " ")
}

// wantWhy checks why a job does not run, and returns the reasons.
func wantWhy(t *testing.T, q *errand.Queue, id errand.ID, want string) errand.Why {
	t.Helper()
	w, got := codes(t, q, id)
	if got != want {
		t.Errorf("reasons %q, want %q: %v", got, want, w)
	}
	return w
}

// untilWhy waits until the first reasons are those wanted: what workers show comes later.
func untilWhy(t *testing.T, q *errand.Queue, id errand.ID, want string) errand.Why {
	t.Helper()
	for {
		w, got := codes(t, q, id)
		if strings.HasPrefix(got, want) {
			return w
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("reasons %q, want %q: %v", got, want, w)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// A shared throttle without a token is a reason, with when the next one comes.
func TestQueue_Why_SharedThrottle(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	q := openQueue(t, &errand.Options{Clock: func() time.Time { return now }})
	for _, lane := range []errand.Lane{{Queue: "default"}, {Kind: "note"}} {
		if err := q.Configure(t.Context(), lane, errand.Settings{Starts: new(6), StartsPer: new(time.Minute), StartsBurst: new(1)}); err != nil {
			t.Fatal(err)
		}
	}
	w := errand.NewWorker(q, nil)
	ran := make(chan struct{})
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { close(ran); return nil })
	stop := run(t, w)
	enqueue(t, q, note{}, nil)
	<-ran
	if err := stop(); err != nil {
		t.Error(err)
	}
	id := enqueue(t, q, note{}, nil)
	why := wantWhy(t, q, id, "no_worker throttle throttle behind")
	if len(why.Reasons) < 3 {
		return
	}
	for i, want := range []errand.WhyReason{{Queue: "default"}, {Kind: "note"}} {
		want.Code, want.Reason, want.Until = errand.WhyThrottle, errand.ReasonShared, now.Add(10*time.Second)
		if got := why.Reasons[1+i]; !got.Until.Equal(want.Until) || got.Queue != want.Queue || got.Kind != want.Kind || got.Reason != want.Reason {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	now = now.Add(10 * time.Second)
	wantWhy(t, q, id, "no_worker behind")
}

// A hold that lets jobs through names the last error as such, as it may be that of another
// job than the one that runs. When the next job has been due no time is said that is over.
func TestQueue_Why_Probe(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := storagetest.NewMemory().Open()
	q, err := errand.New(t.Context(), store, &errand.Options{Clock: func() time.Time { return now }, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	id := enqueue(t, q, note{}, nil)
	if err := store.Hold(t.Context(), now, storage.Hold{
		Lane: errand.Lane{Queue: "default", Kind: "note"}, Reason: storage.HoldUnavailable, By: "errand", Detail: "connection refused", For: time.Minute, Probe: true,
	}); err != nil {
		t.Fatal(err)
	}
	const held = `kind note in queue default is held for "unavailable" by errand since 2026-03-01T12:00:00Z, and lets one job through `
	for _, want := range []string{"at 2026-03-01T12:01:00Z; the last error: connection refused", "as soon as a worker has a free place for it; the last error: connection refused"} {
		if r := wantWhy(t, q, id, "no_worker held behind").Reasons[1]; r.Text != held+want {
			t.Errorf("%q, want %q", r.Text, held+want)
		}
		now = now.Add(time.Minute)
	}
}

func TestQueue_Why_Waiting(t *testing.T) {
	q := openQueue(t, nil)
	ctx := t.Context()
	first := enqueue(t, q, note{}, nil)
	second := enqueue(t, q, note{}, nil)
	later := enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
	w := wantWhy(t, q, first, "no_worker behind")
	if w.ID != first || w.Queue != "default" || w.Kind != "note" || w.State != errand.Ready || w.Reasons[0].Text != "no worker runs" {
		t.Errorf("%+v", w)
	}
	if r := wantWhy(t, q, second, "no_worker behind").Reasons[1]; r.N != 1 || r.More {
		t.Errorf("%+v, want 1 before it", r)
	}
	if r := wantWhy(t, q, later, "not_due no_worker").Reasons[0]; time.Until(r.Until).Round(time.Minute) != time.Hour {
		t.Errorf("due %v", r.Until)
	}
	if err := q.Pause(ctx, "default"); err != nil {
		t.Fatal(err)
	}
	if err := q.Hold(ctx, errand.Lane{Queue: "default", Kind: "note"}, &errand.HoldOptions{Reason: "modem", By: "ada", Detail: "no contract yet", For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := q.Pause(ctx, "other"); err != nil {
		t.Fatal(err)
	}
	w = wantWhy(t, q, first, "no_worker held held behind")
	paused, held := w.Reasons[1], w.Reasons[2]
	if paused.Queue != "default" || paused.Kind != "" || paused.Reason != "paused" || paused.Since.IsZero() || !strings.HasPrefix(paused.Text, "queue default is paused since ") ||
		!strings.HasSuffix(paused.Text, " until it is resumed") {
		t.Errorf("%+v", paused)
	}
	if held.Kind != "note" || held.Reason != "modem" || held.By != "ada" || held.Until.Sub(held.Since) < time.Hour ||
		!strings.HasPrefix(held.Text, `kind note in queue default is held for "modem" by ada since `) || !strings.HasSuffix(held.Text, "; the note: no contract yet") {
		t.Errorf("%+v", held)
	}
	if _, err := q.RunNow(ctx, errand.JobFilter{IDs: []errand.ID{second}}, nil); err != nil {
		t.Fatal(err)
	}
	wantWhy(t, q, second, "no_worker urgent")
	if _, err := q.Cancel(ctx, first); err != nil {
		t.Fatal(err)
	}
	if r := wantWhy(t, q, first, "ended").Reasons[0]; !strings.HasPrefix(r.Text, "it has ended as cancelled at ") || r.Since.IsZero() {
		t.Errorf("%+v", r)
	}
	if _, err := q.Why(ctx, errand.ID{}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("Why of no job returned %v", err)
	}
}

// What a job waits for between attempts: its policy is known from a worker that has the
// handler, also of another process.
func TestQueue_Why_Between(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	q, look := openAt(t, path, nil), openAt(t, path, nil)
	fails := map[string]error{"snooze": errand.Snooze(time.Hour, nil), "away": errand.Unavailable(errors.New("no route")), "retry": errors.New("refused")}
	w := errand.NewWorker(q, nil)
	kinds := policy.Policy{Retries: 9, NoDelayRetries: 1, MinDelayRetries: 2, MinDelay: time.Hour, MaxDelay: time.Hour, Jitter: policy.NoJitter}
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		return fails[job.Args.Text]
	}, errand.HandlerOptions{Policy: kinds})
	run(t, w)
	ids := map[string]errand.ID{}
	for _, text := range []string{"retry", "snooze"} {
		ids[text] = enqueue(t, q, note{Text: text}, nil)
	}
	own := enqueue(t, q, note{Text: "retry"}, &errand.JobOptions{Policy: policy.Policy{Retries: 1, MinDelay: time.Hour, MaxDelay: time.Hour, NoDelayRetries: 0}})
	r := untilWhy(t, look, ids["retry"], "retry").Reasons[0]
	for r.N == 1 { // which is to come at once
		r = untilWhy(t, look, ids["retry"], "retry").Reasons[0]
	}
	if r.N != 2 || r.Of != 9 || r.Phase != policy.PhasePreBackoff || time.Until(r.Until).Round(time.Minute) != time.Hour ||
		!strings.HasPrefix(r.Text, "it waits for retry 2 of 9, in phase pre-backoff: it is due at ") || !strings.HasSuffix(r.Text, "; attempt 2 failed: refused") {
		t.Errorf("%+v", r)
	}
	if r := untilWhy(t, look, own, "retry").Reasons[0]; r.N != 1 || r.Of != 1 {
		t.Errorf("%+v", r)
	}
	untilWhy(t, look, ids["snooze"], "snoozed")
	away := enqueue(t, q, note{Text: "away"}, nil)
	if r := untilWhy(t, look, away, "unavailable").Reasons[0]; !strings.HasSuffix(r.Text, ": no route") {
		t.Errorf("%+v", r)
	}
}

// A job that was put off has its attempt and its error among the reasons, also if it has
// failed with the same text before.
func TestQueue_Why_PutOff(t *testing.T) {
	q := openQueue(t, nil)
	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
		err := errors.New("no route")
		switch {
		case job.Attempt == 1:
			return err
		case job.Args.Text == "snooze":
			return errand.Snooze(time.Hour, nil)
		}
		return errand.HoldLane(time.Hour, err)
	}, errand.HandlerOptions{Policy: policy.Policy{Retries: 9, NoDelayRetries: 9}})
	run(t, w)
	snoozes := enqueue(t, q, note{Text: "snooze"}, nil)
	r := untilWhy(t, q, snoozes, "snoozed").Reasons[0]
	if r.N != 2 || !strings.HasPrefix(r.Text, "its handler put it off in attempt 2: it is due at ") || !strings.HasSuffix(r.Text, "; attempt 1 failed: no route") {
		t.Errorf("%+v", r)
	}
	if _, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{snoozes}}, errand.JobChange{Delay: 2 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	away := enqueue(t, q, note{}, nil)
	untilWhy(t, q, away, "held")
	if _, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{away}}, errand.JobChange{Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	r = wantWhy(t, q, away, "unavailable held").Reasons[0]
	if r.N != 2 || !strings.HasPrefix(r.Text, "attempt 2 could not reach the other side, which costs no retry: it is due at ") || !strings.HasSuffix(r.Text, ": no route") {
		t.Errorf("%+v", r)
	}
	if j, err := q.Job(t.Context(), away); err != nil || !j.Unreached || j.Error != "no route" {
		t.Errorf("the job is %+v, %v", j, err)
	}
}

// What workers show keeps a job back if no worker is free to take it.
func TestQueue_Why_Workers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	gate := new(errand.Switch)
	gate.Close("no carrier")
	q := openAt(t, path, &errand.Options{Queues: map[string]errand.QueueOptions{"uploads": {Gate: gate}}})
	look := openAt(t, path, nil)
	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "uploads"}})
	errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
	stop := run(t, w)
	upload := enqueue(t, q, note{}, &errand.JobOptions{Queue: "uploads"})
	r := untilWhy(t, look, upload, "gate behind").Reasons[0]
	if r.Queue != "uploads" || r.Reason != "no carrier" || r.Since.IsZero() || r.Worker == "" || !strings.Contains(r.Text, "the gate of queue uploads is closed since ") {
		t.Errorf("%+v", r)
	}
	typo := enqueue(t, q, note{}, &errand.JobOptions{Queue: "upload"})
	if r := wantWhy(t, look, typo, "no_worker behind").Reasons[0]; r.Text != "no worker that runs works for queue upload" {
		t.Errorf("%+v", r)
	}
	other := enqueue(t, q, ping{}, nil)
	if r := wantWhy(t, look, other, "no_worker behind").Reasons[0]; r.Text != "no worker that runs has a handler for kind ping in queue default" {
		t.Errorf("%+v", r)
	}
	all, err := look.Workers(t.Context())
	if err != nil || len(all) != 1 || !slices.Equal(all[0].Queues, []string{"default", "uploads"}) || !slices.Equal(all[0].Kinds, []string{"note"}) ||
		all[0].Concurrency != 16 || all[0].Instance == "" || all[0].Unknown || time.Since(all[0].Since) > time.Minute || all[0].Policy == nil {
		t.Errorf("Workers returned %+v, %v", all, err)
	}
	b, err := json.Marshal(all)
	if err != nil || strings.Contains(string(b), "0001-01-01") {
		t.Errorf("as JSON: %s, %v", b, err)
	}

	// Another worker that has no such gate is free to take it.
	second := errand.NewWorker(look, &errand.WorkerOptions{Queues: []string{"uploads"}})
	taken := make(chan struct{})
	errand.Handle(second, func(context.Context, *errand.Job[note]) error { close(taken); return nil })
	stopSecond := run(t, second)
	<-taken
	if err := stopSecond(); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if all, err := look.Workers(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the end Workers returned %+v, %v", all, err)
	}
}

// Jobs that run keep others back.
func TestQueue_Why_Busy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, &errand.Options{Queues: map[string]errand.QueueOptions{"slow": {Concurrency: 1}}})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "slow"}, Concurrency: 2})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { time.Sleep(time.Hour); return nil })
		stop := run(t, w)
		running := enqueue(t, q, note{}, &errand.JobOptions{Queue: "slow"})
		slow := enqueue(t, q, note{}, &errand.JobOptions{Queue: "slow"})
		r := untilWhy(t, q, slow, "concurrency behind").Reasons[0]
		if r.Queue != "slow" || r.N != 1 || !strings.HasPrefix(r.Text, "as many jobs of queue slow run as may at a time: 1, in worker ") {
			t.Errorf("%+v", r)
		}
		wantWhy(t, q, running, "running")
		enqueue(t, q, note{}, nil)
		last := enqueue(t, q, note{}, nil)
		if r := untilWhy(t, q, last, "concurrency behind").Reasons[0]; r.Queue != "" || r.N != 2 {
			t.Errorf("%+v", r)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		wantWhy(t, q, last, "ended")
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What an attempt before has failed of is not why a job is done.
func TestQueue_Why_Done(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet, Policy: &policy.Policy{Retries: 1, NoDelayRetries: 1}})
	w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
	ctx, stop := context.WithCancel(t.Context())
	failed := false
	errand.Handle(w, func(context.Context, *errand.Job[note]) error {
		if !failed {
			failed = true
			return errors.New("no such address")
		}
		stop()
		return nil
	})
	id := enqueue(t, q, note{}, nil)
	check(w.Run(ctx))
	if r := wantWhy(t, q, id, "ended").Reasons[0]; !strings.HasSuffix(r.Text, "Z; an attempt before failed: no such address") {
		t.Errorf("%+v", r)
	}
}

// The throttle that counts is named: that of the queue, if it disables those of kinds.
func TestQueue_Why_Throttle(t *testing.T) {
	for disables, queue := range map[bool]string{true: "default", false: ""} {
		synctest.Test(t, func(t *testing.T) {
			slow, fast := policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 1}}, policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: 1000}}
			of := map[bool]policy.Document{true: slow, false: fast}
			q := openQueue(t, &errand.Options{Logger: quiet, Queues: map[string]errand.QueueOptions{
				"default": {Policy: policy.Topic{Document: of[disables], DisableSubscriptionOverrides: disables}},
			}})
			w := errand.NewWorker(q, nil)
			errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil }, errand.HandlerOptions{Policy: of[!disables]})
			run(t, w)
			var last errand.ID
			for range 20 {
				last = enqueue(t, q, note{}, nil)
			}
			time.Sleep(10 * time.Second)
			if r := wantWhy(t, q, last, "throttle behind").Reasons[0]; r.Queue != queue || r.N != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A lane that was closed for long keeps jobs back as it opens gently.
func TestQueue_Why_Opening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, &errand.Options{Logger: quiet, Queues: map[string]errand.QueueOptions{"default": {OpenJitter: 10 * time.Hour}}})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error { <-ctx.Done(); return ctx.Err() })
		run(t, w)
		if err := q.Pause(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, note{}, nil)
		last := enqueue(t, q, note{}, nil)
		other := enqueue(t, q, value{}, nil)
		time.Sleep(2 * time.Minute)
		wantWhy(t, q, last, "held behind")
		if err := q.Resume(t.Context(), "default"); err != nil {
			t.Fatal(err)
		}
		r := untilWhy(t, q, last, "opening behind").Reasons[0]
		if r.Queue != "default" || r.Kind != "note" || r.Worker == "" || r.N != 0 || time.Until(r.Until) <= 0 || time.Until(r.Until) > 10*time.Hour ||
			!strings.Contains(r.Text, "kind note in queue default was closed for long, and its first job starts at ") {
			t.Errorf("%+v", r)
		}
		wantWhy(t, q, other, "no_worker behind")
		time.Sleep(10*time.Hour + time.Minute)
		if r := wantWhy(t, q, last, "opening behind").Reasons[0]; r.N != 1 || !r.Until.IsZero() ||
			!strings.Contains(r.Text, "kind note in queue default was closed for long and opens gently: 1 may run at a time for now, in worker ") {
			t.Errorf("%+v", r)
		}
	})
}

// An edit is no attempt: what the job waits for is said as before.
func TestQueue_Why_Edited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, &errand.Options{Logger: quiet})
		w := errand.NewWorker(q, nil)
		later := policy.Policy{Retries: 9, NoDelayRetries: 0, MinDelayRetries: 9, MinDelay: time.Hour, MaxDelay: time.Hour, Jitter: policy.NoJitter}
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			switch {
			case job.Attempt == 1:
				return errors.New("refused")
			case job.Args.Text == "snooze":
				return errand.Snooze(24*time.Hour, nil)
			}
			return errand.Unavailable(errors.New("no route"))
		}, errand.HandlerOptions{Policy: later})
		run(t, w)
		failed := enqueue(t, q, note{}, nil)
		synctest.Wait()
		edit := func(id errand.ID, text string) {
			t.Helper()
			if r, err := q.Change(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, errand.JobChange{Args: note{Text: text}}); err != nil || r.Changed != 1 {
				t.Fatal(r, err)
			}
		}
		edit(failed, "snooze")
		if r := wantWhy(t, q, failed, "retry").Reasons[0]; r.N != 1 || !strings.HasSuffix(r.Text, "; attempt 1 failed: refused") {
			t.Errorf("%+v", r)
		}
		away := enqueue(t, q, note{}, nil)
		time.Sleep(time.Hour + time.Second/2)
		synctest.Wait()
		edit(failed, "edited")
		edit(away, "edited")
		wantWhy(t, q, failed, "snoozed")
		wantWhy(t, q, away, "unavailable")
	})
}

// A job that is due stays scheduled while no worker has a runner for it.
func TestQueue_Why_Overdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQueue(t, &errand.Options{Clock: func() time.Time { return time.Now().AddDate(100, 0, 0) }, Logger: quiet})
		w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
		errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error { <-ctx.Done(); return ctx.Err() })
		run(t, w)
		enqueue(t, q, note{}, nil)
		synctest.Wait()
		enqueue(t, q, value{}, &errand.JobOptions{Delay: time.Hour})
		due := q.Clock().Now.Add(time.Hour)
		waits := enqueue(t, q, note{}, &errand.JobOptions{Delay: time.Hour})
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if s := lookUp(t, q, waits).State; s != errand.Scheduled {
			t.Fatalf("the job is %s", s)
		}
		if r := wantWhy(t, q, waits, "not_due concurrency").Reasons[1]; r.N != 1 {
			t.Errorf("%+v", r)
		}
		if h := q.Health(t.Context(), nil).Reasons; len(h) != 2 || h[0].Code != errand.HealthOverdue || h[0].Kind != "note" || !h[0].Since.Equal(due) || h[1].Kind != "value" {
			t.Errorf("Health returned %+v", h)
		}
		all, err := q.Stats(t.Context())
		if err != nil || len(all) != 2 || !all[0].OldestDue.Equal(due) || !all[1].OldestDue.Equal(due) {
			t.Errorf("Stats returned %+v, %v", all, err)
		}
		if h := q.Health(t.Context(), &errand.HealthOptions{MaxAge: 3 * time.Hour}); len(h.Reasons) != 0 {
			t.Errorf("Health returned %+v", h)
		}
	})
}

// Why says until when a job may begin, and what becomes of it then.
func TestQueue_Why_Expires(t *testing.T) {
	start := time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start
	q := openQueue(t, &errand.Options{Clock: func() time.Time { return now }})
	both := &errand.JobOptions{StartWithin: 10 * time.Minute, FinishWithin: time.Hour}
	first := enqueue(t, q, note{}, both)
	dies := enqueue(t, q, note{}, &errand.JobOptions{StartWithin: 10 * time.Minute, OnExpire: errand.Dead})
	late := enqueue(t, q, note{}, &errand.JobOptions{FinishWithin: 10 * time.Minute})
	enqueue(t, q, note{}, &errand.JobOptions{Group: "g"})
	blocked := enqueue(t, q, note{}, &errand.JobOptions{Group: "g", StartWithin: 10 * time.Minute})
	for i, at := range []time.Time{start, start.Add(20 * time.Minute)} {
		now = at
		for id, want := range map[errand.ID][3]string{
			first:   {"it ends as expired at 2030-03-01T12:10:00Z, unless an attempt begins before", "its time to start is over since 2030-03-01T12:10:00Z: it ends as expired when a worker looks", "expired"},
			dies:    {"it dies as expired at 2030-03-01T12:10:00Z, unless an attempt begins before", "its time to start is over since 2030-03-01T12:10:00Z: it dies as expired when a worker looks", "expired"},
			late:    {"it dies as too late at 2030-03-01T12:10:00Z, unless an attempt begins before", "its deadline is over since 2030-03-01T12:10:00Z: it dies as too late when a worker looks", "deadline"},
			blocked: {"it ends as expired at 2030-03-01T12:10:00Z, unless an attempt begins before", "its time to start is over since 2030-03-01T12:10:00Z: it ends as expired when a worker looks", "expired"},
		} {
			codes := "no_worker expires behind"
			if id == blocked {
				codes = "blocked expires"
			}
			w := wantWhy(t, q, id, codes)
			if r := w.Reasons[1]; r.Text != want[i] || r.Reason != want[2] || !r.Until.Equal(start.Add(10*time.Minute)) {
				t.Errorf("%+v, want %q", r, want[i])
			}
		}
	}
}

// On a store without the optional interfaces Why says what it knows.
func TestQueue_Why_BareStore(t *testing.T) {
	q, err := errand.New(t.Context(), storagetest.NewMemory().OpenBare(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if w := wantWhy(t, q, enqueue(t, q, note{}, nil), "behind"); w.State != errand.Ready {
		t.Errorf("%+v", w)
	}
	if _, err := q.Workers(t.Context()); !errors.Is(err, errand.ErrUnsupportedDB) {
		t.Errorf("Workers returned %v", err)
	}
}

// openAt opens a queue on a file, as another process might.
func openAt(t *testing.T, path string, o *errand.Options) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// full is a store on a full disk, as the engine tells it: what is done has lost its result.
type full struct{ storage.Store }

func (s full) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	for i := range x.Finish {
		if f := &x.Finish[i]; f.Outcome == storage.OutcomeDone {
			f.Error = "the disk was full"
		}
	}
	return s.Store.Exchange(ctx, now, x)
}

// What is noted in a job that is done is no failure of an attempt, also if one failed before.
func TestQueue_Why_DoneWithNote(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, err := errand.New(t.Context(), full{storagetest.NewMemory().Open()}, &errand.Options{Logger: quiet})
			check(err)
			defer q.Close()
			w := errand.NewWorker(q, &errand.WorkerOptions{Logger: quiet})
			ctx, stop := context.WithCancel(t.Context())
			errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
				if fails && job.Attempt == 1 {
					return errors.New("no such address")
				}
				stop()
				return nil
			})
			id := enqueue(t, q, note{}, nil)
			check(w.Run(ctx))
			if r := wantWhy(t, q, id, "ended").Reasons[0]; !strings.HasSuffix(r.Text, "Z; note: the disk was full") {
				t.Errorf("with a failure: %t: %+v", fails, r)
			}
		})
	}
}
