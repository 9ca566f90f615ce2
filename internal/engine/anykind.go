package engine

import (
	"iter"
	"maps"
	"slices"

	"github.com/errandq/errand/storage"
)

// A queue with a handler of all kinds has one lane for all of them, that of [storage.AnyKind]: the
// engine learns of a kind only as its first job comes. A kind that opens gently has a lane of its
// own meanwhile, which the other lane leaves out.

// handler returns the handler of a lane, and whether there is one.
func (c *Config) handler(queue, kind string) (h Handler, known bool) {
	if by, all := c.handlesAll(queue); all {
		return c.QueueHandlers[by], true
	}
	h, known = c.Handlers[kind]
	return h, known
}

// takes reports whether the engine works for a lane.
func (c *Config) takes(queue, kind string) bool {
	_, known := c.handler(queue, kind)
	return known && Listed(c.Queues, queue) != ""
}

// handlesAll reports whether a queue has a handler of all kinds, and by which name.
func (c *Config) handlesAll(queue string) (by string, all bool) {
	if len(c.QueueHandlers) == 0 {
		return "", false
	}
	by = Listed(c.Queues, queue)
	_, all = c.QueueHandlers[by]
	return by, all
}

// handlers returns all handlers.
func (c *Config) handlers() iter.Seq[Handler] {
	return func(yield func(Handler) bool) {
		for _, all := range []map[string]Handler{c.Handlers, c.QueueHandlers} {
			for _, h := range all {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// kinds returns the kinds that the engine works for in a queue.
func (c *Config) kinds(queue string) []string {
	if _, all := c.handlesAll(queue); all {
		return []string{storage.AnyKind}
	}
	return slices.Sorted(maps.Keys(c.Handlers))
}

// ownerOf returns what has the handler of a lane: a kind, by its own name, or a queue.
func (c *Config) ownerOf(lane storage.Lane) storage.Lane {
	if by, all := c.handlesAll(lane.Queue); all {
		return storage.Lane{Queue: by}
	}
	return storage.Lane{Kind: c.nameOf(lane.Kind)}
}

// kindsOf returns the kinds by which the lanes of a queue are divided: with a handler of all kinds
// also those that open gently.
func (all *bounds) kindsOf(c *Config, queue string) []string {
	kinds := c.kinds(queue)
	by, every := c.handlesAll(queue)
	if !every {
		return kinds
	}
	for lane := range all.ramps {
		if (lane.Queue == queue || lane.Queue == by) && !slices.Contains(kinds, lane.Kind) {
			kinds = append(kinds, lane.Kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// otherKinds returns the lanes of the queues of s that others have, though s is of all kinds.
func (s *source) otherKinds(lanes map[storage.Lane]*source) (others []storage.Lane) {
	if !s.OfAnyKind() {
		return nil
	}
	for lane, o := range lanes {
		if o != s && slices.Contains(s.Queues, lane.Queue) {
			others = append(others, lane)
		}
	}
	slices.SortFunc(others, storage.Lane.Compare)
	return others
}
