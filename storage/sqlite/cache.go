package sqlite

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/errandq/errand/storage"
)

const (
	// Lanes are never removed, and a new one has the highest number.
	sqlLanes    = `SELECT lane, queue, kind FROM main.errand_lane WHERE lane > ?1 ORDER BY lane`
	sqlLaneName = `SELECT queue, kind FROM main.errand_lane WHERE lane = ?1`
	// Of a lane the hold that ends last, the one that is kept longest, and the first end
	// of those that are doubtful.
	sqlHoldEnds = `SELECT queue, kind, MAX(COALESCE(until, 9223372036854775807)), MAX(probe),
MAX(CASE WHEN until IS NULL OR probe = 1 OR delay < 0 THEN 9223372036854775807 WHEN delay = 0 THEN until + 86400000000 ELSE until END),
COALESCE(MIN(CASE WHEN delay < 0 THEN until END), 0)
FROM main.errand_hold GROUP BY queue, kind`
	sqlWatched   = `SELECT id / 32 FROM main.errand_number WHERE id % 32 = 17`
	sqlInstances = `SELECT instance, name, boot FROM main.errand_instance`
)

// cache holds what changes rarely and is the same for the whole database, as
// of a generation that the counters carry. Only committed facts are in it.
type cache struct {
	mu         sync.RWMutex
	generation int64
	lanes      map[storage.Lane]int64
	names      map[int64]storage.Lane
	last       int64 // the highest lane; all up to it are known
	holds      holds
	held       int64  // how often holds have changed
	instances  []peer // this one included
	changes    int64  // of instances
	policies   map[int64][]byte
	watched    map[int64]bool // lanes of which successes are noted
	urgent     bool           // some job is
	windowed   bool           // some job has had a window
	epochs     epochs
	settings   laneSettings
	orders     orders // of settings
	starts     starts // of settings
	restarted  int64  // how often starts have changed
	reordered  int64  // how often orders have changed
}

// holds are the lanes of holds, and how long each is held. A map that others have is
// not changed any more.
type holds map[storage.Lane]holdEnd

// holdEnd is when the last hold of a lane ends. With probe the lane is ajar then. At
// forget all of its holds can be deleted. With a doubt it is held beyond until: that is
// when the first of its doubtful holds may end, 0 if there is none.
type holdEnd struct {
	until  int64
	probe  bool
	forget int64
	doubt  int64
}

func (e holdEnd) holds(at int64) bool { return at < e.until || e.doubt != 0 }

// of reports whether nothing of a lane is leased at a time, and if not, whether the
// lane is ajar.
func (h holds) of(name storage.Lane, at int64) (held, ajar bool) {
	if len(h) == 0 {
		return false, false
	}
	own := h[name]
	held = own.holds(at) || h[storage.Lane{Queue: name.Queue}].holds(at) || h[storage.Lane{Kind: name.Kind}].holds(at)
	return held, !held && own.probe
}

// span returns from when to when the same lanes are held or ajar as at a time.
func (h holds) span(at int64) (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	for _, end := range h {
		if end.until <= at {
			from = max(from, end.until)
		} else {
			to = min(to, end.until)
		}
	}
	return from, to
}

// next returns when the first lane of wants may be held no longer than at a time,
// 0 if none is held then.
func (h holds) next(wants []storage.Want, at int64) int64 {
	first := int64(math.MaxInt64)
	for lane, end := range h {
		touches := func(w storage.Want) bool { return lane.Touches(&w) }
		if at < end.until && end.until < first && slices.ContainsFunc(wants, touches) {
			first = end.until
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return first
}

// readHolds returns the holds that are stored, nil if there are none.
func readHolds(db asker) (h holds, err error) {
	var name storage.Lane
	var end holdEnd
	err = db.each(sqlHoldEnds, nil, []any{&name.Queue, &name.Kind, &end.until, &end.probe, &end.forget, &end.doubt}, func() {
		if h == nil {
			h = holds{}
		}
		h[name] = end
	})
	return h, err
}

// differ returns the lanes that are held otherwise than in o.
func (h holds) differ(o holds) (lanes []storage.Lane) {
	for lane, end := range h {
		if was, ok := o[lane]; !ok || was != end {
			lanes = append(lanes, lane)
		}
	}
	for lane := range o {
		if _, ok := h[lane]; !ok {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// peer is an instance that is registered.
type peer struct {
	id         int64
	name, boot string
}

func (c *cache) stale(generation int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.generation != generation
}

// snapshot is what the cache takes over of a generation.
type snapshot struct {
	generation int64
	since      int64                  // the generation of the cache that it was read for
	lanes      map[storage.Lane]int64 // those that are new
	holds      holds
	watched    map[int64]bool
	urgent     bool
	windowed   bool
	epochs     epochs
	instances  []peer

	settings laneSettings
	settled  []storage.Lane // whose settings are others
	whole    bool           // settings were read from the beginning
}

// read reads what may have changed; of the lanes only the new ones.
func (c *cache) read(db asker, generation int64) (n *snapshot, err error) {
	c.mu.RLock()
	last, known, since := c.last, c.settings, c.generation
	c.mu.RUnlock()
	n = &snapshot{generation: generation, since: since, lanes: map[storage.Lane]int64{}, watched: map[int64]bool{}}
	var lane int64
	var name storage.Lane
	err = db.each(sqlLanes, []any{last}, []any{&lane, &name.Queue, &name.Kind}, func() { n.lanes[name] = lane })
	if err != nil {
		return nil, err
	}
	if n.holds, err = readHolds(db); err != nil {
		return nil, err
	}
	if err = db.row(sqlAnyUrgent, nil, &n.urgent); err != nil {
		return nil, err
	}
	if n.settings, n.settled, n.whole, err = followSettings(db, known, since); err != nil {
		return nil, err
	}
	if err = db.row(sqlWindowed, nil, &n.windowed); err != nil {
		return nil, err
	}
	if n.windowed {
		if n.epochs, err = readEpochs(db); err != nil {
			return nil, err
		}
	}
	if err = db.each(sqlWatched, nil, []any{&lane}, func() { n.watched[lane] = true }); err != nil {
		return nil, err
	}
	var r peer
	err = db.each(sqlInstances, nil, []any{&r.id, &r.name, &r.boot}, func() { n.instances = append(n.instances, r) })
	return n, err
}

// take takes over what was read, once it is committed. It returns the lanes whose holds
// have changed, and false if somebody who came later was faster.
func (c *cache) take(n *snapshot) (held []storage.Lane, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(n.lanes)
	if n.generation <= c.generation {
		return nil, false
	}
	if held = n.holds.differ(c.holds); len(held) > 0 {
		c.held++
	}
	c.obey(n.settings, n.settled, n.whole || c.generation != n.since)
	c.windowed, c.epochs = n.windowed, n.epochs
	c.generation, c.holds, c.watched, c.urgent = n.generation, n.holds, n.watched, n.urgent
	if c.changes == 0 || !slices.Equal(c.instances, n.instances) {
		c.instances = n.instances
		c.changes++
	}
	return held, true
}

// add adds committed lanes; c is locked.
func (c *cache) add(lanes map[storage.Lane]int64) {
	for name, lane := range lanes {
		c.lanes[name], c.names[lane] = lane, name
		c.last = max(c.last, lane)
	}
}

// follow takes over what a transaction of this Store has committed, if that
// was nothing but lanes: then nothing need be read again.
func (c *cache) follow(was, now int64, lanes map[storage.Lane]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == was {
		c.add(lanes)
		c.generation = now
	}
}

func (c *cache) lane(name storage.Lane) (int64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	lane, ok := c.lanes[name]
	return lane, ok
}

// update brings the lanes of a lineup up to date: those of its wants that exist
// and are not held at a time by these holds. Of other holds the version is another.
func (c *cache) update(l *lineup, at int64, held holds, version int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if l.lanes == nil || l.held != version || at < l.from || at >= l.to || c.last-l.last > l.fewNew() {
		l.held, l.lanes, l.groups, l.queues, l.unsure, l.ajar, l.last = version, nil, nil, nil, 0, 0, 0
		l.from, l.to = held.span(at)
		l.add(c.open(l.wants, at, held))
	} else {
		for lane := l.last + 1; lane <= c.last; lane++ {
			if name, ok := c.names[lane]; ok {
				l.add(matching(l.wants, nil, lane, name, at, held))
			}
		}
	}
	l.last = max(l.last, c.last)
}

// wantedLane is a lane that is not held, and the index of a want that has it.
type wantedLane struct {
	lane int64
	want int
	ajar bool

	name storage.Lane
}

func (a wantedLane) compare(b wantedLane) int {
	return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.want, b.want))
}

// openEnded reports whether a want has a prefix of queues, or all kinds: lanes that it does not
// name.
func openEnded(wants []storage.Want) bool {
	return slices.ContainsFunc(wants, func(w storage.Want) bool {
		return w.OfAnyKind() || slices.ContainsFunc(w.Queues, func(q string) bool { _, ok := storage.QueuePrefix(q); return ok })
	})
}

// open returns the lanes of wants that exist and are not held at a time, sorted; c
// is locked.
func (c *cache) open(wants []storage.Want, at int64, holds holds) []wantedLane {
	lanes := []wantedLane{}
	for i := range wants {
		for _, q := range wants[i].Queues {
			if _, many := storage.QueuePrefix(q); many {
				continue
			}
			for _, k := range wants[i].Kinds {
				name := storage.Lane{Queue: q, Kind: k}
				if lane, ok := c.lanes[name]; ok && (len(wants[i].Except) == 0 || wants[i].Matches(q, k)) {
					if held, ajar := holds.of(name, at); !held {
						lanes = append(lanes, wantedLane{lane, i, ajar, name})
					}
				}
			}
		}
	}
	if openEnded(wants) {
		for name, lane := range c.lanes {
			lanes = matching(wants, lanes, lane, name, at, holds)
		}
	}
	slices.SortFunc(lanes, wantedLane.compare) // a queue or kind may be named twice
	return slices.Compact(lanes)
}

func (c *cache) name(lane int64) (storage.Lane, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, ok := c.names[lane]
	return n, ok
}

// others returns the instances but for this one, and how often they have changed.
func (c *cache) others(self int64) ([]peer, int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(c.instances), func(r peer) bool { return r.id == self }), c.changes
}

// alone reports whether no other instance is registered, and how often the
// instances had changed then.
func (c *cache) alone(self int64) (alone bool, changes int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !slices.ContainsFunc(c.instances, func(r peer) bool { return r.id != self }), c.changes
}

// knows reports whether an instance is registered.
func (c *cache) knows(id int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.ContainsFunc(c.instances, func(r peer) bool { return r.id == id })
}

func (c *cache) policy(id int64) ([]byte, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	doc, ok := c.policies[id]
	return doc, ok
}

func (c *cache) keepPolicy(id int64, doc []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.policies == nil {
		c.policies = map[int64][]byte{}
	}
	if len(c.policies) >= mostPolicies {
		for any := range c.policies { // it is read again if it is needed
			delete(c.policies, any)
			break
		}
	}
	c.policies[id] = doc
}

// committedHolds returns the holds, and how often they had changed before them.
func (c *cache) committedHolds() (held holds, version int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.holds, c.held
}

// forgets reports whether a hold can be deleted at a time.
func (c *cache) forgets(at int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, end := range c.holds {
		if end.forget <= at {
			return true
		}
	}
	return false
}

// settles reports whether a doubtful hold has to be decided at a time that may be
// doubtful too.
func (c *cache) settles(at int64, doubtful bool) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, end := range c.holds {
		if end.doubt != 0 && (!doubtful || end.doubt <= at) {
			return true
		}
	}
	return false
}

// mayHurry reports whether a job may be urgent, if a transaction began with this
// generation.
func (c *cache) mayHurry(generation int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.urgent || c.generation != generation
}

// watches reports whether successes of a lane are noted.
func (c *cache) watches(lane int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.watched[lane]
}

// laneName returns the name of a lane.
func (t *tx) laneName(lane int64) (storage.Lane, error) {
	if n, ok := t.store.cache.name(lane); ok {
		return n, nil
	}
	for n, l := range t.lanes {
		if l == lane {
			return n, nil
		}
	}
	var n storage.Lane
	err := t.row(sqlLaneName, []any{lane}, &n.Queue, &n.Kind)
	return n, err
}
