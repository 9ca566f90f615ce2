package engine_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// bring has handlers set results of so many bytes, once all of n run.
func (r *rig) bring(n, size int) (runs *atomic.Int64) {
	runs = new(atomic.Int64)
	all := make(chan struct{})
	r.cfg.Concurrency = n
	r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
		if runs.Add(1) == int64(n) {
			close(all)
		}
		<-all
		return engine.AttemptOf(ctx).SetResult(make([]byte, size))
	})
	return runs
}

// Outcomes that do not fit on the disk together are written in parts, one after the other at
// once, down to a single one.
//
//errand:shows a disk that jobs alone have filled | | outcomes without room are written in parts, without their results, or by another attempt
func TestRoom_InParts(t *testing.T) {
	for _, room := range []int64{1100, 3000, 20_000} {
		bubble(t, func(t *testing.T, r *rig) {
			runs := r.bring(100, 1000)
			ids := r.enqueue("k", 100)
			r.store.room.Store(room)
			began := time.Now()
			r.start()
			pass(time.Second)
			for _, id := range ids {
				if rec := r.wantState(id, storage.Done, storage.Counters{Attempt: 1}); len(rec.Result) != 1000 {
					t.Fatalf("room for %d: job %v has a result of %d bytes", room, id, len(rec.Result))
				}
			}
			if n := runs.Load(); n != 100 {
				t.Errorf("room for %d: %d runs", room, n)
			}
			calls := r.store.of("exchange", 0)
			if last := calls[len(calls)-1]; len(calls) > 400 || last.at.Sub(began) > time.Second {
				t.Errorf("room for %d: %d exchanges, the last one after %v", room, len(calls), last.at.Sub(began))
			}
		})
	}
}

// No exchange brings more than 4 MiB, whatever room there is.
func TestRoom_BytesOfAnExchange(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bring(100, 60_000)
		r.enqueue("k", 100)
		r.start()
		pass(time.Second)
		if n := r.counts()[storage.Done]; n != 100 {
			t.Errorf("%d jobs are done", n)
		}
		for _, c := range r.store.of("exchange", 0) {
			sum := 0
			for i := range c.x.Finish {
				sum += c.x.Finish[i].Bytes()
			}
			if sum > 4<<20 {
				t.Errorf("an exchange brings %d bytes", sum)
			}
		}
	})
}

// An outcome that does not fit alone waits for room for a while. If there is none then, its job is
// done without its result, and says so.
func TestRoom_WithoutResult(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // there is room
		want  int           // bytes of the result
	}{"no room": {time.Hour, 0}, "room in time": {5 * time.Second, 1000}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				runs := r.bring(3, 1000)
				ids := r.enqueue("k", 3)
				r.store.room.Store(900)
				r.start()
				time.AfterFunc(c.after, func() { r.store.room.Store(0) })
				pass(30 * time.Second)
				for _, id := range ids {
					rec := r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
					if len(rec.Result) != c.want || c.want == 0 != strings.Contains(rec.Error, "the result of 1000 bytes was left out") {
						t.Errorf("a result of %d bytes, error %q", len(rec.Result), rec.Error)
					}
				}
				if n := runs.Load(); n != 3 {
					t.Errorf("%d runs", n)
				}
				if lines := r.logs.with("a job ends without its result"); len(lines) > 0 != (c.want == 0) {
					t.Errorf("the log has %q", lines)
				}
			})
		})
	}
}

// The attempt of a job whose followers have no room counts as cut off: it is no failure, and the
// job runs again.
func TestRoom_FollowersGoBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		runs := 0
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			runs++
			next := storage.NewJob{Queue: "other", Kind: "next", Args: bytes.Repeat([]byte("1"), 1000)}
			return engine.AttemptOf(ctx).Then(next, func(bool) {}, func(int, int) error { return nil })
		})
		id := r.enqueue("k", 1)[0]
		r.store.room.Store(900)
		r.start()
		pass(9 * time.Second)
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
		pass(6 * time.Second)
		if rec := r.job(id); runs < 2 || rec.Retry != 0 || rec.Crashes != 0 || len(rec.History) != 0 {
			t.Errorf("%d runs, then %+v with history %v", runs, rec.Counters, rec.History)
		}
		r.store.room.Store(0)
		pass(30 * time.Second)
		if rec := r.job(id); rec.State != storage.Done || r.counts()[storage.Ready] != 1 {
			t.Errorf("with room the job is %s, and %v", rec.State, r.counts())
		}
	})
}

// A worker that stops does not wait for room that there may never be: what its jobs have done is
// written without the results.
func TestRoom_Stop(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.bring(50, 1000)
		ids := r.enqueue("k", 50)
		r.store.room.Store(900)
		r.start()
		pass(time.Second)
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run has returned after %v", took)
		}
		for _, id := range ids {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
	})
}
