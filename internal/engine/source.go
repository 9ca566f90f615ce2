package engine

import (
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// source is a part of the lanes that the engine works for: those under the same
// throttle and bounds, or under none. Without any of these there is one source.
type source struct {
	// Want is for the lanes; its N is what the exchange under way asks for.
	storage.Want
	throttle *Throttle
	bounds   []*bound
	each     *each   // of the queues of a prefix; nil: none
	batch    *Batch  // of its only handler; nil: each job is run by a call of its own
	weight   int     // of the jobs that were leased last for batches, on average, in bytes
	sizing   *sizing // of batches
	// mayHaveWork: the last lease got all it asked for, or an event said that
	// there may be more, so the source is to be asked again.
	mayHaveWork bool
	peeking     bool          // the counts are being looked at, and it was not woken since
	denied      bool          // its throttle has kept jobs waiting since the chore show looked
	waits       bool          // jobs that are due were seen, and the gates not asked since
	shutAt      time.Time     // since when a gate is known to be closed; zero: all are open
	failedAt    time.Time     // an attempt failed, or the loop began; zero: no job waits for a retry
	offer       storage.Offer // nil: its jobs are not handed over
	capacity    int           // announced to offer; guarded by the mailbox
}

// sources are all sources of an engine.
type sources struct {
	all     []*source
	lanes   map[storage.Lane]*source // those that are listed
	listed  []string                 // the queues and prefixes of the engine
	open    bool                     // there are lanes that are not listed: of a prefix, or of any kind
	gates   *gates
	turn    int      // the index of the source that is asked next
	nextDue wallTime // a scheduled job is due, of any source
	due     bool     // jobs that are scheduled may be due
	leasing bool     // the exchange under way leases
	urgent  bool     // a job may be urgent
	// offering: offers were made and have not been withdrawn.
	offering bool
	ramps    ramps
}

// newSources divides all lanes of an engine into sources.
func newSources(c *Config) sources {
	bounds := newBounds(c)
	all := divide(c, bounds)
	open := len(prefixes(c.Queues))+len(c.QueueHandlers) > 0
	return sources{all: all, lanes: lanesOf(all), listed: c.Queues, open: open, gates: &bounds.gates, ramps: ramps{bounds: bounds}}
}

// of returns the source of a job, or nil if no source has the job's lane.
func (s *sources) of(job *storage.Leased) *source {
	return s.find(storage.Lane{Queue: job.Queue, Kind: job.Kind})
}

// begin notes that every source may have work, from before the loop began too.
func (s *sources) begin(now time.Time) {
	s.wake()
	s.due, s.urgent = true, true
	for _, o := range s.all {
		o.failedAt = now
	}
}

// wake notes that every source may have work.
func (s *sources) wake() {
	for _, o := range s.all {
		o.mayHaveWork, o.peeking = true, false
	}
}

// pick returns the sources whose throttles and bounds grant a lease, by turns.
// Unless all is true they must be sources that may have work.
func (l *loop) pick(now time.Time, all bool) (from []*source) {
	want := l.want()
	if want == 0 {
		return nil
	}
	l.sources.freed()
	for i := range l.sources.all {
		s := l.sources.all[(l.sources.turn+i)%len(l.sources.all)]
		if s.mayHaveWork && s.left() > 0 {
			l.askGates(s, now)
		}
		if (s.mayHaveWork || all) && reached(l.leaseAt(s, now, want), now) {
			from = append(from, s)
		}
	}
	return from
}

// tokenAt returns when the throttle of a source that may have work will grant a
// lease, or zero if there is no such source.
func (l *loop) tokenAt(now time.Time) (at time.Time) {
	for _, s := range l.sources.all {
		if !s.mayHaveWork || s.throttle == nil {
			continue
		}
		if want := l.want(); want > 0 {
			next := l.leaseAt(s, now, want)
			s.denied = s.denied || next.After(now)
			at = sooner(at, next)
		}
	}
	return at
}

// leaseAt returns when up to want jobs of s can be leased, or zero if something has to
// happen before.
func (l *loop) leaseAt(s *source, now time.Time, want int) time.Time {
	if l.mayOpen(s) {
		return time.Time{}
	}
	return s.nextAt(now, want)
}

// lease makes an exchange ask for jobs of sources. They share what the runners can
// take, so that a source of many jobs does not keep the others from them. If that
// is too little for all, the source whose turn it is comes first.
func (l *loop) lease(from []*source, now time.Time, x *exchange) {
	if len(from) == 0 {
		return
	}
	l.sources.turn = slices.Index(l.sources.all, from[0]) + 1
	share(from, max(l.want()-l.pauseOffers(), 0), now)
	l.sources.divided()
	for _, s := range l.sources.all {
		if s.N == 0 {
			continue // another engine took the tokens, or others took the runners
		}
		x.from = append(x.from, s)
		s.mayHaveWork = false
		if s.each != nil {
			s.EachOf, s.each.asked = s.each.room(), true
		}
	}
	if len(x.from) == 0 {
		return
	}
	// A store may remember the lanes of a list of wants: it is nearly always the same.
	for _, s := range l.sources.all {
		x.Wants = append(x.Wants, l.ready.holds.want(s))
	}
	// The answer tells all about these sources but for events from here on. It
	// tells nothing about the others, whose jobs the exchange may make ready.
	if len(x.from) == len(l.sources.all) {
		l.sources.nextDue = wallTime{}
	}
}

// share sets the N of sources, which add up to free at most. What a throttle or a
// bound does not grant is shared again among the sources that got all of their
// shares. The list is overwritten.
func share(from []*source, free int, now time.Time) {
	for free > 0 && len(from) > 0 {
		again := from[:0]
		for i, s := range from {
			sharing := len(from) - i
			fair := (free + sharing - 1) / sharing
			n := s.claim(now, fair)
			free -= n
			if n == fair {
				again = append(again, s)
			}
		}
		from = again
	}
}

// leased notes which jobs the exchange under way has brought of its sources. A
// source has given all it has unless it gave as many as it was asked for, or more
// is true.
func (s *sources) leased(x *exchange, jobs []storage.Leased, more bool) {
	for i := range jobs {
		if o := s.of(&jobs[i]); o != nil && o.N > 0 && !jobs[i].Urgent {
			o.N--
		}
	}
	for _, o := range x.from {
		o.mayHaveWork = o.mayHaveWork || more || o.N == 0 || o.brought(jobs)
		if o.throttle != nil {
			o.throttle.refund(o.N)
		}
		if o.each != nil {
			o.each.asked = false
		}
		o.N = 0
	}
}

// refund returns the token that was claimed for an attempt that will not start.
func (a *attempt) refund() {
	if a.throttle != nil {
		a.throttle.refund(1)
		a.throttle = nil
	}
}
