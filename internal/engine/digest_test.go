package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

const digestLine = "jobs in the database"

// The numbers of jobs are logged every so often, by one worker of the process, and only
// if they have changed.
func TestDigest(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.cfg.LogEvery, r.cfg.Lanes = time.Hour, new(engine.Lanes)
		r.handle("a", func(context.Context, *storage.Leased) error { return nil })
		other := newRigOn(t, r.db, r.app)
		other.cfg.Store, other.cfg.Lanes, other.cfg.LogEvery, other.logs, other.cfg.Logger = r.store, r.cfg.Lanes, time.Hour, r.logs, r.cfg.Logger
		other.handle("b", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		other.start()
		r.enqueue("a", 2)
		r.add(storage.NewJob{Queue: "q", Kind: "a", Delay: 100 * time.Hour})
		if err := r.app.Hold(t.Context(), r.now(), storage.Hold{Lane: storage.Lane{Queue: "p"}, Reason: "paused"}); err != nil {
			t.Fatal(err)
		}
		pass(59 * time.Minute)
		if lines := r.logs.with(digestLine); len(lines) > 0 {
			t.Fatalf("logged early: %q", lines)
		}
		pass(2 * time.Minute)
		lines := r.logs.with(digestLine)
		if len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") ||
			!strings.HasSuffix(strings.TrimSpace(lines[0]), "scheduled=1 ready=0 running=0 done=2 cancelled=0 expired=0 dead=0 held=1") {
			t.Fatalf("logged %q", lines)
		}
		pass(3 * time.Hour)
		if lines := r.logs.with(digestLine); len(lines) != 1 {
			t.Errorf("logged %q, and nothing has changed", lines)
		}
		r.enqueue("c", 1)
		pass(time.Hour)
		if lines := r.logs.with(digestLine); len(lines) != 2 || !strings.Contains(lines[1], " ready=1 ") {
			t.Errorf("logged %q", lines)
		}
	})
}

// Unless it is asked for there is none, and the store is not asked.
func TestDigest_Off(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.handle("a", func(context.Context, *storage.Leased) error { return nil })
		r.start()
		r.enqueue("a", 2)
		pass(3 * time.Hour)
		if lines := r.logs.with(digestLine); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}
