package apitest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

// The workers of a process share the throttle, of which each queue has its own. Why and
// Workers say who waits for it.
func TestGroupThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "jobs.db")
		slow := errand.QueueOptions{GroupThrottle: errand.GroupThrottle{Starts: 2, Per: time.Hour}}
		open := func(o errand.Options) *errand.Queue {
			o.Logger = quiet
			q := must(errand.Open(t.Context(), path, &o))
			t.Cleanup(func() { check(q.Close()) })
			return q
		}
		q := open(errand.Options{Queues: map[string]errand.QueueOptions{"a": slow, "b": slow}})
		elsewhere := open(errand.Options{})
		for range 2 {
			w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"a", "b", "free"}})
			errand.Handle(w, func(context.Context, *errand.Job[note]) error { return nil })
			run(t, w)
		}
		ids := map[string][]errand.ID{}
		for range 2 {
			for _, queue := range []string{"a", "b", "free"} {
				ids[queue] = append(ids[queue], enqueue(t, q, note{}, &errand.JobOptions{Queue: queue, Group: "g"}))
			}
		}
		later := enqueue(t, q, note{}, &errand.JobOptions{Queue: "a", Group: "other", Delay: time.Hour})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for queue, all := range ids {
			want := map[bool]errand.State{true: errand.Done, false: errand.Scheduled}[queue == "free"]
			if first, second := lookUp(t, q, all[0]).State, lookUp(t, q, all[1]).State; first != errand.Done || second != want {
				t.Errorf("jobs of queue %s are %s and %s, want done and %s", queue, first, second, want)
			}
		}

		waits := ids["a"][1]
		r := wantWhy(t, q, waits, "throttle").Reasons[0]
		if r.Queue != "a" || !r.Until.Equal(lookUp(t, q, waits).DueAt) || !strings.HasPrefix(r.Text, `queue a lets 2 of a group start in 1h0m0s, and more of group "g" wait: it is due at `) {
			t.Errorf("%+v", r)
		}
		const may = "it was enqueued for later, or put off by the throttle of its group: it is due at "
		if r := wantWhy(t, elsewhere, waits, "not_due").Reasons[0]; !strings.HasPrefix(r.Text, may) {
			t.Errorf("in another process: %+v", r)
		}
		if r := wantWhy(t, q, later, "not_due").Reasons[0]; !strings.HasPrefix(r.Text, may) {
			t.Errorf("of another group: %+v", r)
		}
		for _, n := range must(elsewhere.Workers(t.Context()))[0].Limits {
			if !n.GroupThrottled {
				t.Errorf("worker shows %+v", n)
			}
		}
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if s := lookUp(t, q, waits).State; s != errand.Done {
			t.Errorf("job is %s when its turn has come", s)
		}
	})
}

func TestGroupThrottle_IsChecked(t *testing.T) {
	const place = `queues["mail"].group_throttle.`
	for _, c := range []struct {
		o    errand.GroupThrottle
		want []fault
	}{
		{errand.GroupThrottle{Starts: -1, Per: -1, Burst: -1}, []fault{
			{place + "starts", "-1", "must be between 0 and 1000000"}, {place + "burst", "-1", "must be between 0 and 10000"}, {place + "per", "-1ns", "must not be negative"},
		}},
		{errand.GroupThrottle{Starts: 1_000_001, Burst: 10_001}, []fault{
			{place + "starts", "1000001", "must be between 0 and 1000000"}, {place + "burst", "10001", "must be between 0 and 10000"},
		}},
		{errand.GroupThrottle{Per: time.Second, Burst: 1}, []fault{
			{place + "per", "1s", "must be zero without starts"}, {place + "burst", "1", "must be zero without starts"},
		}},
		{errand.GroupThrottle{Starts: 2, Per: 2*time.Hour + 2}, []fault{{place + "per", "2h0m0.000000002s", "must be between 1µs and 1h0m0s for each of starts"}}},
		{errand.GroupThrottle{Starts: 1001, Per: time.Millisecond}, []fault{{place + "per", "1ms", "must be between 1µs and 1h0m0s for each of starts"}}},
		{errand.GroupThrottle{Starts: 2, Per: 2 * time.Hour, Burst: 10_000}, nil},
		{errand.GroupThrottle{Starts: 1_000_000}, nil},
	} {
		_, err := errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"mail": {GroupThrottle: c.o}}})
		wantFaults(t, err, append([]fault{{"store", "nil", "must not be nil"}}, c.want...)...)
	}
}
