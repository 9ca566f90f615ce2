package gate

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// CheckOptions are the times of a [Check].
type CheckOptions struct {
	// Interval is the time between requests while the gate is open. If zero, one
	// minute; for [DiskFree] 10 s.
	Interval time.Duration
	// Backoff is the time from the first failure to the next request. It doubles
	// with each further failure. If zero, 1 s.
	Backoff time.Duration
	// MaxBackoff is the longest time from a failure to the next request. If zero,
	// 5 minutes, or Backoff if that is longer; for [DiskFree] 10 s.
	MaxBackoff time.Duration
	// Timeout is the longest time that a request may take. If zero, 10 s.
	Timeout time.Duration
	// Jitter is the part of each time between requests by which the time is
	// changed at random, up or down: 0.2 makes 8 s to 12 s of 10 s. If zero, 0.2;
	// if negative, none.
	Jitter float64
}

const (
	minTime, maxTime = time.Millisecond, 24 * time.Hour
	// grace is how long after its end a request is waited for, and a success believed:
	// who waits for it may be slow to call again.
	grace = time.Second
	// maxReason is how many bytes of the text of an error a reason has.
	maxReason = 300
)

func (o *CheckOptions) withDefaults(interval, maxBackoff time.Duration) CheckOptions {
	var d CheckOptions
	if o != nil {
		d = *o
	}
	d.Interval = cmp.Or(d.Interval, interval)
	d.Backoff = cmp.Or(d.Backoff, time.Second)
	d.MaxBackoff = cmp.Or(d.MaxBackoff, max(maxBackoff, d.Backoff))
	d.Timeout = cmp.Or(d.Timeout, 10*time.Second)
	d.Jitter = max(cmp.Or(d.Jitter, 0.2), 0)
	return d
}

// options checks options that have their defaults.
func (f *faults) options(o *CheckOptions) {
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"interval", o.Interval}, {"backoff", o.Backoff}, {"max_backoff", o.MaxBackoff}, {"timeout", o.Timeout}} {
		if d.value < minTime || d.value > maxTime {
			f.field(d.field, d.value, fmt.Sprintf("must be zero or between %v and %v", minTime, maxTime))
		}
	}
	if o.MaxBackoff < o.Backoff {
		f.field("max_backoff", o.MaxBackoff, "must not be less than backoff")
	}
	if !(o.Jitter <= 1) {
		f.field("jitter", o.Jitter, "must be at most 1")
	}
}

// Check is a gate that asks whether it is open: a server, a file system, or a
// function of the application. [Dial], [HTTP], [DiskFree] and [NewCheck] return one.
// It is closed until the first answer. It is safe for concurrent use.
//
// A Check asks only while somebody waits, see the documentation of the package.
type Check struct {
	whom    string // "10.0.0.1:443"
	ask     func(context.Context) error
	options CheckOptions

	mu       sync.Mutex
	open     bool
	reason   string
	changed  chan struct{} // nil: nobody has called State since the last answer
	answered time.Time     // the time of the last answer
	wait     time.Duration // from the last answer to the next request
	backoff  time.Duration // zero: the last request was a success
	timer    *time.Timer   // nil: no request is planned
	asking   bool          // a request is under way
}

// NewCheck returns a Check that calls ask. The gate is open if ask returns nil.
// Else it is closed, and the text of the error is the reason. A panic of ask is an
// error. The context of a call ends with the timeout of the options. If ask does not
// return then, the gate is closed until ask does; ask is not called twice at a time.
//
// Whom names what is asked in reasons, such as "no answer from the meter within 10s".
// An empty name and a nil ask are refused with an [errand.FieldError], as are options
// out of their bounds: times of less than 1 ms or more than 24 h, a jitter above 1.
func NewCheck(whom string, ask func(context.Context) error, o *CheckOptions) (*Check, error) {
	var f faults
	if whom == "" {
		f.field("whom", whom, "must not be empty")
	}
	if ask == nil {
		f.field("ask", nil, "must not be nil")
	}
	return f.check(whom, ask, o.withDefaults(time.Minute, 5*time.Minute))
}

// check returns a Check, unless there are faults.
func (f *faults) check(whom string, ask func(context.Context) error, o CheckOptions) (*Check, error) {
	f.options(&o)
	if err := f.err(); err != nil {
		return nil, err
	}
	c := &Check{whom: whom, ask: ask, options: o}
	c.reason = c.unknown()
	return c, nil
}

// State implements [errand.Gate]. If no request is planned or under way, a call plans
// one: after the time that the options say, counted from the last answer, or at once if
// that is over.
func (c *Check) State() (open bool, reason string, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil && !c.asking {
		c.plan()
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.open, c.reason, c.changed
}

// AnswersAtOnce reports whether a gate is c itself, which engines may ask themselves, and
// not a gate that embeds c.
func (c *Check) AnswersAtOnce(gate any) bool { return gate == any(c) }

// Recheck makes the next request come at once, and the backoff begin anew. It is
// for an application that has heard of a change, such as a network that has come up.
// If nobody waits, the request comes with the next call of State.
func (c *Check) Recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait, c.backoff = 0, 0
	if c.timer != nil && c.timer.Stop() {
		c.timer.Reset(0)
	}
}

// plan starts the timer of the next request. If the request should have been made by
// now, nobody has waited for a while: an old success is not believed.
func (c *Check) plan() {
	idle := time.Since(c.answered)
	if idle >= max(c.wait, c.options.Interval) {
		c.backoff = 0
	}
	if idle >= c.wait+grace && c.open {
		c.open, c.reason = false, c.unknown()
	}
	c.timer = time.AfterFunc(c.wait-idle, c.request)
}

func (c *Check) request() {
	c.mu.Lock()
	c.timer, c.asking = nil, true
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), c.options.Timeout)
	defer cancel()
	over := false // guarded by mu
	late := time.AfterFunc(c.options.Timeout+grace, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !over {
			c.set(false, c.tooLate())
		}
	})
	open, reason := false, "the check ended its goroutine"
	defer func() {
		if r := recover(); r != nil {
			open, reason = false, fmt.Sprintf("panic: %v", r)
		}
		late.Stop()
		if !open && ctx.Err() != nil {
			reason = c.tooLate()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		over, c.asking = true, false
		c.answered = time.Now()
		c.wait = c.next(open)
		c.set(open, reason)
	}()
	if err := c.ask(ctx); err != nil {
		reason = err.Error() // without the lock: it is the application's
	} else {
		open = true
	}
}

// next returns the time until the request after an answer.
func (c *Check) next(ok bool) time.Duration {
	d := c.options.Interval
	if ok {
		c.backoff = 0
	} else {
		c.backoff = min(max(2*c.backoff, c.options.Backoff), c.options.MaxBackoff)
		d = c.backoff
	}
	return d + time.Duration(c.options.Jitter*(2*rand.Float64()-1)*float64(d))
}

// set opens the gate, or closes it for a reason, and tells all who wait.
func (c *Check) set(open bool, reason string) {
	c.open, c.reason = open, ""
	if !open {
		c.reason = short(reason)
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

func (c *Check) unknown() string { return "no answer from " + c.whom + " yet" }

func (c *Check) tooLate() string {
	return fmt.Sprintf("no answer from %s within %v", c.whom, c.options.Timeout)
}

// short returns a text as a reason has it: others may have chosen its words.
func short(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason] + "..."
	}
	return strings.ToValidUTF8(s, "")
}
