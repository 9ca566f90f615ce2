package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// diary notes what happened, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) add(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, s)
}

func TestStop_InTheDocumentedOrder(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var d diary
		began := time.Now() // the bubble's clock stands until the stop begins
		note := func(s string) { d.add(time.Since(began).String() + " " + s) }
		r.handle("quick", func(context.Context, *storage.Leased) error {
			time.Sleep(10 * time.Second)
			note("quick handler ends by itself")
			return nil
		})
		r.handle("slow", func(ctx context.Context, _ *storage.Leased) error {
			<-ctx.Done()
			note("slow handler is told: " + context.Cause(ctx).Error())
			time.Sleep(time.Second)
			note("slow handler ends")
			return ctx.Err()
		})
		suspects := r.suspects("bad", 2)
		r.handle("bad", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return nil })
		quick, slow := r.enqueue("quick", 1)[0], r.enqueue("slow", 1)[0]
		r.start()
		n := r.store.count()

		r.cancel()
		synctest.Wait()
		// The suspect that waits for the first one has not been started.
		r.wantState(suspects[1], storage.Ready, storage.Counters{Attempt: 2, Crashes: 2})
		late := r.enqueue("quick", 1)[0]
		<-r.ended
		note("Run ends")

		if r.err != nil {
			t.Error(r.err)
		}
		want := []string{
			"10s quick handler ends by itself",
			"20s slow handler is told: " + engine.ErrShutdown.Error(),
			"21s slow handler ends",
			"21s Run ends",
		}
		if !slices.Equal(d.entries, want) {
			t.Errorf("order was\n%s\nwant\n%s", strings.Join(d.entries, "\n"), strings.Join(want, "\n"))
		}
		r.wantState(quick, storage.Done, storage.Counters{Attempt: 1})
		r.wantState(slow, storage.Ready, storage.Counters{Attempt: 1})
		r.wantState(suspects[0], storage.Done, storage.Counters{Attempt: 3})
		r.wantState(late, storage.Ready, storage.Counters{})
		for _, c := range r.store.since(n) {
			if c.x.Wanted() > 0 {
				t.Errorf("fetched %v after the stop", c.at.Sub(began))
			}
		}
		if r.store.listening != 0 {
			t.Error("still listening to the store")
		}
	})
}

func TestStop_EndsAsSoonAsTheHandlersHave(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(context.Context, *storage.Leased) error { time.Sleep(3 * time.Second); return nil })
		r.enqueue("k", 4)
		r.start()
		began := time.Now()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("stop took %v", d)
		}
	})
}

func TestStop_JobsLeasedMeanwhileGoBackUnspent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var ran bool
		r.handle("k", func(context.Context, *storage.Leased) error { ran = true; return nil })
		slow := &slowStore{spy: r.store}
		r.cfg.Store = slow
		goOn := slow.keepBack()
		id := r.enqueue("k", 1)[0]
		r.start() // its exchange has leased the job, and its answer takes long
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
		r.cancel()
		synctest.Wait()
		goOn()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.wantState(id, storage.Ready, storage.Counters{})
		if ran {
			t.Error("the handler was called")
		}
	})
}

func TestStop_Shutdown(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("k", func(ctx context.Context, _ *storage.Leased) error { <-ctx.Done(); return ctx.Err() })
		id := r.enqueue("k", 1)[0]
		r.start()
		began := time.Now()
		if err := r.engine.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != grace {
			t.Errorf("Shutdown took %v, want the grace of %v", d, grace)
		}
		<-r.ended
		if r.err != nil {
			t.Errorf("Run gave %v", r.err)
		}
		r.wantState(id, storage.Ready, storage.Counters{Attempt: 1})
		if err := r.engine.Shutdown(t.Context()); err != nil {
			t.Errorf("second Shutdown gave %v", err)
		}
	})
}

func TestStop_ShutdownsContextEndsTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var cause causes
		r.handle("k", untilDone(&cause))
		id := r.enqueue("k", 1)[0]
		r.start()
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Second)
		defer cancel()
		if err := r.engine.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 3*time.Second || !errors.Is(cause.err(), engine.ErrShutdown) {
			t.Errorf("Shutdown took %v, cause %v", d, cause.err())
		}
		r.wantState(id, storage.Ready, storage.Counters{Attempt: 1})
	})
}

func TestStop_StuckHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.handle("mule", untilClosed(release))
		r.handle("good", func(context.Context, *storage.Leased) error { return nil })
		id := r.enqueue("mule", 1)[0]
		r.start()
		began := time.Now()
		r.cancel()
		err := r.engine.Shutdown(t.Context())
		if d := time.Since(began); d != grace+stuck {
			t.Errorf("stop took %v, want %v", d, grace+stuck)
		}
		<-r.ended
		for who, err := range map[string]error{"Run": r.err, "Shutdown": err} {
			if !errors.Is(err, engine.ErrStuck) || !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), "mule") {
				t.Errorf("%s gave %v, want ErrStuck that names the job", who, err)
			}
		}
		if lines := r.logs.with("handler is stuck"); len(lines) != 1 || !strings.Contains(lines[0], "untilClosed") {
			t.Errorf("stuck handler logged as %q", lines)
		}

		// The lease goes on being extended, so that nobody runs the job again.
		other := r.another()
		other.handle("mule", func(context.Context, *storage.Leased) error {
			t.Error("the job was run beside itself")
			return nil
		})
		other.start()
		pass(10 * lease)
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})

		// And when it ends at last its outcome is written.
		close(release)
		synctest.Wait()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		if len(r.logs.with("stuck handler ended")) != 1 {
			t.Error("its end was not logged")
		}
	})
}

func TestStop_StuckHandlerAfterTheStoreWasClosed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := make(chan struct{})
		r.handle("mule", untilClosed(release))
		id := r.enqueue("mule", 1)[0]
		r.start()
		if err := r.stop(); !errors.Is(err, engine.ErrStuck) {
			t.Errorf("Run gave %v", err)
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
		pass(lease) // extending has ended by then
		n := r.store.count()
		pass(10 * lease)
		if calls := r.store.since(n); len(calls) > 0 {
			t.Errorf("%d calls of a closed store", len(calls))
		}
		close(release)
		synctest.Wait()
		r.wantState(id, storage.Running, storage.Counters{Attempt: 1})
	})
}

func TestStop_StuckHandlerWhileRunning(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Concurrency = 2
		release := make(chan struct{})
		r.cfg.Handlers["mule"] = engine.Handler{Run: untilClosed(release), Timeout: 10 * time.Second}
		most, running := 0, 0
		r.handle("good", func(context.Context, *storage.Leased) error {
			running++
			most = max(most, running)
			time.Sleep(time.Second)
			running--
			return nil
		})
		id := r.enqueue("mule", 1)[0]
		r.start()
		pass(10*time.Second + stuck - 1)
		if lines := r.logs.with("handler is stuck"); len(lines) > 0 {
			t.Errorf("reported too early: %q", lines)
		}
		pass(1)
		if lines := r.logs.with("handler is stuck"); len(lines) != 1 || !strings.Contains(lines[0], id.String()) || !strings.Contains(lines[0], "untilClosed") {
			t.Errorf("reported as %q", lines)
		}
		good := r.enqueue("good", 5)
		pass(time.Minute)
		for _, id := range good {
			r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
		}
		if most != 1 {
			t.Errorf("%d handlers beside the stuck one, which keeps its slot of 2", most)
		}
		if n := len(r.logs.with("handler is stuck")); n != 1 {
			t.Errorf("reported %d times", n)
		}
		close(release)
		synctest.Wait()
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}

func TestStop_LeasesAreExtendedDuringTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.Grace = 10 * lease
		r.handle("k", func(context.Context, *storage.Leased) error { time.Sleep(5 * lease); return nil })
		id := r.enqueue("k", 1)[0]
		r.start()
		other := r.another()
		other.handle("k", func(context.Context, *storage.Leased) error {
			t.Error("the job was run beside itself")
			return nil
		})
		other.start()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.wantState(id, storage.Done, storage.Counters{Attempt: 1})
	})
}
