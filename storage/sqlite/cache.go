package sqlite

import (
	"database/sql"
	"slices"
	"sync"
)

const (
	// Lanes are never removed, and a new one has the highest number.
	sqlLanes     = `SELECT lane, queue, kind FROM errand_lane WHERE lane > ?1 ORDER BY lane`
	sqlPaused    = `SELECT queue FROM errand_pause ORDER BY queue`
	sqlInstances = `SELECT instance, name, boot FROM errand_instance`
)

// laneName is what a lane stands for.
type laneName struct{ queue, kind string }

// cache holds what changes rarely and is the same for the whole database, as
// of a generation that the counters carry. Only committed facts are in it.
type cache struct {
	mu         sync.RWMutex
	generation int64
	lanes      map[laneName]int64
	names      map[int64]laneName
	last       int64 // the highest lane; all up to it are known
	paused     map[string]bool
	instances  []rival // this one included
	policies   map[int64][]byte
}

// rival is an instance that is registered.
type rival struct {
	id         int64
	name, boot string
}

func (c *cache) stale(generation int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.generation != generation
}

// reload reads what may have changed: of the lanes those that are new. In a
// transaction it comes before any change, so that only what is committed is
// kept.
func (c *cache) reload(db asker, generation int64) error {
	c.mu.RLock()
	last := c.last
	c.mu.RUnlock()
	lanes := map[laneName]int64{}
	paused := map[string]bool{}
	var all []rival
	var lane int64
	var name laneName
	err := db.each(sqlLanes, []any{last}, []any{&lane, &name.queue, &name.kind}, func() { lanes[name] = lane })
	if err != nil {
		return err
	}
	var queue string
	if err := db.each(sqlPaused, nil, []any{&queue}, func() { paused[queue] = true }); err != nil {
		return err
	}
	var r rival
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
		c.generation, c.paused, c.instances = generation, paused, all
	}
	return nil
}

// add adds committed lanes; c is locked.
func (c *cache) add(lanes map[laneName]int64) {
	for name, lane := range lanes {
		c.lanes[name], c.names[lane] = lane, name
		c.last = max(c.last, lane)
	}
}

// follow takes over what a transaction of this Store has committed, if that
// was nothing but lanes: then nothing need be read again.
func (c *cache) follow(was, now int64, lanes map[laneName]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == was {
		c.add(lanes)
		c.generation = now
	}
}

// scanEach calls f after each row of a query was scanned into dest.
func scanEach(rows *sql.Rows, err error, dest []any, f func()) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return scanError(rows, err)
		}
		f()
	}
	return rows.Err()
}

func (c *cache) lane(name laneName) (int64, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	lane, ok := c.lanes[name]
	return lane, ok
}

// open gives the lanes of these queues and kinds that exist and are not paused.
func (c *cache) open(into []int64, queues, kinds []string) []int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, q := range queues {
		if c.paused[q] {
			continue
		}
		for _, k := range kinds {
			if lane, ok := c.lanes[laneName{q, k}]; ok {
				into = append(into, lane)
			}
		}
	}
	return into
}

func (c *cache) name(lane int64) (laneName, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, ok := c.names[lane]
	return n, ok
}

// others gives the instances but for this one.
func (c *cache) others(self int64) []rival {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(c.instances), func(r rival) bool { return r.id == self })
}

func (c *cache) alone(self int64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !slices.ContainsFunc(c.instances, func(r rival) bool { return r.id != self })
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
	c.policies[id] = doc
}

func (c *cache) isPaused(queue string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.paused[queue]
}
