package engine

import (
	"maps"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// each is how many jobs of each queue of a prefix an engine has leased at a time at most.
// The sources of the prefix share it. Queues are known only while jobs of them are leased,
// so that thousands cost nothing.
type each struct {
	limit int
	held  map[string]int // leases of each queue, until their attempts have ended
	asked bool           // the exchange under way was told the room
	freed bool           // a queue has room again, and the sources were not asked since
}

// hold notes n more leases of a queue, or less. An exchange that was told of less room than
// there is by then may pass over jobs of a queue that was not full either.
func (e *each) hold(queue string, n int) {
	was := e.held[queue]
	e.freed = e.freed || was+n < e.limit && (was >= e.limit || e.asked && n < 0)
	if e.held[queue] += n; e.held[queue] == 0 {
		delete(e.held, queue)
	}
}

// room returns how many jobs may be leased of the queues that have leases.
func (e *each) room() map[string]int {
	room := make(map[string]int, len(e.held))
	for queue, n := range e.held {
		room[queue] = e.limit - n
	}
	return room
}

// Listed returns by which of the names of an engine it works for a queue: its own, or the
// longest prefix; empty if by none.
func Listed(names []string, queue string) (by string) {
	for _, name := range names {
		if name == queue {
			return name
		}
		if len(name) > len(by) && isPrefix(name) && storage.MatchQueue([]string{name}, queue) {
			by = name
		}
	}
	return by
}

func isPrefix(name string) bool {
	_, ok := storage.QueuePrefix(name)
	return ok
}

// settings returns the settings of a queue.
func (c *Config) settings(queue string) QueueSettings {
	if s, ok := c.Settings[queue]; ok || c.SettingsOf == nil {
		return s
	}
	return c.SettingsOf(queue)
}

// prefixes returns those of names that are.
func prefixes(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isPrefix(name) })
}

// names returns the queues that lanes are divided by: those of the Config, and those of a
// prefix with a lane that opens gently.
func (all *bounds) names(c *Config) []string {
	names := slices.Clone(c.Queues)
	lanes := slices.SortedFunc(maps.Keys(all.ramps), storage.Lane.Compare)
	for _, lane := range lanes {
		if !slices.Contains(names, lane.Queue) {
			names = append(names, lane.Queue)
		}
	}
	return names
}

// except has no source ask for lanes that another one has: of a prefix those that are
// listed by a longer one or by the name of their queue, and of all kinds those that have a lane of
// their own.
func except(all []*source, names []string) {
	lanes := lanesOf(all)
	for _, s := range all {
		for _, name := range names {
			if !slices.ContainsFunc(s.Queues, func(q string) bool { return inside(name, q) }) {
				continue
			}
			for _, kind := range s.Kinds {
				if lane := (storage.Lane{Queue: name, Kind: kind}); lanes[lane] != s {
					s.Except = append(s.Except, lane)
				}
			}
		}
		s.Except = append(s.Except, s.otherKinds(lanes)...)
	}
}

// inside reports whether queues of a name are also of a prefix that is shorter.
func inside(name, prefix string) bool {
	return name != prefix && isPrefix(prefix) && strings.HasPrefix(strings.TrimSuffix(name, "*"), strings.TrimSuffix(prefix, "*"))
}

// joins reports whether a queue can be of the same source as others: not if a prefix
// between them is of another, whose lanes would be excepted.
func joins(queue string, queues, names []string) bool {
	between := func(short, long string) bool {
		return inside(long, short) && slices.ContainsFunc(names, func(n string) bool {
			return isPrefix(n) && inside(n, short) && inside(long, n) && !slices.Contains(queues, n)
		})
	}
	return !slices.ContainsFunc(queues, func(q string) bool { return between(q, queue) || between(queue, q) })
}

// find returns the source of a lane, or nil. The queue of the lane may be a prefix.
func (s *sources) find(lane storage.Lane) *source {
	if o := s.lanes[lane]; o != nil || !s.open {
		return o
	}
	for _, queue := range [...]string{lane.Queue, Listed(s.listed, lane.Queue)} {
		for _, kind := range [...]string{lane.Kind, storage.AnyKind} {
			if o := s.lanes[storage.Lane{Queue: queue, Kind: kind}]; o != nil {
				return o
			}
		}
	}
	return nil
}

// closable returns the lanes that may be closed or have been: all that are listed, and of
// a prefix, or of all kinds, those with a hold or a ramp.
func (l *loop) closable() map[storage.Lane]*source {
	s := &l.sources
	if !s.open {
		return s.lanes
	}
	all := maps.Clone(s.lanes)
	add := func(lane storage.Lane) {
		if o := s.find(lane); o != nil {
			all[lane] = o
		}
	}
	for lane := range s.ramps.held {
		switch {
		case lane.Queue == "":
			for queue := range l.cfg.QueueHandlers {
				add(storage.Lane{Queue: queue, Kind: lane.Kind})
			}
		case lane.Kind == "":
			for _, kind := range l.cfg.kinds(lane.Queue) {
				add(storage.Lane{Queue: lane.Queue, Kind: kind})
			}
		default:
			add(lane)
		}
	}
	for lane := range s.ramps.closed {
		add(lane)
	}
	for lane := range s.ramps.bounds.ramps {
		add(lane)
	}
	return all
}

// freed has the sources asked whose queues have room again: jobs may wait there that were
// passed over.
func (s *sources) freed() {
	for _, o := range s.all {
		o.mayHaveWork = o.mayHaveWork || o.each != nil && o.each.freed
	}
	for _, o := range s.all {
		if o.each != nil {
			o.each.freed = false
		}
	}
}

// kickLanes kicks the lanes of a prefix, or of all kinds, that have jobs which wait.
func (l *loop) kickLanes(k *kick, counts []storage.Count) {
	l.endKick(k)
	for _, c := range counts {
		lane := storage.Lane{Queue: c.Queue, Kind: c.Kind}
		if c.State == storage.Scheduled && (c.Kind == k.lane.Kind || k.lane.Kind == storage.AnyKind) && (c.Queue == k.lane.Queue || Listed(l.cfg.Queues, c.Queue) == k.lane.Queue) {
			l.kick(lane)
		}
	}
}
