package metrics

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// limit is how long a look may take.
	limit = 2 * time.Second
	// healthLimit is the part of it in which the health is asked for: that waits for its turn
	// to write, and the other numbers do not.
	healthLimit = time.Second
	// pace is the time from the beginning of a look to that of the next one.
	pace = time.Second
)

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
}

// NewSource returns a source of the numbers of q. It returns a [errand.FieldError] if an option
// is not as described there. If q is nil, it is one that cannot be read.
func NewSource(q *errand.Queue, o *Options) (*Source, error) {
	opts := *cmp.Or(o, &Options{})
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts.Lanes = cmp.Or(opts.Lanes, defaultLanes)
	opts.Merge = slices.Clone(opts.Merge)
	return &Source{queue: q, opts: opts, series: series{most: opts.Lanes, merge: opts.Merge}}, nil
}

// Gather returns the numbers, of a look that began less than a second ago or of a new one. All
// families are there. If the queue cannot be read within 2 s, or ctx ends, only errand_up
// has a sample, and Gather returns why. The families are shared: do not change them.
func (s *Source) Gather(ctx context.Context) ([]Family, error) {
	if s.queue == nil {
		return down(), errors.New("errand: metrics: there is no queue")
	}
	l := s.look()
	wait, stop := context.WithTimeout(ctx, limit)
	defer stop()
	select {
	case <-l.ended:
		return l.families, l.err
	case <-wait.Done():
		return down(), fmt.Errorf("errand: metrics: %w", cmp.Or(ctx.Err(), errNoAnswer))
	}
}

var errNoAnswer = fmt.Errorf("the queue has not answered for %v", limit)

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
		ctx, stop := context.WithTimeout(context.Background(), limit)
		defer stop()
		state, err := read(ctx, s.queue, s.opts.File)
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.err = err; err != nil {
			l.families = down()
		} else {
			l.families = s.series.families(state)
		}
		s.looking, s.last = nil, l
		close(l.ended)
	}()
	return l
}
