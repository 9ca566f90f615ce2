package engine

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// bound is how many jobs of a queue or of a kind an engine has leased at a time
// at most, and so how many of them run. The sources of its lanes share it.
type bound struct {
	gate    *gate // nil: none
	limit   int   // by the settings; zero: none
	most    int   // while the gate is open; math.MaxInt: only the runners count
	held    int   // leases, until their attempts have ended
	claimed int   // while free runners are divided: by others; zero at all other times
	ramp    bool  // of a lane that opens gently
}

// bounds are those of the queues and kinds of an engine, by name. A queue or kind
// without a limit and a gate has none.
type bounds struct {
	queues, kinds map[string]*bound
	gates         gates
	ramps         map[storage.Lane]*ramp // of lanes that open gently
	each          map[string]*each       // by prefix
	listed        []string               // the queues and prefixes of the engine
}

func newBounds(c *Config) *bounds {
	all := &bounds{
		queues: map[string]*bound{}, kinds: map[string]*bound{}, each: map[string]*each{}, listed: c.Queues,
		gates: gates{cfg: c, done: make(chan struct{})},
	}
	add := func(to map[string]*bound, name string, of storage.Lane, most int, g Gate) {
		if most > 0 || g != nil {
			to[name] = &bound{limit: most, gate: all.gates.gate(of, g)}
		}
	}
	for _, queue := range c.Queues {
		s := c.settings(queue)
		most := s.Concurrency
		if isPrefix(queue) && most > 0 {
			all.each[queue], most = &each{limit: most, held: map[string]int{}}, 0
		}
		if s.Gate == nil {
			s.Gate = c.QueueHandlers[queue].Gate
		}
		add(all.queues, queue, storage.Lane{Queue: queue}, most, s.Gate)
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Handlers)) {
		if h := c.Handlers[kind]; h.AliasOf == "" {
			add(all.kinds, kind, storage.Lane{Kind: kind}, h.Concurrency, h.Gate)
		}
	}
	for kind, h := range c.Handlers {
		if b := all.kinds[h.AliasOf]; b != nil {
			all.kinds[kind] = b
		}
	}
	all.resize(c.most())
	return all
}

// of returns the bounds of a lane: unlike the sections of a policy, that of the
// kind takes nothing from that of the queue, which protects what all kinds share.
func (all *bounds) of(queue, kind string) (own []*bound) {
	by := Listed(all.listed, queue)
	for _, b := range []*bound{all.queues[by], all.ofKind(queue, kind)} {
		if b != nil {
			own = append(own, b)
		}
	}
	for _, lane := range all.rampsOver(queue, kind) {
		own = append(own, &all.ramps[lane].bound)
	}
	return own
}

// rampsOver returns the lanes that have a lane in them and a ramp.
func (all *bounds) rampsOver(queue, kind string) (lanes []storage.Lane) {
	if len(all.ramps) == 0 {
		return nil
	}
	for _, name := range slices.Compact([]string{Listed(all.listed, queue), queue}) {
		for _, k := range slices.Compact([]string{storage.AnyKind, kind}) {
			if lane := (storage.Lane{Queue: name, Kind: k}); all.ramps[lane] != nil {
				lanes = append(lanes, lane)
			}
		}
	}
	return lanes
}

// ofKind returns the bound of the kind of a lane, or nil.
func (all *bounds) ofKind(queue, kind string) *bound {
	if _, every := all.gates.cfg.handlesAll(queue); every {
		return nil
	}
	return all.kinds[kind]
}

// divide divides all pairs of a queue and a kind by throttle and bounds. Limited
// sources come first, as what they leave is for the others.
func divide(c *Config, bounds *bounds) (all []*source) {
	names := bounds.names(c)
	for _, queue := range names {
		var own []*source
		for _, kind := range bounds.kindsOf(c, queue) {
			x := &source{throttle: c.throttleOf(queue, kind), bounds: bounds.of(queue, kind), each: bounds.each[Listed(c.Queues, queue)]}
			if x.each != nil {
				x.Each = x.each.limit
			}
			h, _ := c.handler(queue, kind)
			if x.batch = h.Batch; x.batch != nil {
				x.Min, x.Wait, x.sizing = x.batch.Min, x.batch.Wait, new(sizing)
			}
			i := slices.IndexFunc(own, x.like)
			if i < 0 {
				i = len(own)
				own = append(own, x)
			}
			own[i].Kinds = append(own[i].Kinds, kind)
		}
		for _, s := range own {
			i := slices.IndexFunc(all, func(o *source) bool {
				return o.like(s) && slices.Equal(o.Kinds, s.Kinds) && joins(queue, o.Queues, names)
			})
			if i < 0 {
				i = len(all)
				all = append(all, s)
			}
			all[i].Queues = append(all[i].Queues, queue)
		}
	}
	except(all, names)
	slices.SortStableFunc(all, func(a, b *source) int {
		switch {
		case a.limited() == b.limited():
			return 0
		case a.limited():
			return -1
		}
		return 1
	})
	return all
}

// limited reports whether fewer jobs of s can run than there are runners.
func (s *source) limited() bool {
	return slices.ContainsFunc(s.bounds, func(b *bound) bool { return b.most < math.MaxInt })
}

// like reports whether two sources have the same throttle and bounds, and no batches.
func (s *source) like(o *source) bool {
	return s.batch == nil && o.batch == nil && s.throttle == o.throttle && s.each == o.each && slices.Equal(s.bounds, o.bounds)
}

// throttleOf returns the throttle of a lane, or nil. As with all sections of a
// policy, that of the kind takes the place of the queue's.
func (c *Config) throttleOf(queue, kind string) *Throttle {
	h, _ := c.handler(queue, kind)
	if h.Policy.Throttle != nil && !c.queuePolicy(queue).DisableSubscriptionOverrides {
		return h.Throttle
	}
	return c.settings(queue).Throttle
}

// room returns how many more jobs of s may be leased. There is none behind a gate
// that is not known to be open.
func (s *source) room() int {
	for _, b := range s.bounds {
		if !b.gate.lets() {
			return 0
		}
	}
	return s.left()
}

// left returns how many more jobs of s may be leased once its gates are open.
func (s *source) left() int {
	n := math.MaxInt
	for _, b := range s.bounds {
		n = min(n, max(b.most-b.held-b.claimed, 0))
	}
	return n
}

// nextAt returns when up to want jobs of s can be leased, or zero if an attempt has
// to end or a gate to open before.
func (s *source) nextAt(now time.Time, want int) time.Time {
	want = min(want, s.room())
	switch {
	case want == 0:
		return time.Time{}
	case s.throttle == nil:
		return now
	}
	return s.throttle.next(now, s.inStep(want)*s.perCall())
}

// claim takes up to n calls' worth of what the throttle and the bounds of s leave, and
// returns how many. It asks for their jobs; for those of batches once.
func (s *source) claim(now time.Time, n int) int {
	if s.batch != nil && s.N > 0 {
		return 0
	}
	n = s.inStep(min(n, s.room()))
	each, more := s.perCall(), 0
	if s.sizing != nil {
		more = min(s.sizing.more(), s.batch.Max-each)
	}
	jobs := n*each + min(n, 1)*more
	if s.throttle != nil && n > 0 {
		jobs = s.throttle.claim(now, jobs)
		n = min(n, (jobs+each-1)/each) // what one has more makes no further call
	}
	s.N += jobs
	if s.batch != nil && s.batch.ByGroup {
		s.ByGroup = each + more
	}
	s.claimed(n)
	return n
}

// claimed notes that n jobs are about to come, which others cannot be leased
// beside.
func (s *source) claimed(n int) {
	for _, b := range s.bounds {
		b.claimed += n
	}
}

// held notes n more leases of a queue, or less.
func (s *source) held(queue string, n int) {
	if s.each != nil {
		s.each.hold(queue, n)
	}
	for _, b := range s.bounds {
		b.held += n
	}
}

// divided forgets all claims: what was asked for is either leased or is not.
func (s *sources) divided() {
	for _, o := range s.all {
		for _, b := range o.bounds {
			b.claimed = 0
		}
	}
}

// lanesOf returns the source of each lane.
func lanesOf(all []*source) map[storage.Lane]*source {
	lanes := map[storage.Lane]*source{}
	for _, s := range all {
		for _, queue := range s.Queues {
			for _, kind := range s.Kinds {
				lanes[storage.Lane{Queue: queue, Kind: kind}] = s
			}
		}
	}
	return lanes
}
