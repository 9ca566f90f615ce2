package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
)

// gathering puts requests that wait at the same time into one transaction. No timer is
// involved: what comes while a transaction is under way waits for its end, and goes with
// the next. The caller that is first in line runs the transaction for all.
type gathering struct {
	mu      sync.Mutex
	waiting []*request
	busy    bool
}

// request is an Enqueue.
type request struct {
	now     time.Time
	jobs    []storage.NewJob
	bytes   int
	answers []storage.Enqueued
	err     error
	done    chan struct{} // closed once it is answered
	lead    chan struct{} // has a value once the caller is to run the next transaction
}

func newRequest(now time.Time, jobs []storage.NewJob) *request {
	r := &request{now: now, jobs: jobs, done: make(chan struct{}), lead: make(chan struct{}, 1)}
	for i := range jobs {
		r.bytes += len(jobs[i].Args) + len(jobs[i].Headers) + len(jobs[i].Policy)
	}
	return r
}

// do returns when r is answered. A request whose ctx ends while it waits is withdrawn.
func (g *gathering) do(ctx context.Context, r *request, run func(context.Context, []*request) error) {
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	if !g.busy {
		g.busy = true
		r.lead <- struct{}{}
	}
	g.mu.Unlock()
	select {
	case <-r.done:
		return
	case <-r.lead:
	case <-ctx.Done():
		if g.withdraw(r) {
			r.err = ctx.Err()
			return
		}
		select {
		case <-r.done:
			return
		case <-r.lead:
		}
	}
	all := g.take(r)
	if err := ctx.Err(); err != nil { // the others have contexts of their own
		r.err, all = err, all[1:]
	}
	runAll(ctx, all, run)
	g.pass()
	for _, w := range all {
		close(w.done)
	}
}

// withdraw takes r out of those that wait. It reports whether r was among them, and is not
// the one that others wait for.
func (g *gathering) withdraw(r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, r)
	if i < 0 || len(r.lead) > 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// take returns r and those that wait beside it, as far as one statement goes.
func (g *gathering) take(r *request) []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(w *request) bool { return w == r })
	all := []*request{r}
	jobs, size, n := len(r.jobs), r.bytes, 0
	for _, w := range g.waiting {
		jobs, size = jobs+len(w.jobs), size+w.bytes
		if jobs > insertJobs || size > insertBytes {
			break
		}
		n++
	}
	all = append(all, g.waiting[:n]...)
	g.waiting = slices.Delete(g.waiting, 0, n)
	return all
}

// pass lets the next request run a transaction.
func (g *gathering) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		g.busy = false
		return
	}
	g.waiting[0].lead <- struct{}{}
}

// runAll runs all requests in one transaction. If that fails, it runs each alone, so that
// each has its own error, unless it is not known whether the transaction took place.
func runAll(ctx context.Context, all []*request, run func(context.Context, []*request) error) {
	if len(all) == 0 {
		return
	}
	if len(all) > 1 || ctx.Err() != nil { // it goes on for the others
		ctx = context.WithoutCancel(ctx)
	}
	err := run(ctx, all)
	if err != nil && len(all) > 1 && !errors.Is(err, storage.ErrUnknownOutcome) {
		for _, r := range all {
			r.err = run(ctx, []*request{r})
		}
		return
	}
	for _, r := range all {
		r.err = err
	}
}
