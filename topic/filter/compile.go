package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// or is the name of a key that joins alternatives.
const or = "$or"

// reserved are the names that make $or a usual key if they occur in an alternative:
// the conditions, and what the language keeps for later.
var reserved = []string{
	"exact", "equals-ignore-case", "prefix", "suffix", "anything-but", "exists", "wildcard", "numeric", "cidr",
	"=", "<", "<=", ">", ">=", "regex", "not-wildcard", "not-equals-ignore-case",
	"date-after", "date-on-or-after", "date-before", "date-on-or-before", "in-date-range",
	"ip-address-in-range", "ip-address-not-in-range",
}

// maxDepth is how deep keys can be nested. A key that is nested deeper has too many
// combinations in any case.
const maxDepth = MaxCombinations

// compiler turns a document into a policy, and collects what is wrong with it.
type compiler struct {
	policy *Policy
	faults []*Fault
	doc    string

	spots []step       // the spots that the policy names; the top is not among them
	ids   map[step]int // the index of each in spots, plus 1

	keys  map[int]int // the index in Policy.keys of each spot with conditions
	sixth *Fault      // the first key that is too many

	points int // for wildcards
}

// step names a field of the object at parent; parent 0 is the message.
type step struct {
	parent int
	name   string
}

// spot is a place in messages, and the place in the document where it is spoken of.
type spot struct {
	id    int
	depth int // in names; more than level if names have dots
	level int // of the fields
	at    *path
}

func (c *compiler) fault(at *path, start, end int, want string) {
	if len(c.faults) >= maxFaults {
		return
	}
	c.faults = append(c.faults, &Fault{Path: at.String(), Offset: start, Value: shorten(c.doc[start:end], maxQuoted), Want: want})
}

func (c *compiler) document(top node) {
	c.doc = c.policy.doc
	c.keys = map[int]int{}
	if top.kind != isObject {
		c.fault(nil, top.start, top.end, "must be an object")
		return
	}
	if len(top.fields) == 0 {
		return
	}
	c.policy.some = true
	n, _ := c.object(&c.policy.root, &top, spot{level: 1})
	whole := func(format string, value, most int) {
		if value > most {
			c.faults = append(c.faults, &Fault{
				Path: "$", Offset: top.start, Value: fmt.Sprintf(format, value), Want: fmt.Sprintf("must be at most %d", most),
			})
		}
	}
	if c.sixth != nil {
		c.sixth.Want = fmt.Sprintf("must be one of at most %d keys, there are %d", MaxKeys, len(c.keys))
		c.faults = append(c.faults, c.sixth)
	}
	whole("with %d combinations", n, MaxCombinations)
	whole("with %d points for wildcards", c.points, MaxWildcardPoints)
}

// object reads an object into a group. It returns the number of combinations, and the
// spots of all keys with conditions.
func (c *compiler) object(g *group, n *node, here spot) (combinations int, all map[int]bool) {
	if len(n.fields) == 0 {
		c.fault(here.at, n.start, n.end, "must not be empty")
	}
	combinations, all = 1, map[int]bool{}
	names := map[string]bool{}
	for i := range n.fields {
		f := &n.fields[i]
		inner := here
		inner.at = here.at.field(f.name)
		if names[f.name] {
			c.fault(inner.at, f.start, f.end, "must not be given twice")
			continue
		}
		names[f.name] = true
		count, spots := c.field(g, f, inner)
		combinations = product(combinations, count)
		twice := false
		for id := range spots {
			twice = twice || all[id]
			all[id] = true
		}
		if twice {
			c.fault(inner.at, f.start, f.end, "must not have conditions for a key that has conditions beside it, by a dot or by $or")
		}
	}
	return combinations, all
}

// field reads a field of an object into its group.
func (c *compiler) field(g *group, f *field, here spot) (combinations int, all map[int]bool) {
	if f.name == or && isOr(&f.value) {
		return c.alternatives(g, &f.value, here)
	}
	names := []string{f.name}
	if c.policy.scope == Body {
		names = strings.Split(f.name, ".")
	}
	if here.depth += len(names); here.depth > maxDepth {
		c.fault(here.at, f.start, f.end, fmt.Sprintf("must not be nested deeper than %d", maxDepth))
		return 1, nil
	}
	last := names[len(names)-1]
	for _, name := range names[:len(names)-1] {
		g = g.sub(name)
		here.id = c.spot(here.id, name)
	}
	here.id = c.spot(here.id, last)
	switch {
	case f.value.kind == isArray:
		c.leaf(g, last, f, here)
		return product(len(f.value.items), here.level), map[int]bool{here.id: true}
	case f.value.kind != isObject:
		c.fault(here.at, f.value.start, f.value.end, "must be an array or an object")
	case c.policy.scope == Attributes:
		c.fault(here.at, f.value.start, f.value.end, "must be an array: attributes have no nested keys")
	default:
		here.level++
		return c.object(g.sub(last), &f.value, here)
	}
	return 1, nil
}

// isOr reports whether the value of a key $or joins alternatives. If it does not, the
// key is one like others.
func isOr(n *node) bool {
	return n.kind == isArray && len(n.items) >= 2 && !slices.ContainsFunc(n.items, func(n node) bool {
		return n.kind != isObject || slices.ContainsFunc(n.fields, func(f field) bool { return slices.Contains(reserved, f.name) })
	})
}

func (c *compiler) alternatives(g *group, n *node, here spot) (combinations int, all map[int]bool) {
	groups := make([]*group, len(n.items))
	all = map[int]bool{}
	for i := range n.items {
		groups[i] = &group{}
		inner := here
		inner.at = here.at.item(i)
		if inner.depth++; inner.depth > maxDepth {
			c.fault(inner.at, n.items[i].start, n.items[i].start, fmt.Sprintf("must not be nested deeper than %d", maxDepth))
			return 1, nil
		}
		count, spots := c.object(groups[i], &n.items[i], inner)
		combinations = min(combinations+count, tooMany)
		for id := range spots {
			all[id] = true
		}
	}
	g.ors = append(g.ors, groups)
	return combinations, all
}

// leaf reads the conditions of a key.
func (c *compiler) leaf(g *group, name string, f *field, here spot) {
	if len(f.value.items) == 0 {
		c.fault(here.at, f.value.start, f.value.end, "must not be empty")
		return
	}
	key, known := c.keys[here.id]
	if !known {
		key = len(c.keys)
		c.keys[here.id] = key
		if key < MaxKeys {
			c.policy.keys = append(c.policy.keys, c.names(here.id))
		} else if c.sixth == nil {
			c.sixth = &Fault{Path: here.at.String(), Offset: f.start, Value: shorten(c.doc[f.start:f.end], maxQuoted)}
		}
	}
	l := leaf{name: name, key: key}
	points, patterns, wild := 0, 0, false
	for i := range f.value.items {
		cond, ok := c.condition(&f.value.items[i], here.at.item(i), f.name == or)
		if !ok {
			continue
		}
		switch {
		case cond.op == isAbsentOp:
			l.absent = true
			continue
		case cond.pattern.wildcards > 1:
			points, patterns, wild = points+3*cond.pattern.wildcards, patterns+1, true
		case cond.pattern.wildcards == 1:
			points, patterns, wild = points+1, patterns+1, true
		case cond.op.negative():
			points, patterns = points+1, patterns+1
		}
		l.conditions = append(l.conditions, cond)
	}
	if wild {
		c.points += points * patterns
	}
	g.leaves = append(g.leaves, l)
}

// spot returns the number of a name under a spot.
func (c *compiler) spot(parent int, name string) int {
	s := step{parent, name}
	id, ok := c.ids[s]
	if !ok {
		c.spots = append(c.spots, s)
		id = len(c.spots)
		c.ids[s] = id
	}
	return id
}

// names returns the way to a spot.
func (c *compiler) names(id int) (k key) {
	for ; id > 0; id = c.spots[id-1].parent {
		k = append(k, c.spots[id-1].name)
	}
	slices.Reverse(k)
	return k
}

// sub returns the group under a name, which it makes if there is none.
func (g *group) sub(name string) *group {
	for _, s := range g.subs {
		if s.name == name {
			return &s.group
		}
	}
	s := &sub{name: name}
	g.subs = append(g.subs, s)
	return &s.group
}

// tooMany stands for all numbers of combinations that are larger.
const tooMany = 1_000_000

func product(a, b int) int { return min(min(a, tooMany)*min(b, 1000), tooMany) }

const maxQuoted = 60 // bytes of a value shown in a fault

var numberRange = "must be a number between -" + strconv.Itoa(MaxNumber) + " and " + strconv.Itoa(MaxNumber)
