package filter

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// op is what a condition compares.
type op uint8

const (
	isValue op = iota // null, true or false
	isText
	isAnyCase
	hasPrefix
	hasSuffix
	isLike
	isBetween
	isInNet
	isThere
	isAbsentOp
	notTexts
	notNumbers
	notPrefix
	notSuffix
	notLike
)

// negative reports whether the op is a form of anything-but.
func (o op) negative() bool { return o >= notTexts }

// condition is an element of the array of a key. Which fields are used depends on op.
type condition struct {
	op      op
	kind    kind
	text    string
	texts   []string
	numbers []int64 // in units
	low     bound
	high    bound
	net     netip.Prefix
	pattern pattern
}

// bound is an end of a range.
type bound struct {
	units int64
	open  bool // the end itself is outside
}

// holds reports whether the condition holds for a value that is no array and no
// object. A null is nothing but null.
func (c *condition) holds(n *node) bool {
	switch c.op {
	case isValue:
		return n.kind == c.kind
	case isThere:
		return n.exists()
	case isBetween:
		if n.kind != isNumber {
			return false
		}
		low, high := n.num.compare(c.low.units), n.num.compare(c.high.units)
		return (low > 0 || low == 0 && !c.low.open) && (high < 0 || high == 0 && !c.high.open)
	case notNumbers:
		return n.kind != isNull && (n.kind != isNumber || !slices.ContainsFunc(c.numbers, func(u int64) bool { return n.num.compare(u) == 0 }))
	}
	if n.kind != isString {
		return c.op.negative() && n.kind != isNull
	}
	switch c.op {
	case isText:
		return n.text == c.text
	case isAnyCase:
		return inAnyCase(c.text, n.text)
	case hasPrefix:
		return strings.HasPrefix(n.text, c.text)
	case hasSuffix:
		return strings.HasSuffix(n.text, c.text)
	case isLike:
		return c.pattern.matches(n.text)
	case isInNet:
		return c.contains(n.text)
	case notTexts:
		return !slices.Contains(c.texts, n.text)
	case notPrefix:
		return !strings.HasPrefix(n.text, c.text)
	case notSuffix:
		return !strings.HasSuffix(n.text, c.text)
	case notLike:
		return !c.pattern.matches(n.text)
	default:
		return false
	}
}

// inAnyCase reports whether each character of a text is that of the policy in lower or upper
// case. [strings.EqualFold] goes further: to it the Kelvin sign is a k and the long s an s.
func inAnyCase(policy, text string) bool {
	for policy != "" && text != "" {
		p, n := utf8.DecodeRuneInString(policy)
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case p == utf8.RuneError && n == 1 || r == utf8.RuneError && size == 1: // of half of a surrogate pair
			if n, size = 1, 1; policy[0] != text[0] {
				return false
			}
		case r != unicode.ToLower(p) && r != unicode.ToUpper(p):
			return false
		}
		policy, text = policy[n:], text[size:]
	}
	return policy == "" && text == ""
}

// contains reports whether a text is an IP address in the range.
func (c *condition) contains(text string) bool {
	// Most texts that are no address are sorted out here, as ParseAddr allocates
	// an error for them. An address with a zone is in no range.
	if len(text) > len("0000:0000:0000:0000:0000:0000:255.255.255.255") || strings.Trim(text, "0123456789abcdefABCDEF.:") != "" {
		return false
	}
	addr, err := netip.ParseAddr(text)
	return err == nil && c.net.Contains(addr)
}

const conditionNames = "prefix, suffix, equals-ignore-case, wildcard, anything-but, numeric, exists, cidr"

// condition reads an element of the array of a key.
func (c *compiler) condition(n *node, at *path, underOr bool) (cond condition, ok bool) {
	switch n.kind {
	case isString:
		return condition{op: isText, text: n.text}, true
	case isNumber:
		units, ok := c.number(n, at)
		return condition{op: isBetween, low: bound{units: units}, high: bound{units: units}}, ok
	case isNull, isTrue, isFalse:
		return condition{op: isValue, kind: n.kind}, true
	case isArray:
		c.fault(at, n.start, n.end, "must be a string, a number, true, false, null or a condition")
		return cond, false
	}
	f, ok := c.only(n, at, "one of "+conditionNames)
	if !ok {
		return cond, false
	}
	at = at.field(f.name)
	v := &f.value
	switch f.name {
	case "prefix":
		return c.textual(v, at, hasPrefix)
	case "suffix":
		return c.textual(v, at, hasSuffix)
	case "equals-ignore-case":
		return c.textual(v, at, isAnyCase)
	case "wildcard":
		return c.wildcard(v, at, isLike)
	case "anything-but":
		return c.anythingBut(v, at)
	case "numeric":
		return c.numeric(v, at)
	case "cidr":
		return c.cidr(v, at)
	case "exists":
		if v.kind != isTrue && v.kind != isFalse {
			c.fault(at, v.start, v.end, "must be true or false")
			return cond, false
		}
		if v.kind == isFalse {
			return condition{op: isAbsentOp}, true
		}
		return condition{op: isThere}, true
	default:
		want := "must be one of " + conditionNames
		if underOr {
			want += "; alternatives are two objects or more, without names of conditions"
		}
		c.fault(at, f.start, f.end, want)
		return cond, false
	}
}

// only returns the single member of an object.
func (c *compiler) only(n *node, at *path, what string) (*field, bool) {
	if len(n.fields) != 1 {
		c.fault(at, n.start, n.end, "must have exactly one member, "+what)
		return nil, false
	}
	return &n.fields[0], true
}

func (c *compiler) textual(v *node, at *path, o op) (condition, bool) {
	if v.kind != isString {
		c.fault(at, v.start, v.end, "must be a string")
		return condition{}, false
	}
	if v.text == "" && o.negative() {
		c.fault(at, v.start, v.end, "must not be empty")
		return condition{}, false
	}
	return condition{op: o, text: v.text}, true
}

func (c *compiler) wildcard(v *node, at *path, o op) (cond condition, ok bool) {
	if cond, ok = c.textual(v, at, o); !ok {
		return cond, false
	}
	p, want := parsePattern(v.text)
	if want != "" {
		c.fault(at, v.start, v.end, want)
		return cond, false
	}
	return condition{op: o, pattern: p}, true
}

func (c *compiler) anythingBut(v *node, at *path) (cond condition, ok bool) {
	switch v.kind {
	case isString, isNumber:
		return c.list([]node{*v}, func(int) *path { return at })
	case isArray:
		if len(v.items) == 0 {
			c.fault(at, v.start, v.end, "must not be empty")
			return cond, false
		}
		return c.list(v.items, at.item)
	case isObject:
		const names = "prefix, suffix, wildcard"
		f, ok := c.only(v, at, "one of "+names)
		if !ok {
			return cond, false
		}
		switch at = at.field(f.name); f.name {
		case "prefix":
			return c.textual(&f.value, at, notPrefix)
		case "suffix":
			return c.textual(&f.value, at, notSuffix)
		case "wildcard":
			return c.wildcard(&f.value, at, notLike)
		}
		c.fault(at, f.start, f.end, "must be one of "+names)
		return cond, false
	default:
		c.fault(at, v.start, v.end, "must be a string, a number, an array of either, or an object")
		return cond, false
	}
}

// list reads what a value must not be: strings or numbers.
func (c *compiler) list(items []node, at func(int) *path) (cond condition, ok bool) {
	cond, ok = condition{op: notTexts}, true
	if items[0].kind == isNumber {
		cond.op = notNumbers
	}
	for i := range items {
		n := &items[i]
		switch {
		case n.kind == isString && cond.op == notTexts:
			cond.texts = append(cond.texts, n.text)
		case n.kind == isNumber && cond.op == notNumbers:
			units, right := c.number(n, at(i))
			ok = ok && right
			cond.numbers = append(cond.numbers, units)
		default:
			c.fault(at(i), n.start, n.end, "must be a string or a number, as all others in its array")
			ok = false
		}
	}
	return cond, ok
}

// numeric reads an operator with a number, or two of them for a range.
func (c *compiler) numeric(v *node, at *path) (cond condition, ok bool) {
	if v.kind != isArray || len(v.items) == 0 {
		c.fault(at, v.start, v.end, `must be an array such as ["=", 1] or [">", 0, "<=", 10]`)
		return cond, false
	}
	cond = condition{op: isBetween, low: bound{units: math.MinInt64}, high: bound{units: math.MaxInt64}}
	ok = true
	for i := 0; i < len(v.items); i += 2 {
		o := &v.items[i]
		operators := []string{"=", "<", "<=", ">", ">="}
		if i == 2 {
			operators = []string{"<", "<="}
		}
		if first := v.items[0].text; i == 2 && first != ">" && first != ">=" || i > 2 {
			c.fault(at.item(i), o.start, o.end, `must not be there: only ">" or ">=" can be followed, by one "<" or "<="`)
			return cond, false
		}
		if o.kind != isString || !slices.Contains(operators, o.text) {
			c.fault(at.item(i), o.start, o.end, "must be one of "+strings.Join(operators, ", "))
			return cond, false
		}
		if i+1 == len(v.items) {
			c.fault(at.item(i), o.start, o.end, "must be followed by a number")
			return cond, false
		}
		units, right := c.number(&v.items[i+1], at.item(i+1))
		ok = ok && right
		b := bound{units: units, open: len(o.text) == 1 && o.text != "="}
		if o.text[0] != '<' {
			cond.low = b
		}
		if o.text[0] != '>' {
			cond.high = b
		}
	}
	if high := len(v.items) - 1; ok && high == 3 && cond.low.units >= cond.high.units {
		n := &v.items[high]
		c.fault(at.item(high), n.start, n.end, "must be above the lower end of the range")
		return cond, false
	}
	return cond, ok
}

// number reads a number within the limits of policies, in units.
func (c *compiler) number(n *node, at *path) (units int64, ok bool) {
	switch {
	case n.kind != isNumber || n.num.compare(-maxUnits) < 0 || n.num.compare(maxUnits) > 0:
		c.fault(at, n.start, n.end, numberRange)
	case n.num.inexact:
		c.fault(at, n.start, n.end, fmt.Sprintf("must have at most %d decimals", decimals))
	default:
		return n.num.units, true
	}
	return 0, false
}

func (c *compiler) cidr(v *node, at *path) (condition, bool) {
	if v.kind == isString {
		if net, err := netip.ParsePrefix(v.text); err == nil {
			return condition{op: isInNet, net: net}, true
		}
	}
	c.fault(at, v.start, v.end, "must be a range of IP addresses such as 10.0.0.0/24")
	return condition{}, false
}
