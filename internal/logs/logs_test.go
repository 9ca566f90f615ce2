package logs_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand/internal/logs"
)

// gated is a handler whose calls wait until they are let, and that keeps what it is told.
type gated struct {
	slog.Handler
	goOn   chan struct{}
	debug  atomic.Bool
	asked  atomic.Int64
	goexit bool
	said   []string
}

func (g *gated) Enabled(_ context.Context, level slog.Level) bool {
	g.asked.Add(1)
	return level > slog.LevelDebug || g.debug.Load()
}

func (g *gated) Handle(_ context.Context, r slog.Record) error {
	<-g.goOn
	if g.goexit {
		g.goexit = false
		runtime.Goexit()
	}
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.Value.String()
		return true
	})
	g.said = append(g.said, line)
	return nil
}

func newGated() *gated { return &gated{Handler: slog.DiscardHandler, goOn: make(chan struct{})} }

//errand:shows a logger that stalls | | nobody who logs waits; 64 records wait, further ones are counted
func TestNew_stalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		log := logs.New(slog.New(g))
		log.Warn("record", "n", 0)
		synctest.Wait() // it is being handed over
		for n := range 100 {
			log.Warn("record", "n", n+1)
		}
		began := time.Now()
		logs.Wait(log)
		if d := time.Since(began); d != time.Second {
			t.Errorf("waited %v for a logger that stalls, want 1s", d)
		}
		if s := logs.StateOf(log); s != (logs.State{For: time.Second, Waiting: 64, Dropped: 36}) {
			t.Errorf("state %+v", s)
		}
		logs.Wait(log)
		if d := time.Since(began); d != time.Second {
			t.Errorf("waited until %v for a logger that has stalled for long", d)
		}
		close(g.goOn)
		synctest.Wait()
		logs.Wait(log)
		if d := time.Since(began); d != time.Second {
			t.Errorf("waited until %v for a logger that does not stall", d)
		}
		var want []string
		for n := range 65 {
			want = append(want, fmt.Sprintf("record %d", n))
		}
		want = append(want, "errand: the logger is slow, records were dropped 36")
		if !slices.Equal(g.said, want) {
			t.Errorf("%d records, want %d: %q", len(g.said), len(want), g.said)
		}
		if s := logs.StateOf(log); s != (logs.State{}) {
			t.Errorf("state %+v after all, want none", s)
		}
	})
}

//errand:shows a logger that stalls
func TestNew_goexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		g.goexit = true
		log := logs.New(slog.New(g))
		close(g.goOn)
		log.Info("a")
		synctest.Wait()
		log.Info("b")
		logs.Wait(log)
		if !slices.Equal(g.said, []string{"b"}) {
			t.Errorf("said %q, want b: the handler of a has ended its goroutine", g.said)
		}
	})
}

// Debug records are not built unless the application takes them, which it may change.
func TestNew_debug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated()
		close(g.goOn)
		log := logs.New(slog.New(g))
		for range 100 {
			log.Debug("early")
		}
		synctest.Wait()
		if n := g.asked.Load(); n != 1 {
			t.Errorf("asked %d times for 100 debug records, want once", n)
		}
		g.debug.Store(true)
		time.Sleep(time.Second)
		log.Debug("asks")
		synctest.Wait()
		log.Debug("late")
		logs.Wait(log)
		if !slices.Equal(g.said, []string{"late"}) {
			t.Errorf("said %q, want late", g.said)
		}
	})
}

func TestShare(t *testing.T) {
	a, b := slog.New(slog.DiscardHandler), slog.New(slog.DiscardHandler)
	ours := logs.New(a)
	if logs.New(ours) != ours {
		t.Error("New wraps its own logger")
	}
	if got := logs.Share(a, logs.New(b), ours); got != ours {
		t.Errorf("shares %v", got)
	}
	if got := logs.Share(ours, logs.New(b), ours); got != ours {
		t.Errorf("shares %v", got)
	}
	if logs.Share(b, ours) != nil {
		t.Error("shares that of another logger")
	}
	if logs.Direct(ours) != a || logs.Direct(b) != b {
		t.Error("Direct returns another logger")
	}
}
