package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// limit is how long a look may take.
	limit = 2 * time.Second
	// healthLimit is the part of it in which the health is asked for: that waits for its turn
	// to write, and the other numbers do not. It is that for devices too, of which there may be many.
	healthLimit = time.Second
	// pace is the time from the beginning of a look to that of the next one.
	pace = time.Second
)

// withTimeout is [context.WithTimeout]. Tests by the real clock have no limits of time.
var withTimeout = context.WithTimeout

// Source gathers the numbers of a queue for other formats than that of [Handler]. It is safe for
// concurrent use.
type Source struct {
	queue *errand.Queue
	opts  Options

	mu      sync.Mutex
	looking *look // nil if nobody looks
	last    *look // nil before the first look has ended
	series  series
}

// look is one look at the queue, which any number of callers wait for.
type look struct {
	began    time.Time
	ended    chan struct{} // closed once the rest is set
	families []Family
	err      error
	text     func() []byte // the families as text, made once
}

// end sets what a look has found.
func (l *look) end(o *Options, families []Family, err error) *look {
	l.families, l.err = families, err
	l.text = sync.OnceValue(func() []byte {
		b := appendText(nil, families, o.Labels)
		if err != nil && !errors.Is(err, errNoQueue) { // a comment, for who looks
			b = append(b, "# "+strings.ReplaceAll(valid(err.Error()), "\n", " ")+"\n"...)
		}
		return b
	})
	return l
}

// NewSource returns a source of the numbers of q. It returns a [errand.FieldError] if an option
// is not as described there. If q is nil, it is one that cannot be read.
func NewSource(q *errand.Queue, o *Options) (*Source, error) {
	opts := *cmp.Or(o, &Options{})
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Lanes = cmp.Or(opts.Lanes, defaultLanes)
	opts.Merge, opts.Labels = slices.Clone(opts.Merge), maps.Clone(opts.Labels)
	return &Source{queue: q, opts: opts, series: series{most: opts.Lanes, merge: opts.Merge}}, nil
}

// Gather returns the numbers, of the look under way, of one that began less than a second ago or
// of a new one. All families are there, without [Options].Labels. If the queue cannot be read within 2 s, or ctx ends, only errand_up
// has a sample, and Gather returns why. The families are shared: do not change them.
func (s *Source) Gather(ctx context.Context) ([]Family, error) {
	l := s.wait(ctx)
	return l.families, wrap(l.err)
}

// wrap says whose error it is.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("errand: metrics: %w", err)
}

// wait returns a look that has ended.
func (s *Source) wait(ctx context.Context) *look {
	failed := func(err error) *look { return new(look).end(&s.opts, down(), err) }
	if s.queue == nil {
		return failed(errNoQueue)
	}
	l := s.look()
	waiting, stop := withTimeout(ctx, limit)
	defer stop()
	select {
	case <-l.ended:
		return l
	case <-waiting.Done():
		return failed(cmp.Or(ctx.Err(), errNoAnswer))
	}
}

var (
	errNoQueue  = errors.New("there is no queue")
	errNoAnswer = fmt.Errorf("the queue has not answered for %v", limit)
)

// look returns the look under way, else the last one, or a new one if that is too old. The new
// look belongs to nobody: a caller that goes away does not spoil it for the others.
func (s *Source) look() *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.looking != nil:
		return s.looking
	case s.last != nil && time.Since(s.last.began) < pace:
		return s.last
	}
	l := &look{began: time.Now(), ended: make(chan struct{})}
	s.looking = l
	go func() {
		ctx, stop := withTimeout(context.Background(), limit)
		defer stop()
		state, err := read(ctx, s.queue, s.opts.File)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			l.end(&s.opts, down(), err)
		} else {
			l.end(&s.opts, s.series.families(state), nil)
		}
		s.looking, s.last = nil, l
		close(l.ended)
	}()
	return l
}
