package apitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

func subscribe(t *testing.T, q *errand.Queue, f errand.EventFilter, buffer int) *errand.Subscription {
	t.Helper()
	s, err := q.Subscribe(t.Context(), f, buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// told returns what waits in a subscription.
func told(s *errand.Subscription) (all []errand.Event) {
	synctest.Wait()
	for {
		select {
		case e, ok := <-s.Events():
			if !ok {
				return all
			}
			all = append(all, e)
		default:
			return all
		}
	}
}

func types(all []errand.Event) (names []string) {
	for _, e := range all {
		names = append(names, string(e.Type))
	}
	return names
}

// Each event is told once, with what is known of the job then.
func TestQueue_Subscribe(t *testing.T) {
	no := errors.New("no")
	twice := policy.Policy{MinDelay: 10 * time.Second, MaxDelay: 10 * time.Second, Retries: 2, Jitter: policy.NoJitter}
	for _, c := range []struct {
		name string
		errs []error // of the attempts; then nil
		want []string
		last errand.Event
	}{
		{"done", nil, []string{"enqueued", "started", "done"}, errand.Event{Attempt: 1}},
		{"retried", []error{no}, []string{"enqueued", "started", "retried", "started", "done"}, errand.Event{Attempt: 2, Retry: 1}},
		{"exhausted", []error{no, no, no}, []string{"enqueued", "started", "retried", "started", "retried", "started", "dead"},
			errand.Event{Attempt: 3, Retry: 2, Reason: "exhausted", Error: "no"}},
		{"permanent", []error{errand.Permanent(no)}, []string{"enqueued", "started", "dead"}, errand.Event{Attempt: 1, Reason: "permanent", Error: "no"}},
		{"snoozed", []error{errand.Snooze(time.Second, no)}, []string{"enqueued", "started", "snoozed", "started", "done"}, errand.Event{Attempt: 2}},
		{"cancelled", []error{errand.Cancel(no)}, []string{"enqueued", "started", "cancelled"}, errand.Event{Attempt: 1, Error: "no"}},
		{"unavailable", []error{errand.Unavailable(no)}, []string{"enqueued", "started", "unavailable", "started", "done"}, errand.Event{Attempt: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, errand.Options{Policy: &twice})
				all, other := subscribe(t, q, errand.EventFilter{}, 100), subscribe(t, q, errand.EventFilter{Kind: "other"}, 1)
				w := errand.NewWorker(q, nil)
				errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
					if job.Attempt <= len(c.errs) {
						return c.errs[job.Attempt-1]
					}
					return nil
				})
				run(t, w)
				began := time.Now()
				id := enqueue(t, q, note{}, nil)
				time.Sleep(time.Minute)
				got := told(all)
				at := slices.IndexFunc(got, func(e errand.Event) bool { return e.Type == errand.EventEnqueued })
				if e := got[max(at, 0)]; at > 0 { // it may come later
					got = slices.Insert(slices.Delete(got, at, at+1), 0, e)
				}
				if !slices.Equal(types(got), c.want) {
					t.Fatalf("got %q, want %q", types(got), c.want)
				}
				for i, e := range got {
					if e.ID != id || e.Queue != "default" || e.Kind != "note" || e.At.Before(began) || i > 1 && e.At.Before(got[i-1].At) {
						t.Errorf("%s: %+v", e.Type, e)
					}
				}
				last := got[len(got)-1]
				if last.Attempt != c.last.Attempt || last.Retry != c.last.Retry || last.Reason != c.last.Reason || last.Error != c.last.Error {
					t.Errorf("the last is %+v, want as %+v", last, c.last)
				}
				if i := slices.Index(c.want, "retried"); i >= 0 {
					if e := got[i]; e.Error != "no" || e.Retry != 1 || e.Due.Sub(e.At) != 10*time.Second || e.Attempt != 1 {
						t.Errorf("retried: %+v", e)
					}
				}
				if n := told(other); len(n) > 0 || other.Missed() > 0 {
					t.Errorf("a subscription of another kind got %+v", n)
				}
			})
		})
	}
}

// A job is warned of when it has used 50, 70 and 90 % of its retries.
func TestQueue_Subscribe_RetriesUsed(t *testing.T) {
	for retries, want := range map[int]map[int]int{
		1: {}, 3: {}, 4: {2: 50, 3: 70, 4: 90}, 5: {3: 50, 4: 70, 5: 90}, 10: {5: 50, 7: 70, 9: 90}, 27: {14: 50, 19: 70, 25: 90},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, _ := memoryQueue(t, errand.Options{})
			s := subscribe(t, q, errand.EventFilter{Types: []errand.EventType{errand.EventRetriesUsed}}, 100)
			w := errand.NewWorker(q, nil)
			p := policy.Policy{MinDelay: time.Second, MaxDelay: time.Second, Retries: retries}
			errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
				if job.Attempt%2 == 0 {
					return errand.Snooze(time.Second, nil)
				}
				return errors.New("no")
			}, errand.HandlerOptions{Policy: &p})
			run(t, w)
			enqueue(t, q, note{}, nil)
			time.Sleep(time.Hour)
			got := map[int]int{}
			for _, e := range told(s) {
				got[e.Retry] = e.Used
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%d retries: %v, want %v", retries, got, want)
			}
		})
	}
}

func TestQueue_Subscribe_Lanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		all := subscribe(t, q, errand.EventFilter{Types: []errand.EventType{errand.EventHeld, errand.EventReleased}}, 100)
		ofQueue := subscribe(t, q, errand.EventFilter{Queue: "default", Types: []errand.EventType{errand.EventHeld}}, 100)
		w := errand.NewWorker(q, nil)
		var attempts atomic.Int64
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			if attempts.Add(1) > 8 {
				return nil
			}
			return errand.Unavailable(errors.New("away"))
		})
		run(t, w)
		if err := errors.Join(q.Pause(t.Context(), "default"), q.Hold(t.Context(), errand.Lane{Kind: "note"}, &errand.HoldOptions{For: time.Hour}),
			q.Hold(t.Context(), errand.Lane{Queue: "else"}, nil), q.Resume(t.Context(), "default"), q.Resume(t.Context(), "default")); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Release(t.Context(), errand.Lane{Kind: "note"}, ""); err != nil {
			t.Fatal(err)
		}
		got := told(all)
		if want := []string{"held", "held", "held", "released", "released"}; !slices.Equal(types(got), want) {
			t.Fatalf("got %q, want %q", types(got), want)
		}
		if e := got[1]; e.Kind != "note" || e.Queue != "" || e.Reason != "held" || e.Due.Sub(e.At) != time.Hour {
			t.Errorf("%+v", e)
		}
		if n := len(told(ofQueue)); n != 2 {
			t.Errorf("%d events of queue default, want that of the pause and that of the kind", n)
		}
		for range 6 { // the other side is away: the engine holds the lane, and renews the hold
			enqueue(t, q, note{}, nil)
		}
		time.Sleep(time.Hour)
		got = told(all)
		if want := []string{"held", "released"}; !slices.Equal(types(got), want) || got[0].Reason != storage.HoldUnavailable {
			t.Errorf("got %q, want %q: %+v", types(got), want, got)
		}
	})
}

// What a slow subscriber misses is counted, and holds up nobody.
func TestSubscription_Missed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		slow, quick := subscribe(t, q, errand.EventFilter{}, 3), subscribe(t, q, errand.EventFilter{}, 1000)
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
		run(t, w)
		for range 20 {
			enqueue(t, q, note{}, nil)
		}
		synctest.Wait()
		if n := slow.Missed(); n != 57 || quick.Missed() != 0 || len(told(quick)) != 60 || len(told(slow)) != 3 {
			t.Errorf("%d events were missed, want 57", n)
		}
	})
}

// A subscription ends in three ways, and its channel is closed then.
func TestSubscription_Ends(t *testing.T) {
	for name, end := range map[string]func(q *errand.Queue, s *errand.Subscription, cancel func()){
		"close":   func(_ *errand.Queue, s *errand.Subscription, _ func()) { s.Close(); s.Close() },
		"context": func(_ *errand.Queue, _ *errand.Subscription, cancel func()) { cancel() },
		"queue":   func(q *errand.Queue, _ *errand.Subscription, _ func()) { _ = q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _ := memoryQueue(t, errand.Options{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s, err := q.Subscribe(ctx, errand.EventFilter{}, 5)
				if err != nil {
					t.Fatal(err)
				}
				enqueue(t, q, note{}, nil)
				end(q, s, cancel)
				synctest.Wait()
				if name != "queue" {
					enqueue(t, q, note{}, nil)
				} else if _, err := q.Subscribe(t.Context(), errand.EventFilter{}, 5); !errors.Is(err, errand.ErrClosed) {
					t.Errorf("Subscribe after Close gave %v", err)
				}
				n := 0
				for range s.Events() { // ends
					n++
				}
				if n != 1 {
					t.Errorf("%d events, want the one before the end", n)
				}
			})
		})
	}
}

// A job that is cancelled before it runs is told of once, and one of EnqueueMany or of
// a schedule as any other.
func TestQueue_Subscribe_OtherWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		s := subscribe(t, q, errand.EventFilter{}, 100)
		u := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}, Delay: time.Hour}
		added, err := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: note{}, Options: u}, {Args: note{}, Options: u}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := q.Cancel(t.Context(), added[0].ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		got := told(s)
		if want := []string{"enqueued", "cancelled"}; !slices.Equal(types(got), want) || got[0].Due.Sub(got[0].At) != time.Hour || got[1].ID != added[0].ID {
			t.Errorf("got %+v, want %q", got, want)
		}
		short, _ := memoryQueue(t, errand.Options{Retention: -1})
		of := subscribe(t, short, errand.EventFilter{}, 100)
		gone := enqueue(t, short, note{}, nil)
		if state, err := short.Cancel(t.Context(), gone); err != nil || state != errand.Cancelled {
			t.Fatal(state, err)
		}
		if got := told(of); !slices.Equal(types(got), []string{"enqueued", "cancelled"}) || got[1].ID != gone || got[1].Kind != "note" {
			t.Errorf("of a job that is not kept: %+v", got)
		}
		group := &errand.JobOptions{Group: "g"}
		enqueue(t, short, note{}, group)
		blocked := enqueue(t, short, note{}, group)
		if state, err := short.Cancel(t.Context(), blocked); err != nil || state != errand.Cancelled {
			t.Fatal(state, err)
		}
		if got := told(of); !slices.Equal(types(got), []string{"enqueued", "enqueued", "cancelled"}) || got[2].ID != blocked {
			t.Errorf("of a job that is blocked: %+v", got)
		}
		if err := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@every 1m", Args: value{}}); err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, nil)
		errand.Handle(w, func(context.Context, *errand.Job[value]) error { return nil })
		run(t, w)
		time.Sleep(time.Minute)
		got = told(s)
		slices.SortFunc(got, func(a, b errand.Event) int { return len(b.Type) - len(a.Type) })
		if want := []string{"enqueued", "started", "done"}; !slices.Equal(types(got), want) || got[0].ID != got[2].ID || got[0].Kind != "value" {
			t.Errorf("a tick gave %+v, want %q", got, want)
		}
	})
}

func TestQueue_Subscribe_IsChecked(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	for _, n := range []int{0, -1, 100_001} {
		_, err := q.Subscribe(t.Context(), errand.EventFilter{}, n)
		wantFaults(t, err, fault{"buffer", fmt.Sprint(n), "must be between 1 and 100000"})
	}
	_, err := q.Subscribe(t.Context(), errand.EventFilter{Types: []errand.EventType{"done", "gone"}, Queue: "a b", Kind: "c d"}, 1)
	wantFaults(t, err, fault{"types[1]", `"gone"`, "must be one of the types of events"},
		fault{"queue", `"a b"`, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"}, fault{"kind", `"c d"`, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"})
}
