package topic_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/topic"
)

// A subscription that is paused gets messages, whose deliveries wait for its end, in the order of
// their group and for however long, and use up no retry. Another subscription to the same
// endpoint goes on.
func TestTopics_Pause(t *testing.T) {
	path := t.TempDir() + "/jobs.db"
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2050, 1, 1, 0, 0, 0, 0, time.UTC))) // for clocks to be plausible
		r := rigAt(t, path, nil)
		for _, name := range []string{"orders", "others"} {
			r.create(topic.Topic{Name: name, Ordered: true})
		}
		r.endpoint("shop")
		s := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop", Raw: true})
		r.subscribe(topic.Subscription{Topic: "others", Endpoint: "shop", Raw: true})
		got := func(want string) {
			t.Helper()
			var bodies []string
			for _, one := range r.net.all() {
				bodies = append(bodies, one.body)
			}
			if all := strings.Join(bodies, " "); all != want {
				t.Errorf("sent %q, want %q", all, want)
			}
		}
		stop := r.start(nil, "webhook/shop")
		for range 2 { // the second one does nothing
			if err := r.topics.Pause(t.Context(), s.ID); err != nil {
				t.Fatal(err)
			}
		}
		var jobs []errand.ID
		for i := range 3 {
			jobs = append(jobs, r.publish("orders", topic.Message{Group: "g", Body: fmt.Append(nil, i)}).Jobs[0].ID)
		}
		r.publish("others", topic.Message{Group: "g", Body: []byte("9")})
		time.Sleep(30 * 24 * time.Hour)
		got("9")
		s.Revision, s.Filter = 0, []byte(`{"a": ["b"]}`) // for what comes later
		if s, err := r.topics.UpdateSubscription(t.Context(), s); err != nil || s.State != topic.Paused {
			t.Errorf("updated: %+v, %v", s, err)
		}
		if j, err := r.q.Job(t.Context(), jobs[0]); err != nil || j.Retry != 0 || j.Snoozes < 100 || j.Snoozes > 200 {
			t.Errorf("after 30 days: %+v, %v", j, err)
		}
		for _, want := range []bool{true, false} {
			if was, err := r.topics.Resume(t.Context(), s.ID); was != want || err != nil {
				t.Errorf("resumed: %t, %v", was, err)
			}
			time.Sleep(time.Second)
		}
		got("9 0 1 2")
		if s, err := r.topics.Subscription(t.Context(), s.ID); err != nil || s.State != topic.Confirmed {
			t.Errorf("%+v, %v", s, err)
		}
		stop()
		if err := r.q.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestTopics_Pause_refused(t *testing.T) {
	r := newRig(t, &topic.Options{ConfirmURL: confirmURL})
	r.create(topic.Topic{Name: "orders"})
	r.endpoint("shop")
	pending := r.subscribe(topic.Subscription{Topic: "orders", Endpoint: "shop", SNS: true})
	kind := r.subscribe(topic.Subscription{Topic: "orders", Kind: "book"})
	for id, limit := range map[string]string{pending.ID: "must be confirmed", kind.ID: "must be to an endpoint"} {
		_, err := r.topics.Resume(t.Context(), id)
		for _, err := range []error{err, r.topics.Pause(t.Context(), id)} {
			if f, ok := errors.AsType[*errand.FieldError](err); !ok || !strings.Contains(f.Limit, limit) {
				t.Errorf("%v, want that it %s", err, limit)
			}
		}
	}
	if err := r.topics.Pause(t.Context(), "gone"); !errors.Is(err, errand.ErrNotFound) {
		t.Error(err)
	}
}
