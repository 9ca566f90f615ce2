package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// slowly answers after a time, and counts how many requests it has at a time.
type slowly struct {
	takes         atomic.Int64
	now, most, up atomic.Int64 // requests under way, at most, ended
}

func (s *slowly) answer(r *http.Request) (int, error) {
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	defer s.up.Add(1)
	defer s.now.Add(-1)
	select {
	case <-time.After(time.Duration(s.takes.Load())):
		return http.StatusOK, nil
	case <-r.Context().Done():
		return 0, r.Context().Err()
	}
}

// An endpoint that does not answer gets few requests, then one at a time, which cost their
// messages retries. It keeps no other back, although the worker does one thing at a time.
// When it answers it gets all that waits.
func TestSlow_timesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("slow")
		r.endpoint("well")
		var slow slowly
		slow.takes.Store(int64(time.Hour))
		r.world.answer("slow.example", slow.answer)
		var jobs []errand.ID
		for i := range 100 {
			jobs = append(jobs, r.send(webhook.Message{ID: fmt.Sprint("m", i)}, "slow").Jobs[0].ID)
		}
		stop := r.work()
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if n := slow.most.Load(); n < 16 || n > 30 {
			t.Errorf("%d requests at a time, want 16 to 30", n)
		}
		for range 10 {
			r.send(webhook.Message{}, "well")
			time.Sleep(time.Minute)
		}
		if n := len(r.world.to("well.example")); n != 10 {
			t.Errorf("the other has %d messages, want 10", n)
		}
		began := slow.up.Load() + slow.now.Load()
		slow.most.Store(0)
		time.Sleep(10 * time.Minute)
		if n, most := slow.up.Load()+slow.now.Load()-began, slow.most.Load(); n < 4 || n > 20 || most != 1 {
			t.Errorf("%d more requests in 10 minutes, at most %d at a time: want 4 to 20, one at a time", n, most)
		}
		if e := r.get("slow"); e.State != webhook.Held || e.Reason != "unavailable" {
			t.Errorf("the endpoint is %s, %s", e.State, e.Reason)
		}
		retries, waits := int64(0), 0
		for _, id := range jobs {
			j := r.job(id)
			retries += int64(j.Retry)
			if strings.Contains(j.Error, "endpoint does not answer") {
				waits++
			}
		}
		if retries == 0 || retries > slow.up.Load() || waits == 0 {
			t.Errorf("%d retries used up by %d requests; %d jobs say why they wait", retries, slow.up.Load(), waits)
		}
		slow.takes.Store(0)
		time.Sleep(10 * time.Minute)
		stop()
		for _, id := range jobs {
			if j := r.job(id); j.State != errand.Done {
				t.Errorf("a job is %s: %s", j.State, j.Error)
			}
		}
	})
}

// An endpoint that takes long to answer gets some requests at a time, and each message once.
func TestSlow_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("slow")
		var slow slowly
		slow.takes.Store(int64(3 * time.Second))
		r.world.answer("slow.example", slow.answer)
		for range 200 {
			r.send(webhook.Message{}, "slow")
		}
		stop := r.work()
		time.Sleep(3 * time.Minute)
		stop()
		if n, most := slow.up.Load(), slow.most.Load(); n != 200 || most < 16 || most > 30 {
			t.Errorf("%d requests, at most %d at a time: want 200, 16 to 30", n, most)
		}
	})
}

// Nor does an endpoint with few messages get them all again at a time, whose attempts ran
// out of time.
func TestSlow_few(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("slow")
		var slow slowly
		slow.takes.Store(int64(time.Hour))
		r.world.answer("slow.example", slow.answer)
		for range 6 {
			r.send(webhook.Message{}, "slow")
		}
		stop := r.work()
		time.Sleep(14 * time.Second)
		if n := slow.most.Load(); n != 6 {
			t.Errorf("%d requests at a time, want 6", n)
		}
		time.Sleep(2 * time.Second) // they have ended
		slow.most.Store(0)
		time.Sleep(time.Minute)
		if n := slow.most.Load(); n != 1 {
			t.Errorf("%d requests at a time, want 1", n)
		}
		slow.takes.Store(0)
		time.Sleep(time.Minute)
		stop()
		if n := len(r.world.to("slow.example")); n > 16 {
			t.Errorf("%d requests, want at most 16", n)
		}
	})
}

// A request in which the code of the application panics has ended too.
func TestSlow_panics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("well")
		r.world.answer("well.example", func(*http.Request) (int, error) { panic("of the Transport") })
		for range 16 {
			r.send(webhook.Message{}, "well")
		}
		stop := r.work()
		time.Sleep(time.Minute)
		r.world.answer("well.example", nil)
		id := r.send(webhook.Message{}, "well").Jobs[0].ID
		time.Sleep(10 * time.Minute)
		stop()
		if j := r.job(id); j.State != errand.Done {
			t.Errorf("a job is %s: %s", j.State, j.Error)
		}
	})
}
