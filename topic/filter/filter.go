// Package filter decides which messages of a topic a subscription gets. It reads the
// filter policies of Amazon SNS and matches messages against them, by their
// attributes or by their body.
//
//	{"store": ["example_corp"],
//	 "event": [{"anything-but": "order_cancelled"}],
//	 "price_usd": [{"numeric": [">=", 100]}]}
//
// A policy matches if all of its keys match, and a key matches if one of the
// conditions in its array does. The page docs/topics.md has all conditions, and says
// where this package differs from SNS.
//
// A [Message] is parsed once and can be matched against any number of policies.
// [Policy.Match] allocates nothing.
package filter

import (
	"fmt"
	"unicode/utf8"
)

// The limits of a policy are those of SNS.
const (
	// MaxSize is the largest size of a policy, in bytes.
	MaxSize = 256 << 10
	// MaxKeys is how many keys with conditions a policy can have. A nested key
	// counts, the keys around it do not. A key that occurs in several alternatives
	// of $or counts once.
	MaxKeys = 5
	// MaxCombinations is the largest number of combinations of a policy. That number
	// is the product, over all keys, of the number of conditions of the key and its
	// level of nesting, beginning with 1. An $or contributes the sum of its
	// alternatives to the product.
	MaxCombinations = 150
	// MaxNumber is the largest absolute value of a number in a policy. A number has
	// at most five decimals.
	MaxNumber = 1_000_000_000
	// MaxWildcards is how many wildcards a pattern can have.
	MaxWildcards = 3
	// MaxWildcardPoints is the largest number of points for wildcards in a policy.
	// The points of a key are the sum of the points of its patterns, times the
	// number of its patterns. A pattern with one wildcard has one point, one with
	// several has three for each; every other anything-but has one point if the key
	// has a wildcard.
	MaxWildcardPoints = 100
)

// Scope is the part of a message that a policy looks at.
type Scope uint8

const (
	// Attributes is for policies on the attributes of a message. It is the default.
	Attributes Scope = iota
	// Body is for policies on the body of a message, which has to be a JSON object.
	Body
)

var scopeNames = [...]string{Attributes: "MessageAttributes", Body: "MessageBody"}

// String returns the name that SNS uses: "MessageAttributes" or "MessageBody".
func (s Scope) String() string {
	if int(s) >= len(scopeNames) {
		return fmt.Sprintf("Scope(%d)", uint8(s))
	}
	return scopeNames[s]
}

// MarshalText implements [encoding.TextMarshaler].
func (s Scope) MarshalText() ([]byte, error) {
	if int(s) >= len(scopeNames) {
		return nil, fmt.Errorf("filter: there is no scope %d", uint8(s))
	}
	return []byte(scopeNames[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Scope) UnmarshalText(text []byte) error {
	for i, name := range scopeNames {
		if string(text) == name {
			*s = Scope(i)
			return nil
		}
	}
	return fmt.Errorf("filter: scope %q: must be one of %s, %s", text, scopeNames[Attributes], scopeNames[Body])
}

// Policy is a filter policy. The zero Policy matches every message. A Policy never
// changes, and may be used by several goroutines at the same time.
type Policy struct {
	scope Scope
	doc   string
	some  bool // there are conditions
	root  group
	keys  []key
}

// Parse reads a policy. The policy {} matches every message.
//
// The error joins one [Fault] for each thing that is wrong, up to 20 of them, see
// [Faults]. A name that occurs twice in an object is a fault.
func Parse(scope Scope, doc []byte) (*Policy, error) {
	if int(scope) >= len(scopeNames) {
		return nil, fmt.Errorf("filter: there is no scope %d", uint8(scope))
	}
	if len(doc) > MaxSize {
		return nil, &Fault{Path: "$", Value: fmt.Sprintf("of %d bytes", len(doc)), Want: fmt.Sprintf("must have at most %d bytes", MaxSize)}
	}
	for at := 0; at < len(doc); {
		r, size := utf8.DecodeRune(doc[at:])
		if r == utf8.RuneError && size == 1 {
			return nil, &Fault{Path: "$", Offset: at, Value: fmt.Sprintf("%#x", doc[at]), Want: "must be UTF-8"}
		}
		at += size
	}
	p := &Policy{scope: scope, doc: string(doc)}
	top, err := readJSON(p.doc)
	if err != nil {
		return nil, err
	}
	c := compiler{policy: p, ids: map[step]int{}}
	c.document(top)
	if err := join(c.faults); err != nil {
		return nil, err
	}
	return p, nil
}

// Scope returns the part of messages that the policy looks at.
func (p *Policy) Scope() Scope { return p.scope }

// String returns the document as it was given to [Parse].
func (p *Policy) String() string {
	if p.doc == "" {
		return "{}"
	}
	return p.doc
}

// MarshalJSON returns the document as it was given to [Parse]. It does not have the
// scope.
func (p *Policy) MarshalJSON() ([]byte, error) { return []byte(p.String()), nil }

// Match reports whether the policy matches a message. A message without attributes,
// and one whose body is an empty object or none, match only the policy without
// conditions.
func (p *Policy) Match(m *Message) bool {
	if !p.some {
		return true
	}
	top := m.part(p.scope)
	if top == nil {
		return false
	}
	x := matcher{policy: p, top: top}
	return x.group(&p.root, top, place{n: top}, 0) != noMatch
}
