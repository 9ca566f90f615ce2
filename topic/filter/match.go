package filter

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
	// absent remembers which keys are absent: that is asked again for each element
	// of an array.
	absent [MaxKeys]presence
}

type presence uint8

const (
	unknown presence = iota
	absent
	present
)

// group reports whether the object n matches. An array matches if one of its elements
// does, which so have to match as a whole. Where there is no object, conditions that a
// key is absent can hold.
func (x *matcher) group(g *group, n *node) bool {
	if n != nil && n.kind == isArray && len(n.items) > 0 {
		for i := range n.items {
			if x.group(g, &n.items[i]) {
				return true
			}
		}
		return false
	}
	for i := range g.leaves {
		l := &g.leaves[i]
		if l.holds(n.get(l.name)) || l.absent && x.isAbsent(l.key) {
			continue
		}
		return false
	}
	for _, s := range g.subs {
		if !x.group(&s.group, n.get(s.name)) {
			return false
		}
	}
	for _, or := range g.ors {
		if !x.one(or, n) {
			return false
		}
	}
	return true
}

// one reports whether one of the groups matches.
func (x *matcher) one(groups []*group, n *node) bool {
	for _, g := range groups {
		if x.group(g, n) {
			return true
		}
	}
	return false
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

// isAbsent reports whether the message has no value under a key, in no element of
// an array.
func (x *matcher) isAbsent(key int) bool {
	if x.absent[key] == unknown {
		x.absent[key] = absent
		if x.top.has(x.policy.keys[key]) {
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
