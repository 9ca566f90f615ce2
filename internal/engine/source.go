package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// source is what is leased by one exchange: jobs under the same throttle, or
// under none. Without throttles there is one source.
type source struct {
	storage.Source
	throttle *Throttle
	// hungry: there may be jobs ready that nobody told us about.
	hungry bool
	offer  storage.Offer // or nil
	room   int           // said to offer; guarded by the mailbox
}

// sources are all that is leased from.
type sources struct {
	all     []*source
	turn    int      // whose it is to be leased from
	nextDue wallTime // of a scheduled job: there may be work for all
	leasing bool     // the exchange under way leases
	// offering: the store hands over jobs of some of them. True until that
	// was withdrawn.
	offering bool
}

// newSources divides all pairs of a queue and a kind.
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

// throttleOf gives what the jobs of a kind in a queue are under. As with all
// sections of a policy, that of the kind takes the place of the queue's.
func (c *Config) throttleOf(queue, kind string) *Throttle {
	line, h := c.line(queue), c.Handlers[kind]
	if h.Policy.Throttle != nil && !line.Policy.DisableSubscriptionOverrides {
		return h.Throttle
	}
	return line.Throttle
}

// hunger makes all sources hungry.
func (l *loop) hunger() {
	for _, s := range l.sources.all {
		s.hungry = true
	}
}

// pick gives the next source in turn that can be leased from, of all or of
// those that are hungry, or nil. Taking turns, none that has many jobs keeps
// another from the free runners.
func (l *loop) pick(now time.Time, all bool) *source {
	want := l.want()
	if want == 0 {
		return nil
	}
	for i := range l.sources.all {
		s := l.sources.all[(l.sources.turn+i)%len(l.sources.all)]
		if (s.hungry || all) && (s.throttle == nil || !s.throttle.next(now, want).After(now)) {
			return s
		}
	}
	return nil
}

// tokenAt gives when a source that waits for nothing but its throttle can be
// leased from, or zero.
func (l *loop) tokenAt(now time.Time) (at time.Time) {
	for _, s := range l.sources.all {
		if !s.hungry || s.throttle == nil {
			continue
		}
		if want := l.want(); want > 0 {
			at = sooner(at, s.throttle.next(now, want))
		}
	}
	return at
}

// lease has an exchange ask for jobs of s.
func (l *loop) lease(s *source, now time.Time, x *storage.Exchange) {
	if len(l.sources.all) > 1 {
		l.sources.turn = slices.Index(l.sources.all, s) + 1
	}
	x.Source, x.Want = s.Source, max(l.want()-l.endRoom(), 0)
	if s.throttle != nil {
		x.Want = s.throttle.claim(now, x.Want)
	}
	if x.Want == 0 {
		return // somebody else was faster, or the runners have what was handed over
	}
	// What the answer does not know is what comes up from here on. But it knows
	// nothing of the other sources, whose jobs the exchange may make ready.
	s.hungry = false
	if len(l.sources.all) == 1 {
		l.sources.nextDue = wallTime{}
	}
}

// refund gives back what was granted for jobs that there are not.
func (s *source) refund(n int) {
	if s.throttle != nil {
		s.throttle.refund(n)
	}
}

// refund gives back what was granted for an attempt that will not start.
func (a *attempt) refund() {
	if a.throttle != nil {
		a.throttle.refund(1)
		a.throttle = nil
	}
}
