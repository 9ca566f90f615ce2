package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
	"github.com/errandq/errand/webhook"
)

// An endpoint with the ID of one that was deleted while an attempt was under way, whatever the
// answer, has nothing of it: what waited is cancelled, and the new one neither fails nor is disabled.
func TestCreate_again(t *testing.T) {
	for _, status := range []int{200, 410, 500} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, webhook.Options{DisableAfter: time.Nanosecond})
			r.endpoint("a")
			r.world.answer("a.example", func(*http.Request) (int, error) {
				r.world.answer("a.example", nil)
				time.Sleep(time.Second)
				if err := r.hooks.Delete(context.Background(), "a"); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				r.endpoint("a")
				time.Sleep(time.Second)
				return status, nil
			})
			first := r.send(webhook.Message{ID: "first", Group: "g"}, "a")
			waits := r.send(webhook.Message{ID: "waits", Group: "g"}, "a") // behind the first
			stop := r.work()
			time.Sleep(time.Minute)
			r.send(webhook.Message{ID: "new"}, "a")
			time.Sleep(time.Minute)
			stop()
			e, err := r.hooks.Endpoint(t.Context(), "a")
			if err != nil || !e.FailingSince.IsZero() || e.State != webhook.Enabled {
				t.Errorf("%d: the new endpoint is %+v, %v", status, e, err)
			}
			var ids []string
			for _, s := range r.world.to("a.example") {
				ids = append(ids, s.id)
			}
			if len(ids) != 2 || ids[0] != "first" || ids[1] != "new" {
				t.Errorf("%d: sent %v, want first to the old one and new to the new one", status, ids)
			}
			for _, s := range []webhook.Sent{first, waits} {
				if j := r.job(s.Jobs[0].ID); j.State != errand.Cancelled && (status != 200 || s.ID != "first") {
					t.Errorf("%d: %s is %s", status, s.ID, j.State)
				}
			}
		})
	}
}

// An attempt under way to an endpoint that is deleted ends the delivery, and says why.
func TestDeliver_deleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, webhook.Options{})
		r.endpoint("a")
		r.world.answer("a.example", func(*http.Request) (int, error) {
			if err := r.hooks.Delete(context.Background(), "a"); err != nil {
				t.Error(err)
			}
			return 410, nil
		})
		s := r.send(webhook.Message{}, "a")
		stop := r.work()
		time.Sleep(time.Minute)
		stop()
		if j := r.job(s.Jobs[0].ID); j.State != errand.Cancelled || !strings.Contains(j.Error, `endpoint "a": was deleted while it was sent to`) {
			t.Errorf("%s: %s", j.State, j.Error)
		}
		if holds, err := r.q.Holds(t.Context()); err != nil || len(holds) > 0 {
			t.Errorf("holds %+v, %v", holds, err)
		}
		r.endpoint("a")
		if e, err := r.hooks.Endpoint(t.Context(), "a"); err != nil || !e.FailingSince.IsZero() || e.State != webhook.Enabled {
			t.Errorf("the new endpoint is %+v, %v", e, err)
		}
	})
}

// cut is a store that fails as a process that dies does: the calls of Configure or PutEntries
// after it have no effect.
type cut struct {
	*sqlite.Store
	settings, entries error
}

func (c *cut) Configure(ctx context.Context, lane storage.Lane, s storage.Settings) error {
	if c.settings != nil {
		return c.settings
	}
	return c.Store.Configure(ctx, lane, s)
}

func (c *cut) PutEntries(ctx context.Context, now time.Time, entries []storage.Entry) (int64, error) {
	if c.entries != nil {
		return 0, c.entries
	}
	return c.Store.PutEntries(ctx, now, entries)
}

// A Create that is cut short between its two transactions leaves no endpoint, and an Update is made
// up for by the next one or a Declare, also by one of what was there before.
func TestCreate_cutShort(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	file, err := sqlite.Open(filepath.Join(t.TempDir(), "hooks.db"), &sqlite.Options{Durability: sqlite.Relaxed, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	store := &cut{Store: file}
	q, err := errand.New(t.Context(), store, &errand.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() })
	r := &rig{T: t, q: q, world: &world{}}
	r.hooks = r.again(webhook.Options{})
	limited := func(n int) webhook.Endpoint {
		return webhook.Endpoint{ID: "a", URL: "https://a.example", Policy: &policy.Document{Throttle: &policy.Throttle{MaxReceivesPerSecond: n}}}
	}
	check := func(want int) {
		t.Helper()
		e, err := r.hooks.Endpoint(t.Context(), "a")
		if errors.Is(err, errand.ErrNotFound) && want == 0 {
			return
		}
		all, errSettings := q.Settings(t.Context())
		if err != nil || errSettings != nil || e.Policy.Throttle.MaxReceivesPerSecond != want {
			t.Fatalf("endpoint %+v, %v, %v: want a throttle of %d", e, err, errSettings, want)
		}
		if len(all) != 1 || all[0].Starts == nil || *all[0].Starts != want {
			t.Errorf("settings %+v, want %d starts", all, want)
		}
	}
	for _, do := range []struct {
		call func(n int) error
		was  int
	}{
		{func(n int) error { _, _, err := r.hooks.Create(t.Context(), limited(n), webhook.Secret{}); return err }, 0},
		{func(n int) error { _, err := r.hooks.Update(t.Context(), limited(n)); return err }, 5},
	} {
		store.settings = errors.New("cut")
		if err := do.call(do.was + 5); err == nil {
			t.Error("no error")
		}
		store.settings = nil
		if do.was > 0 {
			for _, n := range []int{do.was + 5, do.was} {
				if _, _, err := r.hooks.Declare(t.Context(), limited(n), webhook.Secret{}); err != nil {
					t.Error(err)
				}
				check(n)
			}
		}
		check(do.was)
		store.settings, store.entries = nil, errors.New("cut")
		if err := do.call(do.was + 5); err == nil {
			t.Error("no error")
		}
		store.entries = nil
		if do.was > 0 {
			if _, _, err := r.hooks.Declare(t.Context(), limited(do.was), webhook.Secret{}); err != nil {
				t.Error(err)
			}
			check(do.was)
		}
		if err := do.call(do.was + 5); err != nil {
			t.Error(err)
		}
		check(do.was + 5)
	}
	if _, _, err := r.hooks.Create(t.Context(), limited(1), webhook.Secret{}); !errors.Is(err, errand.ErrStale) {
		t.Error(err)
	}
	check(10)
	store.entries = errand.ErrStale // another call was ahead
	if _, err := r.hooks.Update(t.Context(), limited(1)); !errors.Is(err, errand.ErrStale) {
		t.Error(err)
	}
	store.entries = nil
	check(10)
}

// Of several calls that create the same endpoint one does, and no other cancels what it is sent.
func TestCreate_together(t *testing.T) {
	r := newRig(t, webhook.Options{})
	for i := range 50 {
		e := webhook.Endpoint{ID: fmt.Sprint("e", i), URL: "https://e.example/in"}
		var created, cancelled atomic.Int64
		var calls, ended sync.WaitGroup
		for range 4 {
			calls.Add(1)
			ended.Go(func() {
				_, _, err := r.hooks.Create(t.Context(), e, webhook.Secret{})
				if err == nil {
					created.Add(1)
				} else if !errors.Is(err, errand.ErrStale) {
					t.Error(err)
				}
				sent, err := r.hooks.Send(t.Context(), webhook.Message{}, e.ID)
				calls.Done()
				calls.Wait()
				if err != nil {
					t.Error(err)
				} else if r.job(sent.Jobs[0].ID).State == errand.Cancelled {
					cancelled.Add(1)
				}
			})
		}
		ended.Wait()
		if created.Load() != 1 || cancelled.Load() != 0 {
			t.Fatalf("created %d times, and %d deliveries to it are cancelled: want 1 and 0", created.Load(), cancelled.Load())
		}
	}
}
