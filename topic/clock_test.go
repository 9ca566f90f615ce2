package topic_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
)

// A board without a clock battery is in the year 2000 of a bubble, and its file knows better.
// What is kept for a time is kept for it, and receivers are told what the wall clock shows.
func TestTopics_ClockBehindTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		before := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
		r := rigWith(t, path, nil, errand.Options{Clock: func() time.Time { return before }})
		r.create(topic.Topic{Name: "orders", Keep: 72 * time.Hour})
		if err := r.q.Close(); err != nil {
			t.Fatal(err)
		}
		r = rigAt(t, path, nil)
		s := r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
		for range 5 {
			p := r.publish("orders", data)
			info, err := r.q.Job(t.Context(), p.Jobs[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			if at := member(t, string(info.Args), "timestamp"); !strings.HasPrefix(at, "2000-01-01T") || info.CreatedAt.Year() != 2026 {
				t.Errorf("the envelope is of %s, its job of %v", at, info.CreatedAt)
			}
			if _, err := r.q.Cancel(t.Context(), p.Jobs[0].ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(71 * time.Hour)
		if n, err := r.topics.Replay(t.Context(), s.ID, time.Time{}); n != 5 || err != nil {
			t.Errorf("%d messages again, %v; want 5", n, err)
		}
		for _, j := range r.jobs(errand.JobFilter{Kind: "book", States: []errand.State{errand.Ready}}) {
			info, err := r.q.Job(t.Context(), j.ID)
			if err != nil {
				t.Fatal(err)
			}
			if at := member(t, string(info.Args), "timestamp"); !strings.HasPrefix(at, "2000-01-01T") {
				t.Errorf("the envelope is of %s when it comes again", at)
			}
		}
	})
}

// Receivers of endpoints are told the wall clock, though the queue's is another: in the envelope
// of a message, in that of a confirmation, and with the signature.
func TestTopics_ReceiversGetTheWallClock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC))) // for clocks to be plausible
		r := rigWith(t, path, &topic.Options{ConfirmURL: confirmURL}, errand.Options{Clock: func() time.Time { return time.Now().AddDate(1, 0, 0) }})
		r.create(topic.Topic{Name: "orders"})
		for _, id := range []string{"plain", "sns"} {
			r.endpoint(id)
		}
		r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "plain"})
		r.confirmed(topic.Subscription{Topic: "orders", Endpoint: "sns"})
		r.publish("orders", data)
		wait := r.events("topic", errand.EventDone)
		stop := r.start(nil, "webhook/*")
		wait(2)
		stop()
		for _, s := range r.net.all() {
			at := member(t, s.body, "timestamp") + member(t, s.body, "Timestamp")
			if !strings.HasPrefix(at, "2050-01-01T") {
				t.Errorf("%s was told %s", s.host, at)
			}
		}
	})
}

// A token is good for two days, whatever the clock shows meanwhile, and for no more.
func TestTopics_Confirm_whileTheClockIsWrong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC)))
		var off atomic.Int64
		off.Store(int64(70 * 365 * 24 * time.Hour))
		r := rigWith(t, path, &topic.Options{ConfirmURL: confirmURL}, errand.Options{
			Clock: func() time.Time { return time.Now().Add(time.Duration(off.Load())) },
		})
		r.create(topic.Topic{Name: "orders"})
		var tokens []string
		for _, id := range []string{"early", "late"} {
			r.endpoint(id)
			r.subscribe(topic.Subscription{Topic: "orders", Endpoint: id, SNS: true})
			wait := r.events("topic.confirm", errand.EventDone)
			stop := r.start(nil, "webhook/"+id)
			wait(1)
			stop()
			all := r.net.all()
			tokens = append(tokens, member(t, all[len(all)-1].body, "Token"))
		}
		off.Store(0)
		stop := r.start(nil, "webhook/*") // it notices
		time.Sleep(time.Hour)
		stop()
		if s, err := r.topics.Confirm(t.Context(), tokens[0]); err != nil || s.State != topic.Confirmed {
			t.Errorf("an hour later: %+v, %v", s, err)
		}
		time.Sleep(48 * time.Hour)
		if s, err := r.topics.Confirm(t.Context(), tokens[1]); !errors.Is(err, errand.ErrInvalid) {
			t.Errorf("two days later: %+v, %v", s, err)
		}
	})
}
