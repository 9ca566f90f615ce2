package filter

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// The types of attributes are those of SNS.
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
	// Type is one of String, StringArray, Number and Binary.
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
	switch a.Type {
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
	case Binary:
	default:
		return fault("Type", a.Type, "must be one of String, String.Array, Number, Binary")
	}
	return nil
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

// NewMessage returns a message with these attributes and this body, neither of which
// may change any more. An attribute that is not of its type, or of no known type, is
// as absent. A body that is not a JSON object matches no policy with conditions.
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
	switch a.Type {
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
	for i := range n.items {
		n.items[i].tidy()
	}
	for i := range n.fields {
		f := &n.fields[i]
		f.value.tidy()
		for {
			at := strings.LastIndexByte(f.name, '.')
			if at < 0 {
				break
			}
			f.value = node{kind: isObject, fields: []field{{name: f.name[at+1:], value: f.value}}}
			f.name = f.name[:at]
		}
	}
	n.sort()
}

func (n *node) sort() {
	slices.SortStableFunc(n.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	kept := 0
	for i, f := range n.fields {
		if i > 0 && n.fields[kept-1].name == f.name {
			n.fields[kept-1].value.join(f.value)
			continue
		}
		n.fields[kept] = f
		kept++
	}
	n.fields = n.fields[:kept]
}

// join adds another value of the same name.
func (n *node) join(other node) {
	if n.kind == isObject && other.kind == isObject {
		n.fields = append(n.fields, other.fields...)
		n.sort()
		return
	}
	*n = node{kind: isArray, items: []node{*n, other}}
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
