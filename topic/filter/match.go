package filter

import "slices"

// group is an object of a policy: all of its leaves, subs and ors have to match.
type group struct {
	leaves []leaf
	subs   []*sub
	ors    [][]*group // one group of each has to match
}

// sub is an object under a name.
type sub struct {
	name string
	group
}

// leaf is a key with its conditions, one of which has to hold.
type leaf struct {
	name       string
	key        int  // in Policy.keys
	absent     bool // one of the conditions is that the key is absent
	conditions []condition
}

// key is the way to a value, by names.
type key []string

// matcher is one call of Match.
type matcher struct {
	policy *Policy
	top    *node
	// absent remembers which keys are absent from the whole message.
	absent [MaxKeys]presence
}

type presence uint8

const (
	unknown presence = iota
	absent
	present
)

// outcome is how a group matches. What a value has matched is about the element of an array
// in which the value is; what is absent is about no element by itself.
type outcome uint8

const (
	noMatch outcome = iota
	byAbsence
	byValue
)

// place is where keys may be absent: the whole message, or an element of an array in which
// other keys have matched a value. names is how many names lead to it.
type place struct {
	n     *node
	names int
}

// group returns how an object n matches, to which names lead. An array matches if one of its
// elements does, which so have to match as a whole. Where there is no object, conditions that
// a key is absent can hold.
func (x *matcher) group(g *group, n *node, in place, names int) outcome {
	if n != nil && n.kind == isArray && len(n.items) > 0 {
		if x.element(g, n, names) {
			return byValue
		}
		if x.without(g, in) {
			return byAbsence
		}
		return noMatch
	}
	best := byAbsence
	for i := range g.leaves {
		l := &g.leaves[i]
		switch {
		case l.holds(n.get(l.name)):
			best = byValue
		case !l.absent || !x.isAbsent(l.key, in):
			return noMatch
		}
	}
	for _, s := range g.subs {
		how := x.group(&s.group, n.get(s.name), in, names+1)
		if how == noMatch {
			return noMatch
		}
		best = max(best, how)
	}
	for _, or := range g.ors {
		how := noMatch
		for i := 0; i < len(or) && how != byValue; i++ {
			how = max(how, x.group(or[i], n, in, names))
		}
		if how == noMatch {
			return noMatch
		}
		best = max(best, how)
	}
	return best
}

// element reports whether an element of an array matches by a value in it: then the keys that
// have to be absent may be there in other elements.
func (x *matcher) element(g *group, n *node, names int) bool {
	for i := range n.items {
		item := &n.items[i]
		if item.kind == isArray && len(item.items) > 0 {
			if x.element(g, item, names) {
				return true
			}
		} else if x.group(g, item, place{item, names}, names) == byValue {
			return true
		}
	}
	return false
}

// without reports whether a group matches as all of its keys are absent.
func (x *matcher) without(g *group, in place) bool {
	for i := range g.leaves {
		if l := &g.leaves[i]; !l.absent || !x.isAbsent(l.key, in) {
			return false
		}
	}
	for _, s := range g.subs {
		if !x.without(&s.group, in) {
			return false
		}
	}
	for _, or := range g.ors {
		if !slices.ContainsFunc(or, func(g *group) bool { return x.without(g, in) }) {
			return false
		}
	}
	return true
}

// holds reports whether one of the conditions holds for the value or, if it is an
// array, for one of its elements.
func (l *leaf) holds(n *node) bool {
	switch {
	case n == nil || n.kind == isObject:
		return false
	case n.kind == isArray:
		for i := range n.items {
			if l.holds(&n.items[i]) {
				return true
			}
		}
		return false
	}
	for i := range l.conditions {
		if l.conditions[i].holds(n) {
			return true
		}
	}
	return false
}

// isAbsent reports whether a place has no value under a key, in no element of an array.
func (x *matcher) isAbsent(key int, in place) bool {
	names := x.policy.keys[key][in.names:]
	if in.n != x.top {
		return !in.n.has(names)
	}
	if x.absent[key] == unknown {
		x.absent[key] = absent
		if x.top.has(names) {
			x.absent[key] = present
		}
	}
	return x.absent[key] == absent
}

// has reports whether there is a value under a key. A null, an empty string and an
// object are none.
func (n *node) has(names key) bool {
	switch {
	case n == nil:
		return false
	case n.kind == isArray:
		for i := range n.items {
			if n.items[i].has(names) {
				return true
			}
		}
		return false
	case len(names) > 0:
		return n.get(names[0]).has(names[1:])
	default:
		return n.exists()
	}
}

// exists reports whether a value counts as there.
func (n *node) exists() bool {
	return n.kind != isNull && n.kind != isObject && (n.kind != isString || n.text != "")
}
