package engine

import (
	"context"
	"time"
)

// caller leads to a goroutine that calls the store for the loop, which must
// never wait. It makes one call at a time.
type caller struct {
	calls   chan call
	answers chan func(now time.Time)
	busy    bool // a call is under way
}

// call calls the store. The loop runs what it returns.
type call func(ctx context.Context) (apply func(now time.Time))

func newCaller() caller {
	return caller{calls: make(chan call, 1), answers: make(chan func(time.Time), 1)}
}

// run makes the calls, until end is called.
func (c caller) run(ctx context.Context) {
	defer close(c.answers)
	for f := range c.calls {
		c.answers <- f(ctx)
	}
}

// do has a call made. No other may be under way.
func (c *caller) do(f call) {
	c.busy = true
	c.calls <- f
}

// end waits until the goroutine has ended.
func (c *caller) end() {
	close(c.calls)
	for range c.answers {
	}
}

// answered takes the answer of a call. After a fatal error of the other caller
// nothing is known of the leases any more, and the answer counts for nothing.
func (l *loop) answered(c *caller, apply func(now time.Time)) {
	c.busy = false
	if l.shutdown.fatal == nil {
		apply(time.Now())
	}
}
