package sqlite

import (
	"math/rand/v2"
	"testing"
	"time"
)

// waiter is a writer that knows nothing of turns, as SQLite has it wait.
type waiter struct {
	asks  time.Time // next
	since time.Time // it waits, zero if it does not
	tries int
	took  []time.Duration
}

// meets reports whether the waiter asks between from and until, while the lock
// is free, and so has written by then.
func (w *waiter) meets(from, until time.Time, every time.Duration) bool {
	delays := []int{1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50}
	met := false
	for w.asks.Before(until) {
		if w.since.IsZero() {
			w.since = w.asks
		}
		if !w.asks.Before(from) {
			w.took = append(w.took, w.asks.Sub(w.since))
			w.asks, w.since, w.tries, met = w.asks.Add(every), time.Time{}, 0, true
			continue
		}
		delay := 100
		if w.tries < len(delays) {
			delay = delays[w.tries]
		}
		w.tries++
		w.asks = w.asks.Add(time.Duration(delay)*time.Millisecond + 300*time.Microsecond) // as timers are
	}
	return met
}

// unbroken lets a writer begin a transaction whenever the last one is over, for
// a minute, and returns how much of that it has left free.
func unbroken(p *pace, w *waiter, every time.Duration) float64 {
	const txn, between = 1900 * time.Microsecond, 50 * time.Microsecond
	now := time.Unix(0, 0)
	end, free := now.Add(time.Minute), time.Duration(0)
	for now.Before(end) {
		now = now.Add(between)
		if gap := p.due(now, now); gap > 0 {
			met := w != nil && w.meets(now, now.Add(gap), every)
			now, free = now.Add(gap), free+gap
			p.over(now, met)
		}
		now = now.Add(txn)
		p.ended = now
	}
	return float64(free) / float64(time.Minute)
}

//errand:shows a queue without other writers | | it leaves gaps of 3 % of the time, and none where it pauses anyway
func TestPace_NobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		inUse func() bool
		most  float64
	}{
		"unknown":          {nil, 0.03},
		"nothing in use":   {func() bool { return false }, 0.03},
		"always a reader":  {func() bool { return true }, 0.04},
		"readers at times": {func() bool { return rand.N(2) == 0 }, 0.04},
	} {
		if free := unbroken(&pace{inUse: c.inUse}, nil, 0); free > c.most {
			t.Errorf("%s: %.3f of the time was left free, want at most %.2f", name, free, c.most)
		}
	}
}

// One that waits gets in within 5 s, and within 100 ms once it was seen.
//
//errand:shows the application's own writes beside a busy queue | | the queue leaves the write lock free often enough for SQLite's waiters: the first one gets in within 5 s, and later ones within 100 ms
func TestPace_OneThatWaits(t *testing.T) {
	for phase := range 200 {
		w := &waiter{asks: time.Unix(1, int64(phase)*int64(27*time.Millisecond))}
		p := &pace{}
		if phase%2 == 1 {
			p.inUse = func() bool { return !w.since.IsZero() }
		}
		free := unbroken(p, w, 5*time.Millisecond)
		if len(w.took) < 1000 || free > 0.5 {
			t.Fatalf("%d writes, %.2f of the time was left free", len(w.took), free)
		}
		for i, d := range w.took {
			if i == 0 && d > 5*time.Second || i > 0 && d > 100*time.Millisecond {
				t.Fatalf("phase %d: write %d has waited for %v", phase, i, d)
			}
		}
	}
}

// Writers that rest for as long leave no gap.
//
//errand:shows a queue without other writers
func TestPace_Rests(t *testing.T) {
	p, now := &pace{}, time.Unix(0, 0)
	for range 10_000 {
		if gap := p.due(now, now); gap != 0 {
			t.Fatalf("a gap of %v", gap)
		}
		p.ended = now.Add(15 * time.Millisecond)
		now = p.ended.Add(longGap / 5)
	}
}
