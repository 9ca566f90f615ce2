//go:build unix

package torture_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// voice is where a child says what happens, a line each, in the words that the
// ledger knows. Each call is one write. What is longer than the pipe takes at once may end
// in the middle of a line, which then was not said.
type voice struct {
	mu  sync.Mutex
	out io.Writer
}

func (v *voice) say(format string, args ...any) { v.lines([]string{fmt.Sprintf(format, args...)}) }

func (v *voice) lines(all []string) {
	if len(all) == 0 {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	// If nobody listens any more the child is about to end.
	_, _ = io.WriteString(v.out, strings.Join(all, "\n")+"\n")
}

// witness is a store that writes its calls and acknowledgements to the pipe, the
// latter before the caller has them.
type witness struct {
	*sqlite.Store
	voice *voice
	died  func(key int64) // told of each dead job
}

func (w *witness) Exchange(ctx context.Context, now time.Time, x storage.Exchange) (storage.ExchangeResult, error) {
	var lines []string
	for _, f := range x.Finish {
		lines = append(lines, fmt.Sprintf("ending %d %d %d %d", f.Key, f.Token, f.Outcome, until(now, x.Retention.Default)))
	}
	w.voice.lines(lines)
	r, err := w.Store.Exchange(ctx, now, x)
	if err != nil {
		return r, err
	}
	lines = lines[:0]
	for i, f := range x.Finish {
		switch r.Finished[i] {
		case storage.Applied:
			lines = append(lines, fmt.Sprintf("ended %d %d", f.Key, f.Token))
		case storage.Lost:
			lines = append(lines, fmt.Sprintf("lost %d %d", f.Key, f.Token))
		}
	}
	for i, l := range x.Extend {
		if r.Extended[i] == storage.Lost {
			lines = append(lines, fmt.Sprintf("lost %d %d", l.Key, l.Token))
		}
	}
	for _, l := range r.Leased {
		lines = append(lines, leasedLine(&l))
	}
	w.voice.lines(lines)
	for i, f := range x.Finish {
		if f.Outcome == storage.OutcomeDead && r.Finished[i] == storage.Applied && w.died != nil {
			w.died(f.Key)
		}
	}
	return r, nil
}

// until returns the end of the time that a finished job is kept, 0 if it is not.
func until(now time.Time, keep time.Duration) int64 {
	if keep <= 0 {
		return 0
	}
	return now.Add(keep).UnixMicro()
}

func leasedLine(l *storage.Leased) string {
	return fmt.Sprintf("leased %d %d %d %s", l.Key, l.Token, l.Attempt, l.Queue)
}

func (w *witness) Reclaim(ctx context.Context, now time.Time, mono, lease time.Duration, limit int) ([]storage.Reclaimed, error) {
	all, err := w.Store.Reclaim(ctx, now, mono, lease, limit)
	var lines []string
	for _, r := range all {
		lines = append(lines, leasedLine(&r.Leased), fmt.Sprintf("reclaimed %d %d %d", r.Key, r.Token, r.Fate))
	}
	w.voice.lines(lines)
	return all, err
}

func (w *witness) Offer(want storage.Want, lease time.Duration, receive func([]storage.Leased, time.Time)) storage.Offer {
	return w.Store.Offer(want, lease, func(jobs []storage.Leased, began time.Time) {
		var lines []string
		for i := range jobs {
			lines = append(lines, leasedLine(&jobs[i]))
		}
		w.voice.lines(lines)
		receive(jobs, began)
	})
}

func (w *witness) Cancel(ctx context.Context, now time.Time, id storage.ID, keep storage.Retention) (storage.State, error) {
	w.voice.say("cancelling %d %d", id.Key(), until(now, keep.Default))
	state, err := w.Store.Cancel(ctx, now, id, keep)
	if err == nil && state == storage.Cancelled {
		w.voice.say("cancelled %d", id.Key())
	}
	return state, err
}

// Redrive expects one ID.
func (w *witness) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	w.voice.say("redriving %d", sel.IDs[0].Key())
	step, err := w.Store.Redrive(ctx, now, sel, queue)
	if err == nil && step.N == 1 {
		w.voice.say("redriven %d", sel.IDs[0].Key())
	}
	return step, err
}

// Delete expects one ID.
func (w *witness) Delete(ctx context.Context, sel storage.Selection) (storage.Step, error) {
	w.voice.say("purging %d", sel.IDs[0].Key())
	step, err := w.Store.Delete(ctx, sel)
	if err == nil && step.N == 1 {
		w.voice.say("purged %d", sel.IDs[0].Key())
	}
	return step, err
}

func (w *witness) PurgeFinished(ctx context.Context, now time.Time) (int, time.Time, error) {
	w.voice.say("expiring %d", now.UnixMicro())
	return w.Store.PurgeFinished(ctx, now)
}

func (w *witness) Fire(ctx context.Context, now time.Time, firings []storage.Firing) ([]storage.Fired, error) {
	all, err := w.Store.Fire(ctx, now, firings)
	var lines []string
	for i, f := range all {
		for _, tick := range f.Ticks {
			if tick.Taken == storage.TickFired {
				lines = append(lines, fmt.Sprintf("ticked %s %d %s", firings[i].Name, tick.At.UnixMicro(), tick.ID))
			}
		}
	}
	w.voice.lines(lines)
	return all, err
}
