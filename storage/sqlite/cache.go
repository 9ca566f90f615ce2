package sqlite

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/errandq/errand/storage"
)

const (
	// Lanes are never removed, and a new one has the highest number.
	sqlLanes     = `SELECT lane, queue, kind FROM errand_lane WHERE lane > ?1 ORDER BY lane`
	sqlPaused    = `SELECT queue FROM errand_hold WHERE kind = '' AND reason = 'paused' ORDER BY queue`
	sqlInstances = `SELECT instance, name, boot FROM errand_instance`
)

// cache holds what changes rarely and is the same for the whole database, as
// of a generation that the counters carry. Only committed facts are in it.
type cache struct {
	mu         sync.RWMutex
	generation int64
	lanes      map[storage.Lane]int64
	names      map[int64]storage.Lane
	last       int64 // the highest lane; all up to it are known
	paused     map[string]bool
	pauses     int64  // how often that has changed
	instances  []peer // this one included
	changes    int64  // of instances
	policies   map[int64][]byte
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

// reload reads what may have changed; of the lanes only the new ones. In a
// transaction it must come before any change, so that the cache holds committed
// facts alone.
func (c *cache) reload(db asker, generation int64) error {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	lanes := map[storage.Lane]int64{}
	paused := map[string]bool{}
	var all []peer
	var lane int64
	var name storage.Lane
	err := db.each(sqlLanes, []any{last}, []any{&lane, &name.Queue, &name.Kind}, func() { lanes[name] = lane })
	if err != nil {
		return err
	}
	var queue string
	if err := db.each(sqlPaused, nil, []any{&queue}, func() { paused[queue] = true }); err != nil {
		return err
	}
	var r peer
	err = db.each(sqlInstances, nil, []any{&r.id, &r.name, &r.boot}, func() {
		all = append(all, r)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(lanes)
	if generation > c.generation { // else somebody who came later was faster
		if !maps.Equal(paused, c.paused) {
			c.pauses++
		}
		c.generation, c.paused = generation, paused
		if c.changes == 0 || !slices.Equal(c.instances, all) {
			c.instances = all
			c.changes++
		}
	}
	return nil
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
// and are not paused.
func (c *cache) update(l *lineup) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if l.lanes == nil || l.pauses != c.pauses || c.last-l.last > fewLanes {
		l.pauses, l.lanes, l.groups, l.unsure = c.pauses, nil, nil, 0
		l.add(c.open(l.wants))
	} else {
		for lane := l.last + 1; lane <= c.last; lane++ {
			if name, ok := c.names[lane]; ok && !c.paused[name.Queue] {
				l.add(l.wanted(nil, lane, name))
			}
		}
	}
	l.last = max(l.last, c.last)
}

// wantedLane is a lane and the index of a want that has it.
type wantedLane struct {
	lane int64
	want int
}

func (a wantedLane) compare(b wantedLane) int {
	return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.want, b.want))
}

// open returns the lanes of wants that exist and are not paused, sorted; c is
// locked.
func (c *cache) open(wants []storage.Want) []wantedLane {
	lanes := []wantedLane{}
	for i := range wants {
		for _, q := range wants[i].Queues {
			if c.paused[q] {
				continue
			}
			for _, k := range wants[i].Kinds {
				if lane, ok := c.lanes[storage.Lane{Queue: q, Kind: k}]; ok {
					lanes = append(lanes, wantedLane{lane, i})
				}
			}
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

func (c *cache) isPaused(queue string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.paused[queue]
}
