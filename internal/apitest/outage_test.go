package apitest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy/policyhttp"
)

// refusing is a server that refuses everything with the same answer at times.
type refusing struct {
	answer            http.Response
	refuses           atomic.Bool
	attempts, strayed atomic.Int64
}

func (s *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	answer := http.Response{StatusCode: http.StatusNoContent}
	switch {
	case r.URL.Host != "api.example":
		s.strayed.Add(1)
		answer.StatusCode = http.StatusOK
	case s.refuses.Load():
		answer = s.answer
	}
	answer.Body, answer.Request = http.NoBody, r
	return &answer, nil
}

// An expired token and a captive portal, which refuse each of 10,000 jobs, are met by
// a few of them and end none.
//
//errand:shows a token that has expired, a captive portal | | 10,000 jobs cost at most 60 attempts in 8 s, none of them dies, and no request goes where the portal wants it
func TestOutage_RefusesEverything(t *testing.T) {
	const jobs, mostIn8s = 10_000, 60
	for name, answer := range map[string]http.Response{
		"token":  {StatusCode: http.StatusUnauthorized},
		"portal": {StatusCode: http.StatusFound, Header: http.Header{"Location": {"https://portal.example/login"}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubbled(t, onDisk(t), func(t *testing.T, a *agenda) {
				server := &refusing{answer: answer}
				server.refuses.Store(true)
				client := policyhttp.NewClient()
				client.Transport = server
				var asked atomic.Int64
				w := errand.NewWorker(a.Queue, nil)
				errand.Handle(w, func(ctx context.Context, _ *errand.Job[note]) error {
					server.attempts.Add(1)
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example/", http.NoBody)
					if err != nil {
						return err
					}
					resp, err := client.Do(req)
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					return policyhttp.Error(resp)
				}, errand.HandlerOptions{OnUnauthorized: func(context.Context) error {
					asked.Add(1)
					return nil // though the new token is no better
				}})
				all := make([]errand.NewJob, jobs)
				for i := range all {
					all[i].Args = note{N: i}
				}
				must(a.EnqueueMany(t.Context(), all))
				stop := run(t, w)
				defer func() {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}()
				time.Sleep(8 * time.Second)
				if n := server.attempts.Load(); n > mostIn8s {
					t.Errorf("%d attempts in the first 8 s, want at most %d", n, mostIn8s)
				}
				time.Sleep(time.Hour)
				for _, c := range must(a.Counts(t.Context())) {
					if c.State == errand.Dead || c.State == errand.Done {
						t.Errorf("while all are refused %d are %s", c.N, c.State)
					}
				}
				if n := asked.Load(); (n > 0) != (name == "token") {
					t.Errorf("a new token was asked for %d times", n)
				}
				server.refuses.Store(false)
				// The next attempt comes after 5.5 minutes at the latest.
				time.Sleep(330*time.Second + time.Minute + jobs/16*20*time.Millisecond)
				synctest.Wait()
				if left := must(a.Counts(t.Context())); len(left) > 0 {
					t.Errorf("after the end of the refusals there are %v, want none: all done", left)
				}
				if n := server.strayed.Load(); n > 0 {
					t.Errorf("%d requests went where the portal wanted them", n)
				}
			})
		})
	}
}

// The other side is back at once, but the probe of the hold hangs, as one does whose
// packets were lost. All jobs behind it are done within a minute.
//
//errand:shows a probe that hangs | | 99 jobs behind it are done within a minute, and `q.Why` names it and since when it runs
func TestOutage_ProbeHangs(t *testing.T) {
	bubbled(t, onDisk(t), func(t *testing.T, a *agenda) {
		const away = 500 * time.Millisecond // less than the first probe is put off
		start := time.Now()
		var probed atomic.Bool
		hangs, end := make(chan errand.ID, 1), make(chan struct{})
		w := errand.NewWorker(a.Queue, nil)
		errand.Handle(w, func(_ context.Context, job *errand.Job[note]) error {
			switch {
			case time.Since(start) < away:
				return errand.Unavailable(errors.New("no answer"))
			case probed.CompareAndSwap(false, true):
				hangs <- job.ID
				<-end
			}
			return nil
		})
		all := make([]errand.NewJob, 100)
		for i := range all {
			all[i].Args = note{N: i}
		}
		added := must(a.EnqueueMany(t.Context(), all))
		stop := run(t, w)
		probe := <-hangs
		began := a.wall.now()
		last := added[len(added)-1].ID
		if last == probe {
			last = added[0].ID
		}
		time.Sleep(time.Second)
		why := must(a.Why(t.Context(), last))
		told := probe.String() + ", which it has let through, runs since " + began.UTC().Format(time.RFC3339)
		if r := why.Reasons; len(r) == 0 || r[0].Job != probe || began.Sub(r[0].JobSince).Abs() > time.Second || !strings.Contains(why.String(), told) {
			t.Errorf("Why says %+v, want that it is held, and %q", why, told)
		}
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if left := must(a.Counts(t.Context())); len(left) != 1 || left[0].State != errand.Running || left[0].N != 1 {
			t.Errorf("a minute after the probe began there are %v, want it alone", left)
		}
		if held := must(a.Holds(t.Context())); len(held) > 0 {
			t.Errorf("held: %+v", held)
		}
		time.Sleep(3 * time.Hour)
		close(end)
		time.Sleep(time.Second)
		if left := must(a.Counts(t.Context())); len(left) > 0 {
			t.Errorf("after the end of the probe there are %v, want none: all done", left)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
