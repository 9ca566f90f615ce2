package engine_test

import (
	"bytes"
	"context"
	"errors"
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

// An outcome that cannot be smaller waits behind the others, and keeps what it has.
func TestRoom_OneBlocksNobody(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 20
		var ids []storage.ID
		ended := make(chan struct{})
		r.cfg.Concurrency = n
		r.handle("k", func(ctx context.Context, job *storage.Leased) error {
			if job.ID != ids[0] && job.ID != ids[1] {
				<-ended
				return nil
			}
			engine.AttemptOf(ctx).Progress(1, 2, strings.Repeat("n", 250))
			return nil
		})
		ids = r.enqueue("k", n)
		r.store.room.Store(300)
		r.start()
		close(ended)
		pass(5 * time.Second)
		if done := r.count(storage.Done); done != n-2 {
			t.Errorf("%d jobs are done, want %d", done, n-2)
		}
		if calls := len(r.store.of("exchange", 0)); calls > 100 {
			t.Errorf("%d exchanges", calls)
		}
		pass(5 * time.Second)
		r.store.room.Store(0)
		pass(6 * time.Second)
		for _, id := range ids[:2] {
			if rec := r.wantState(id, storage.Done, storage.Counters{Attempt: 1}); rec.Progress == nil || len(rec.Progress.Note) != 250 {
				t.Errorf("the job has the progress %+v", rec.Progress)
			}
		}
	})
}

// A failure without room is kept with as much of its texts as there is room for. If there is none,
// its attempt counts as cut off.
func TestRoom_Failure(t *testing.T) {
	once, failed := storage.Counters{Attempt: 1}, storage.Counters{Attempt: 1, Retry: 1}
	for name, c := range map[string]struct {
		room   int64
		fail   error // nil: it panics
		dead   bool
		want   storage.Counters
		bytes  int // of error and stack in the history at least; 0: there is none
		goBack bool
	}{
		"a panic":                  {9000, nil, false, failed, 7000, false},
		"less of the error":        {3000, nil, false, failed, 2000, false},
		"a death":                  {9000, &engine.PermanentError{Err: errLong}, true, once, 2000, false},
		"an outage":                {1000, &engine.UnavailableError{Err: errLong}, false, once, 0, false},
		"no room for a failure":    {250, errLong, false, once, 0, true},
		"no room for a death":      {250, &engine.PermanentError{Err: errLong}, false, once, 0, true},
		"no room for an outage":    {250, &engine.UnavailableError{Err: errLong}, false, once, 0, true},
		"no room after RetryAfter": {250, &engine.RetryAfterError{After: time.Minute, Err: errLong}, false, once, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handle("k", func(context.Context, *storage.Leased) error {
					r.store.full.Store(true) // so that it runs once
					if c.fail == nil {
						panic(errLong)
					}
					return c.fail
				})
				id := r.enqueue("k", 1)[0]
				r.store.room.Store(c.room)
				r.start()
				for left := 200; r.job(id).State == storage.Running && left > 0; left-- {
					pass(100 * time.Millisecond)
				}
				rec := r.job(id)
				if rec.Counters != c.want || rec.State == storage.Dead != c.dead {
					t.Errorf("the job is %s %+v", rec.State, rec.Counters)
				}
				bytes := 0
				for _, f := range rec.History {
					bytes += len(f.Error) + len(f.Stack)
				}
				if bytes < c.bytes || c.bytes == 0 && bytes > 0 {
					t.Errorf("%d bytes in the history, want %d", bytes, c.bytes)
				}
				if lines := r.logs.with("an error is kept in part"); len(lines) != 1 {
					t.Errorf("logged: %q", lines)
				}
				if lines := r.logs.with("has no room, its job runs again"); len(lines) > 0 != c.goBack {
					t.Errorf("logged: %q", lines)
				}
				if name == "no room after RetryAfter" && time.Until(rec.DueAt) < 30*time.Second {
					t.Errorf("due in %v", time.Until(rec.DueAt))
				}
			})
		})
	}
}

// While an outcome waits for room, nobody takes its job, however short the lease is.
func TestRoom_ShortLease(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.LeaseDuration = 3 * time.Second
		runs := r.bring(1, 1000)
		id := r.enqueue("k", 1)[0]
		r.store.room.Store(900)
		other := r.another()
		other.cfg.LeaseDuration = 3 * time.Second
		other.start()
		r.start()
		pass(20 * time.Second)
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
}

var errLong = errors.New(strings.Repeat("long ", 1600))
