package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// wantLine checks that one line of the log has all of what is wanted.
func (r *rig) wantLine(want ...string) {
	r.t.Helper()
	lines := r.logs.with(want[0])
	for _, s := range want[1:] {
		if len(lines) != 1 || !strings.Contains(lines[0], s) {
			r.t.Errorf("one line with %q is wanted, the log says %q", want, lines)
			return
		}
	}
}

//errand:shows silence | | a failed attempt is a warning with its error and the time of the next one, a panic an error with its stack; many lines of a kind are counted instead; a recovery is one line
func TestReport_Failure(t *testing.T) {
	decode := &engine.DecodeError{Err: errOops}
	for name, c := range map[string]struct {
		run  handle
		want []string
	}{
		"error":   {func(context.Context, *storage.Leased) error { return errOops }, []string{"level=INFO", "error=oops"}},
		"panic":   {func(context.Context, *storage.Leased) error { panic("oops") }, []string{"level=ERROR", `error="panic: oops"`, "stack=", "TestReport_Failure"}},
		"decode":  {func(context.Context, *storage.Leased) error { return decode }, []string{"level=ERROR", "do not decode", `error="decode: oops"`}},
		"endless": {func(context.Context, *storage.Leased) error { return fmt.Errorf("%s", strings.Repeat("x", 9000)) }, []string{"level=INFO", " error=" + strings.Repeat("x", 512) + " "}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				r.handle("k", c.run)
				id := r.enqueue("k", 1)[0]
				r.start() // of two attempts; the third is 10 s away
				lines := r.logs.with("attempt failed")
				if len(lines) != 2 {
					t.Fatalf("after two attempts the log says %q", lines)
				}
				for _, s := range append(c.want, "job="+id.String(), "kind=k", "queue=q", "attempt=2", "due=2000-01-01T00:00:10.000Z") {
					if !strings.Contains(lines[1], s) {
						t.Errorf("%q does not say %q", lines[1], s)
					}
				}
			})
		})
	}
}

// What is left out is counted, and nothing is left out without a word.
//
//errand:shows silence
func TestReport_FailuresAreLimitedByKind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy, r.cfg.MaxDeaths = noRetry.Delivery(), -1
		fail := func(context.Context, *storage.Leased) error { return errOops }
		r.handle("many", fail)
		r.handle("few", fail)
		r.enqueue("many", 1000)
		r.enqueue("few", 1)
		r.start()
		if n := len(r.logs.with("kind=many")); n != 5 {
			t.Errorf("%d lines at once, want 5", n)
		}
		r.wantLine("kind=few", "job is dead", "reason=exhausted")
		pass(5 * time.Second)
		r.wantLine("suppressed=", "kind=many", "suppressed=995", "error=oops")
		calls := r.store.count()
		pass(time.Hour)
		if lines, n := r.logs.with("kind=many"), r.store.count(); len(lines) != 6 {
			t.Errorf("the log says %q", lines[6:])
		} else if n > calls+15_000 { // it looks for dead holders
			t.Errorf("%d calls of the store in an hour", n-calls)
		}
	})
}

// A single one that was left out comes as it would have.
func TestReport_SingleOneLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy = noRetry.Delivery()
		r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
		r.enqueue("k", 6)
		r.start()
		pass(5 * time.Second)
		if lines := r.logs.with("job is dead"); len(lines) != 6 || !strings.Contains(lines[5], "job=") || strings.Contains(lines[5], "suppressed=") {
			t.Errorf("the log says %q", lines)
		}
	})
}

//errand:shows silence
func TestReport_SteadyFailures(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Policy, r.cfg.MaxDeaths = noRetry.Delivery(), -1
		r.handle("k", func(context.Context, *storage.Leased) error { return errOops })
		r.start()
		const n = 100
		for range n {
			r.enqueue("k", 1)
			pass(time.Second)
		}
		_ = r.stop()
		lines, told := r.logs.with("job is dead"), 0
		for _, line := range lines {
			if strings.Contains(line, "job=") {
				told++
			}
			if _, s, ok := strings.Cut(line, "suppressed="); ok {
				var left int
				if _, err := fmt.Sscan(s, &left); err != nil {
					t.Error(err)
				}
				told += left
			}
		}
		if told != n || len(lines) < 20 || len(lines) > 30 {
			t.Errorf("%d lines tell of %d of %d jobs", len(lines), told, n)
		}
	})
}

//errand:shows silence
func TestReport_PanicOfALostAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			panic("oops")
		})
		r.start()
		r.enqueue("k", 1)
		r.takeOver(1)
		pass(lease / 3)
		r.wantLine("attempt was interrupted", "level=WARN", "panic: oops", "stack=")
	})
}

//errand:shows silence
func TestReport_RecoveryInOneLine(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = 250 // more than one call takes over
		r.cfg.Concurrency = n
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return ctx.Err() })
		ids := r.enqueue("k", n)
		r.start()
		r.db.Kill(r.store.Store)
		other := r.another()
		other.start()
		other.wantLine("recovered", "level=INFO", "jobs=250", "crashed=250", "holders=", ids[0].String())
		if line := other.logs.with("recovered")[0]; len(line) > 512 {
			t.Errorf("the line has %d bytes", len(line))
		}
	})
}

//errand:shows silence
func TestReport_SuspectsOnceForAKind(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ids := r.suspects("bad", 5)
		r.handle("bad", work(3*time.Second))
		r.start()
		pass(time.Minute)
		r.wantLine("one at a time", "level=WARN", "kind=bad", ids[0].String(), "crashes=2")
	})
}

//errand:shows silence
func TestReport_ManyLostLeases(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.cfg.Concurrency = 100
		r.handle("k", untilDone(&cause))
		r.start()
		r.enqueue("k", 100)
		r.takeOver(100)
		pass(lease / 2)
		if lines := r.logs.with("lease lost"); len(lines) != 6 || !strings.Contains(lines[5], "suppressed=95") {
			t.Errorf("the log says %q", lines)
		}
	})
}

//errand:shows lines of the log | | a line of the log begins with "errand: ", whichever part writes it, and names jobs by their IDs
func TestReport_LateOutcomeNamesItsJob(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.handle("k", untilClosed(release))
		r.start()
		id := r.enqueue("k", 1)[0]
		r.takeOver(1)
		close(release) // before a heartbeat can tell
		synctest.Wait()
		r.wantLine("too late", "job="+id.String(), "outcome=done")
	})
}
