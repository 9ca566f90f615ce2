package webhook

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/errandq/errand"
)

const (
	// countsFor is how long a delivery counts for the concurrency of its worker: while it
	// connects, signs and sends. After that it waits, and needs no more than memory.
	countsFor = 100 * time.Millisecond
	// An endpoint gets no more requests while mostUnanswered of them have had no answer for
	// unansweredAfter. Its deliveries are held for lookAgain then.
	mostUnanswered  = 16
	unansweredAfter = time.Second
	lookAgain       = time.Second
	// timeoutsInARow is after how many attempts that ran out of time an endpoint gets one
	// request at a time.
	timeoutsInARow = 3
)

// errSlow is why deliveries to an endpoint wait.
var errSlow = errors.New("webhook: endpoint does not answer")

// slow knows the requests under way, by endpoint, and which endpoints do not answer. Of an
// endpoint that does, with no request under way, nothing is kept.
type slow struct {
	mu  sync.Mutex
	all map[string]*waits
}

// waits are what an endpoint lets others wait for.
type waits struct {
	sent     map[*time.Time]struct{} // requests without an answer
	timeouts int                     // in a row
}

// begin notes that a request is about to be sent, and returns what notes its end. If the
// endpoint is to get none, it returns an error that has its deliveries held: the worker
// lets one through after that, and the others when it is done.
func (s *slow) begin(id string, timeout time.Duration) (end func(answered, late bool), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p := s.all[id]
	if p == nil {
		p = &waits{sent: map[*time.Time]struct{}{}}
	}
	if p.timeouts >= timeoutsInARow && len(p.sent) > 0 {
		return nil, errand.HoldLane(timeout, fmt.Errorf("%w: %d attempts in a row ran out of time", errSlow, p.timeouts))
	}
	n := 0
	for at := range p.sent {
		if now.Sub(*at) >= unansweredAfter {
			n++
		}
	}
	if n >= mostUnanswered {
		return nil, errand.HoldLane(lookAgain, fmt.Errorf("%w: %d requests have had no answer for %v", errSlow, n, unansweredAfter))
	}
	if s.all == nil {
		s.all = map[string]*waits{}
	}
	s.all[id] = p
	p.sent[&now] = struct{}{}
	return func(answered, late bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(p.sent, &now)
		switch {
		case answered:
			p.timeouts = 0
		case late:
			p.timeouts++
		}
		if len(p.sent) == 0 && p.timeouts == 0 && s.all[id] == p {
			delete(s.all, id)
		}
	}, nil
}

// forget is for an endpoint that was deleted.
func (s *slow) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}
