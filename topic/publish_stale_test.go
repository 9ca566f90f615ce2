package topic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/topic"
)

// overtaken is a store in which others are always faster, so many times.
type overtaken struct {
	*sqlite.Store
	beforeWrites, afterReads int
	change                   func()
}

func (s *overtaken) overtake(left *int) bool {
	if *left == 0 {
		return false
	}
	*left--
	s.change()
	return true
}

func (s *overtaken) PublishMessages(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
	s.overtake(&s.beforeWrites)
	return s.Store.PublishMessages(ctx, now, all)
}

// PublishMessagesTx says itself what the next one would find: that would take the write
// lock, and keep it.
func (s *overtaken) PublishMessagesTx(ctx context.Context, tx any, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
	if s.overtake(&s.beforeWrites) {
		return nil, storage.ErrStale
	}
	return s.Store.PublishMessagesTx(ctx, tx, now, all)
}

func (s *overtaken) Entries(ctx context.Context, class, family, after string, limit int) ([]storage.Entry, int64, error) {
	entries, revision, err := s.Store.Entries(ctx, class, family, after, limit)
	s.overtake(&s.afterReads)
	return entries, revision, err
}

// However often others are faster, who publishes never hears of it, and the message goes
// to those who had subscribed by then.
func TestTopics_Publish_overtaken(t *testing.T) {
	const times = 100
	type call func(r *rig, app *sql.DB, m topic.Message) (topic.Published, error)
	calls := map[string]call{
		"Publish": func(r *rig, _ *sql.DB, m topic.Message) (topic.Published, error) {
			return r.topics.Publish(r.t.Context(), "orders", m)
		},
		"PublishMany": func(r *rig, _ *sql.DB, m topic.Message) (topic.Published, error) {
			all, err := r.topics.PublishMany(r.t.Context(), "orders", []topic.Message{m})
			return append(all, topic.Published{})[0], err
		},
		"PublishTx": func(r *rig, app *sql.DB, m topic.Message) (p topic.Published, err error) {
			tx, err := app.BeginTx(r.t.Context(), nil)
			if err != nil {
				return p, err
			}
			if p, err = r.topics.PublishTx(r.t.Context(), tx, "orders", m); err != nil {
				return p, errors.Join(err, tx.Rollback())
			}
			return p, tx.Commit()
		},
	}
	for name, f := range calls {
		for what, ordered := range map[string]bool{"": false, "to an ordered topic": true} {
			m := data
			if ordered {
				m.Group = "g"
			}
			t.Run(strings.TrimSpace(name+" "+what), func(t *testing.T) {
				r, other, store, app := overtakenRig(t, ordered)
				n := 0
				store.beforeWrites, store.change = times, func() {
					other.subscribe(topic.Subscription{Topic: "orders", Kind: fmt.Sprint("kind-", n)})
					n++
				}
				got, err := f(r, app, m)
				if err != nil || n != times {
					t.Fatalf("after %d changes: %v", n, err)
				}
				if ordered && len(got.Subscriptions) != times || !ordered && !got.FanOut {
					t.Errorf("published: %+v, want it for %d subscriptions", got, times)
				}
				done := r.events("topic.fanout", errand.EventDone)
				stop := r.start(nil, topic.Queues)
				if !ordered {
					done(1)
				}
				stop()
				if all := r.jobs(errand.JobFilter{Tag: storage.MessageTag(got.ID), States: []errand.State{errand.Ready}}); len(all) != times {
					t.Errorf("%d deliveries, want %d", len(all), times)
				}
			})
			t.Run(strings.TrimSpace(name+" "+what)+", while the topic changes", func(t *testing.T) {
				r, other, store, app := overtakenRig(t, ordered)
				other.subscribe(topic.Subscription{Topic: "orders", Kind: "kind"})
				n := 0
				store.afterReads, store.change = times, func() {
					n++
					if _, err := other.topics.Update(t.Context(), topic.Topic{Name: "orders", Ordered: ordered, Keep: time.Duration(n) * time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := f(r, app, m); err != nil || n != times || len(got.Subscriptions) != 1 {
					t.Errorf("after %d changes: %+v, %v", n, got, err)
				}
			})
		}
	}
}

// overtakenRig is a rig with its store, another one for the same file, and a pool of the
// application.
func overtakenRig(t *testing.T, ordered bool) (r, other *rig, store *overtaken, app *sql.DB) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "jobs.db")
	other = rigAt(t, path, nil)
	other.create(topic.Topic{Name: "orders", Ordered: ordered})
	file, err := sqlite.Open(path, &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	store = &overtaken{Store: file}
	q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	r = &rig{t: t, q: q}
	if r.topics, err = topic.New(q, nil, nil); err != nil {
		t.Fatal(err)
	}
	if app, err = sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=synchronous(normal)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	return r, other, store, app
}

// A store that contradicts itself does not keep who publishes for ever.
func TestTopics_Publish_contradiction(t *testing.T) {
	r, _, store, app := overtakenRig(t, false)
	store.beforeWrites, store.change = 1000, func() {}
	tx, err := app.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := r.topics.PublishTx(t.Context(), tx, "orders", data); !errors.Is(err, errand.ErrStale) || !strings.Contains(err.Error(), `topic "orders"`) {
		t.Errorf("nobody has changed it: %v", err)
	}
}
