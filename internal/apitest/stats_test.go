package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// Stats says what there is of each kind, what happened last, and how fast it goes here.
func TestQueue_Stats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			if job.Args.N < 3 {
				return errand.Permanent(errors.New("no"))
			}
			return nil
		})
		run(t, w)
		if _, err := q.Stats(t.Context()); err != nil { // the store in memory keeps a history from now on
			t.Fatal(err)
		}
		began := time.Now()
		var last errand.ID
		for i := range 3 {
			last = enqueue(t, q, note{N: i}, nil)
			synctest.Wait()
		}
		for range 120 { // one each five seconds, for ten minutes
			enqueue(t, q, note{N: 3}, nil)
			time.Sleep(5 * time.Second)
		}
		enqueue(t, q, value{1}, nil)
		if err := q.Hold(t.Context(), errand.Lane{Kind: "value"}, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all, err := q.Stats(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("Stats gave %+v, %v", all, err)
		}
		s := all[0]
		if s.Queue != "default" || s.Kind != "note" || s.Done != 120 || s.Dead != 3 || s.Bytes != 0 || len(s.Holds) != 0 ||
			time.Since(s.LastSuccess) > 6*time.Second || !s.OldestDue.IsZero() ||
			s.LastFailure.Job != last || s.LastFailure.Error != "no" || s.LastFailure.At.Sub(began).Abs() > time.Second {
			t.Errorf("of what was worked on: %+v", s)
		}
		if r := s.Rate; r == nil || r.Failed != 0 || r.Dead != 0 || r.Done < 11 || r.Done > 13 || r.Enqueued < 11 || r.Enqueued > 13 || time.Since(r.Since) < 5*time.Minute || time.Since(r.Since) > 10*time.Minute {
			t.Errorf("the rate is %+v, want 12 done a minute", r)
		}
		v := all[1]
		if v.Kind != "value" || v.Ready != 1 || v.Bytes == 0 || v.OldestDue.IsZero() || len(v.Holds) != 1 || v.Holds[0].Reason != "held" ||
			!v.LastSuccess.IsZero() || v.LastFailure != (errand.LastFailure{}) || v.Rate == nil || v.Rate.Enqueued == 0 || v.Rate.Done != 0 {
			t.Errorf("of what is held: %+v", v)
		}
		time.Sleep(10 * time.Minute)
		if all, err = q.Stats(t.Context()); err != nil || all[0].Rate == nil || *all[0].Rate != (errand.Rate{Since: all[0].Rate.Since}) {
			t.Errorf("after ten minutes without a job: %+v, %v", all[0], err)
		}
	})
}

// What is in force is served as JSON beside the other numbers of a lane.
func TestHoldState_JSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b, err := json.Marshal([]errand.HoldState{
		{Lane: errand.Lane{Kind: "note"}, Reason: "held", Since: at, Waiting: 2, Ready: 1},
		{Lane: errand.Lane{Queue: "a", Kind: "note"}, Reason: "unavailable", By: "errand", Detail: "away", Since: at, Until: at, Probe: true},
	})
	if want := `[{"kind":"note","reason":"held","since":"2026-03-01T12:00:00Z","waiting":2,"ready":1},` +
		`{"queue":"a","kind":"note","reason":"unavailable","by":"errand","detail":"away",` +
		`"since":"2026-03-01T12:00:00Z","until":"2026-03-01T12:00:00Z","probe":true,"waiting":0,"ready":0}]`; err != nil || string(b) != want {
		t.Errorf("holds are %s, %v", b, err)
	}
}
