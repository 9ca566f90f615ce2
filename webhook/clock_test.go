package webhook_test

import (
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/webhook"
)

// rigOf is newRig with the year 2100 on the wall clock, and another on that of the queue.
func rigOf(t *testing.T, off *atomic.Int64, o webhook.Options) *rig {
	t.Helper()
	time.Sleep(time.Until(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "hooks.db"), &errand.Options{
		SQLite: errand.SQLiteOptions{Durability: errand.Relaxed, SingleProcess: true},
		Logger: slog.New(slog.DiscardHandler), Retention: -1,
		Clock: func() time.Time { return time.Now().Add(time.Duration(off.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{T: t, q: q, world: &world{}}
	r.hooks = r.again(o)
	return r
}

const century = 100 * 365 * 24 * time.Hour

// A message is kept for Keep by the queue's clock, whatever the wall clock shows.
func TestWebhooks_Replay_byTheQueuesClock(t *testing.T) {
	for _, by := range []time.Duration{century, -50 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var off atomic.Int64
			off.Store(int64(by))
			r := rigOf(t, &off, webhook.Options{Keep: time.Hour})
			r.endpoint("a")
			sent := r.send(webhook.Message{Body: []byte("1")}, "a")
			if _, err := r.q.Cancel(t.Context(), sent.Jobs[0].ID); err != nil {
				t.Fatal(err)
			}
			for _, want := range []int{1, 0} {
				time.Sleep(30 * time.Minute)
				n, err := r.hooks.Replay(t.Context(), "a", time.Time{})
				if n != want || err != nil {
					t.Errorf("%v ahead: %d messages again, %v; want %d", by, n, err, want)
				}
				if _, err := r.q.CancelAll(t.Context(), errand.JobFilter{Queue: webhook.QueueOf("a")}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The secret before signs for as long as it was to, once the clock is right again.
func TestWebhooks_RotateSecret_whileTheClockIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var off atomic.Int64
		off.Store(int64(century))
		r := rigOf(t, &off, webhook.Options{})
		r.endpoint("a")
		if _, err := r.hooks.RotateSecret(t.Context(), "a", webhook.Secret{}, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		signs := func(what string, want int) {
			t.Helper()
			s, err := r.hooks.Secrets(t.Context(), "a")
			if err != nil || len(s) != want {
				t.Errorf("%s: %d secrets sign, %v; want %d", what, len(s), err, want)
			}
		}
		signs("at once", 2)
		off.Store(0)
		stop := r.work() // it notices
		time.Sleep(time.Hour)
		signs("once the clock is right", 2)
		time.Sleep(24 * time.Hour)
		stop()
		signs("a day later", 1)
	})
}
