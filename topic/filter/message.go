package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The types of attributes are those of SNS. Each but StringArray may be followed by a dot and
// a label, such as "Number.cents", which is for the receiver alone. A label has letters,
// digits, underscores, hyphens and dots, and a type with its label up to 256 of them.
const (
	// String is the type of a text.
	String = "String"
	// StringArray is the type of a JSON array of texts, numbers, true, false and
	// null, written as a text.
	StringArray = "String.Array"
	// Number is the type of a decimal number.
	Number = "Number"
	// Binary is the type of any bytes. Policies ignore such attributes.
	Binary = "Binary"
)

// Attribute is an attribute of a message.
type Attribute struct {
	// Type is one of String, StringArray, Number and Binary, and may have a label.
	Type string `json:"Type"`
	// Value is the value as a text, in base64 if the type is Binary.
	Value string `json:"Value"`
}

// Validate checks an attribute by the rules of SNS: the value is not empty, and is of
// its type. The error is a [Fault], whose path is "Type" or "Value".
func (a Attribute) Validate() error {
	fault := func(path, value, want string) error {
		return &Fault{Path: path, Value: strconv.Quote(shorten(value, maxQuoted)), Want: want}
	}
	if a.Value == "" {
		return &Fault{Path: "Value", Want: "must not be empty"}
	}
	base := a.base()
	if base == "" {
		return fault("Type", a.Type, fmt.Sprintf("must be one of String, String.Array, Number, Binary, and may have a label of letters, digits, _, - and . after another dot, up to %d bytes", maxType))
	}
	switch base {
	case String:
		if !utf8.ValidString(a.Value) {
			return fault("Value", a.Value, "must be UTF-8")
		}
	case StringArray:
		n, err := readJSON(a.Value)
		if err != nil || n.kind != isArray || slices.ContainsFunc(n.items, func(n node) bool { return n.kind >= isArray }) {
			return fault("Value", a.Value, "must be a JSON array of strings, numbers, true, false and null")
		}
	case Number:
		n, ok := parseNumber(a.Value)
		if !ok || n.compare(-maxUnits) < 0 || n.compare(maxUnits) > 0 {
			return fault("Value", a.Value, numberRange)
		}
	}
	return nil
}

// maxType is how many bytes a type has, with its label.
const maxType = 256

// base returns the type without its label, or "" if there is no such type.
func (a Attribute) base() string {
	if a.Type == StringArray {
		return StringArray
	}
	base, label, labelled := strings.Cut(a.Type, ".")
	switch {
	case base != String && base != Number && base != Binary:
		return ""
	case labelled && (label == "" || len(a.Type) > maxType || strings.ContainsFunc(label, isNoLabel)):
		return ""
	}
	return base
}

func isNoLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-.", r)
}

// Message is what policies are matched against. Each part of a message is parsed when
// it is first looked at, and once. A Message may be used by several goroutines at the
// same time.
type Message struct {
	attributes map[string]Attribute
	body       []byte
	once       [2]sync.Once
	parts      [2]*node
}

// NewMessage returns a message with these attributes and this body, neither of which may
// change any more. An attribute that is not of its type, or of no known type, counts as
// absent. A body that is not a JSON object matches no policy with conditions.
func NewMessage(attributes map[string]Attribute, body []byte) *Message {
	return &Message{attributes: attributes, body: body}
}

// part returns what policies of this scope look at, nil if there is nothing.
func (m *Message) part(scope Scope) *node {
	m.once[scope].Do(func() {
		read := m.readAttributes
		if scope == Body {
			read = m.readBody
		}
		if n := read(); len(n.fields) > 0 {
			m.parts[scope] = &n
		}
	})
	return m.parts[scope]
}

func (m *Message) readBody() node {
	n, err := readJSON(string(m.body))
	if err != nil {
		return node{}
	}
	n.tidy()
	return n // only an object has fields
}

func (m *Message) readAttributes() node {
	all := node{kind: isObject}
	for name, a := range m.attributes {
		n, ok := a.node()
		if ok {
			all.fields = append(all.fields, field{name: name, value: n})
		}
	}
	all.sort()
	return all
}

func (a Attribute) node() (n node, ok bool) {
	switch a.base() {
	case String:
		return node{kind: isString, text: a.Value}, true
	case Number:
		n.kind = isNumber
		n.num, ok = parseNumber(a.Value)
		return n, ok
	case StringArray:
		n, err := readJSON(a.Value)
		return n, err == nil && n.kind == isArray
	default:
		return n, false
	}
}

// tidy brings objects into the form in which get finds their fields: sorted by
// name, each name once. A dot in a name is as nesting, as it is in SNS:
// {"a.b": 1} becomes {"a": {"b": 1}}. The values of a name that occurs twice are as
// those of an array, but objects become one.
func (n *node) tidy() {
	t := tidier{todo: []*node{n}}
	for len(t.todo) > 0 {
		t.next()
	}
}

// tidier normalizes a value, outer objects first: objects that become one are merged before
// their fields are sorted, so that each field is sorted once.
type tidier struct {
	todo   []*node
	sorted int // fields
}

// next does one value, and leaves what is in it for later.
func (t *tidier) next() {
	n := t.todo[len(t.todo)-1]
	t.todo = t.todo[:len(t.todo)-1]
	for i := range n.items {
		t.later(&n.items[i])
	}
	for i := range n.fields {
		f := &n.fields[i]
		if name, rest, nested := strings.Cut(f.name, "."); nested {
			f.value = node{kind: isObject, fields: []field{{name: rest, value: f.value}}}
			f.name = name
		}
	}
	n.sort()
	t.sorted += len(n.fields)
	kept := 0
	for i := 0; i < len(n.fields); kept++ {
		same := i + 1
		for same < len(n.fields) && n.fields[same].name == n.fields[i].name {
			same++
		}
		n.fields[kept] = field{name: n.fields[i].name, value: joined(n.fields[i:same])}
		i = same
	}
	n.fields = n.fields[:kept]
	for i := range n.fields {
		t.later(&n.fields[i].value)
	}
}

func (t *tidier) later(n *node) {
	if n.kind >= isArray {
		t.todo = append(t.todo, n)
	}
}

// joined returns the value of fields of the same name. Objects become one up to the
// first value that is none.
func joined(same []field) node {
	if len(same) == 1 {
		return same[0].value
	}
	objects, fields := 0, 0
	for objects < len(same) && same[objects].value.kind == isObject {
		fields += len(same[objects].value.fields)
		objects++
	}
	var all []node
	if objects > 0 {
		one := node{kind: isObject, fields: make([]field, 0, fields)}
		for i := range same[:objects] {
			one.fields = append(one.fields, same[i].value.fields...)
		}
		if objects == len(same) {
			return one
		}
		all = append(all, one)
	}
	for i := range same[objects:] {
		all = append(all, same[objects+i].value)
	}
	return node{kind: isArray, items: all}
}

func (n *node) sort() {
	slices.SortStableFunc(n.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
}

// get returns the value of a field of a tidy object, nil if there is none or n is no
// object.
func (n *node) get(name string) *node {
	if n == nil {
		return nil
	}
	low, high := 0, len(n.fields)
	for low < high {
		if mid := int(uint(low+high) >> 1); n.fields[mid].name < name {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(n.fields) || n.fields[low].name != name {
		return nil
	}
	return &n.fields[low].value
}
