package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand"
)

// frozen returns why nothing can be done on these pages, empty if it can.
func (b *board) frozen(ctx context.Context) string {
	switch {
	case b.o.ReadOnly:
		return "This dashboard is for reading only: errand dashboard runs with --read-only, or the program sets dashboard.Options.ReadOnly."
	case b.o.Writer != nil:
		return ""
	}
	if b.mode.reads(ctx, b.q) {
		return "The queue is open for reading only, and dashboard.Options.Writer is not set."
	}
	return ""
}

// mode is whether a queue can only be read.
type mode struct {
	mu       sync.Mutex
	asked    time.Time
	writable bool // it was once
	readOnly bool
}

// reads reports whether q can only be read. A queue that cannot be written for another reason than
// that, such as a full disk, is not meant: an action says so.
func (m *mode) reads(ctx context.Context, q *errand.Queue) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writable || time.Since(m.asked) < readFor {
		return m.readOnly
	}
	ctx, stop := withTimeout(ctx, readFor/4)
	defer stop()
	h := q.Health(ctx, &errand.HealthOptions{MaxAge: -1})
	m.readOnly = slices.ContainsFunc(h.Reasons, func(r errand.HealthReason) bool { return r.Code == errand.HealthReadOnly })
	m.writable, m.asked = h.Ready, time.Now()
	return m.readOnly
}
