package topic_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
)

// slowly is a store that takes a while for each job of a message.
type slowly struct {
	*sqlite.Store
	each  atomic.Int64 // nanoseconds
	steps []int        // jobs of the publications of messages that are there
}

func (s *slowly) PublishMessages(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
	if n := len(all[0].Jobs); all[0].Existing {
		s.steps = append(s.steps, n)
		time.Sleep(time.Duration(int64(n) * s.each.Load()))
		if len(s.steps) > 20 {
			s.each.Store(0)
		}
	}
	return s.Store.PublishMessages(ctx, now, all)
}

// Where transactions take long, the steps of a publication become smaller, so that others wait
// less, and larger again where they do not.
func TestTopics_fanOut_slow(t *testing.T) {
	const n = 3000
	path := filepath.Join(t.TempDir(), "jobs.db")
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		file, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		store := &slowly{Store: file}
		store.each.Store(int64(time.Millisecond))
		q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, q: q, net: &transport{}}
		if r.topics, err = topic.New(q, nil, nil); err != nil {
			t.Fatal(err)
		}
		r.create(topic.Topic{Name: "orders"})
		r.members("orders", n)
		r.publish("orders", topic.Message{ID: "m1", Body: data.Body})
		done := r.events("topic.fanout", errand.EventDone)
		stop := r.start(nil, topic.Queues)
		done(1)
		stop()
		r.once("m1", n)
		slow, quick := 0, 0
		for i, jobs := range store.steps {
			switch {
			case i >= 4 && i <= 20 && jobs > 40:
				slow++
			case i > 20 && jobs == 200:
				quick++
			}
		}
		if slow > 0 || quick < 3 {
			t.Errorf("steps of %v jobs", store.steps)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}
