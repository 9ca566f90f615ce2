package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	firstBackoff = time.Second
	mostBackoff  = 5 * time.Minute
	// mostHeeded is how long a Retry-After is heeded at most.
	mostHeeded = time.Hour
)

// away is the gate of a relayed queue: it is closed while the server cannot be sent jobs. While it is,
// and somebody waits for it, it asks the server, later each time.
type away struct {
	ask   func(context.Context) error // returns nil if the server can be sent jobs
	first time.Duration               // the backoff after one failure

	mu      sync.Mutex
	closed  bool
	reason  string
	changed chan struct{}
	until   time.Time // it asks then
	backoff time.Duration
	timer   *time.Timer
}

func newAway(first time.Duration, ask func(context.Context) error) *away {
	return &away{ask: ask, first: first, changed: make(chan struct{})}
}

// State implements [errand.Gate].
func (g *away) State() (open bool, reason string, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && g.timer == nil {
		g.timer = time.AfterFunc(time.Until(g.until), g.try)
	}
	return !g.closed, g.reason, g.changed
}

// AnswersAtOnce reports whether a gate is g.
func (g *away) AnswersAtOnce(gate any) bool { return gate == any(g) }

// is returns what State does, without the wish to know more.
func (g *away) is() (open bool, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed, g.reason
}

// opensWithin waits until the gate is open, and reports whether it is. It waits no longer than d or until stops
// has something, and not at all if the server will be asked after d, or has no room: it may have none for long, and
// people see why a queue stands still if no job is in hand.
func (g *away) opensWithin(d time.Duration, stops <-chan struct{}) bool {
	over := time.NewTimer(d)
	defer over.Stop()
	for end := time.Now().Add(d); ; {
		open, reason, changed := g.State()
		g.mu.Lock()
		until := g.until
		g.mu.Unlock()
		switch {
		case open:
			return true
		case until.After(end), reason == noRoom:
			return false
		}
		select {
		case <-changed:
		case <-over.C:
			return false
		case <-stops:
			return false
		}
	}
}

// shut closes the gate, and returns the reason as an error. It asks after a time that doubles each time that the
// gate is closed or has asked in vain, until reached is called; or after wait, if that is not zero. The requests
// under way fail together: that is one failure.
func (g *away) shut(reason string, wait time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait = min(wait, mostHeeded); wait == 0 && !g.closed {
		wait = g.later()
	}
	if until := time.Now().Add(wait); wait > 0 && until.After(g.until) || !g.closed {
		g.until = until
	}
	if !g.closed || g.reason != reason {
		g.closed, g.reason = true, reason
		g.tell()
	}
	return errors.New(reason)
}

// later returns for how long it waits after one more failure.
func (g *away) later() time.Duration {
	g.backoff = min(max(2*g.backoff, g.first), max(mostBackoff, g.first))
	return time.Duration(float64(g.backoff) * (0.8 + 0.4*rand.Float64()))
}

// reached notes that the server has taken something.
func (g *away) reached() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backoff = 0
}

// tell tells those who wait that something has changed.
func (g *away) tell() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// try asks, and opens the gate if the server can be sent jobs. If it is to wait longer by now, it does.
func (g *away) try() {
	g.mu.Lock()
	if left := time.Until(g.until); left > 0 {
		g.timer = time.AfterFunc(left, g.try)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	err := g.ask(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = nil
	switch now := time.Now(); {
	case err == nil && !g.until.After(now):
		g.closed, g.reason = false, ""
	case !g.until.After(now): // nobody has said when
		g.until = now.Add(g.later())
	}
	g.tell() // those who still wait call State again
}
