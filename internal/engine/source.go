package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// source is a part of the lanes that the engine works for: those under the same
// throttle, or those under none. Without throttles there is one source.
type source struct {
	storage.Want
	throttle *Throttle
	// mayHaveWork: the last lease got all it asked for, or an event said that
	// there may be more, so the source is to be asked again.
	mayHaveWork bool
	offer       storage.Offer // nil: its jobs are not handed over
	capacity    int           // announced to offer; guarded by the mailbox
}

// sources are all sources of an engine.
type sources struct {
	all     []*source
	turn    int      // the index of the source that is asked next
	nextDue wallTime // a scheduled job is due, of any source
	leasing bool     // the exchange under way leases
	// offering: offers were made and have not been withdrawn.
	offering bool
}

// newSources divides all pairs of a queue and a kind into sources.
func newSources(c *Config) (all []*source) {
	for _, queue := range c.Queues {
		var own []*source
		for _, kind := range slices.Sorted(maps.Keys(c.Handlers)) {
			t := c.throttleOf(queue, kind)
			i := slices.IndexFunc(own, func(s *source) bool { return s.throttle == t })
			if i < 0 {
				i = len(own)
				own = append(own, &source{throttle: t})
			}
			own[i].Kinds = append(own[i].Kinds, kind)
		}
		for _, s := range own {
			i := slices.IndexFunc(all, func(o *source) bool { return o.throttle == s.throttle && slices.Equal(o.Kinds, s.Kinds) })
			if i < 0 {
				i = len(all)
				all = append(all, s)
			}
			all[i].Queues = append(all[i].Queues, queue)
		}
	}
	return all
}

// throttleOf returns the throttle of a lane, or nil. As with all sections of a
// policy, that of the kind takes the place of the queue's.
func (c *Config) throttleOf(queue, kind string) *Throttle {
	h := c.Handlers[kind]
	if h.Policy.Throttle != nil && !c.queuePolicy(queue).DisableSubscriptionOverrides {
		return h.Throttle
	}
	return c.Settings[queue].Throttle
}

// wake notes that every source may have work.
func (s *sources) wake() {
	for _, o := range s.all {
		o.mayHaveWork = true
	}
}

// pick returns the next source in turn whose throttle grants a lease, or nil.
// Unless all is true it must be a source that may have work. By the turns a
// source of many jobs does not keep the others from the free runners.
func (l *loop) pick(now time.Time, all bool) *source {
	want := l.want()
	if want == 0 {
		return nil
	}
	for i := range l.sources.all {
		s := l.sources.all[(l.sources.turn+i)%len(l.sources.all)]
		if (s.mayHaveWork || all) && (s.throttle == nil || !s.throttle.next(now, want).After(now)) {
			return s
		}
	}
	return nil
}

// tokenAt returns when the throttle of a source that may have work will grant a
// lease, or zero if there is no such source.
func (l *loop) tokenAt(now time.Time) (at time.Time) {
	for _, s := range l.sources.all {
		if !s.mayHaveWork || s.throttle == nil {
			continue
		}
		if want := l.want(); want > 0 {
			at = sooner(at, s.throttle.next(now, want))
		}
	}
	return at
}

// lease makes an exchange ask for jobs of s.
func (l *loop) lease(s *source, now time.Time, x *exchange) {
	if len(l.sources.all) > 1 {
		l.sources.turn = slices.Index(l.sources.all, s) + 1
	}
	x.want = max(l.want()-l.pauseOffers(), 0)
	if s.throttle != nil {
		x.want = s.throttle.claim(now, x.want)
	}
	if x.want == 0 {
		return // another engine took the tokens, or handed jobs took the runners
	}
	x.Wants = []storage.Want{{Queues: s.Queues, Kinds: s.Kinds, N: x.want}}
	// The answer tells all about s but for events from here on. It tells nothing
	// about the other sources, whose jobs the exchange may make ready.
	s.mayHaveWork = false
	if len(l.sources.all) == 1 {
		l.sources.nextDue = wallTime{}
	}
}

// refund returns tokens that were claimed for jobs that do not exist.
func (s *source) refund(n int) {
	if s.throttle != nil {
		s.throttle.refund(n)
	}
}

// refund returns the token that was claimed for an attempt that will not start.
func (a *attempt) refund() {
	if a.throttle != nil {
		a.throttle.refund(1)
		a.throttle = nil
	}
}
