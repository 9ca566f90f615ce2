package filter_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/errandq/errand/topic/filter"
)

// The reference says the same as the package, slowly: it works on what encoding/json
// reads, with exact fractions and regular expressions, one rule after the other.

// decode reads JSON that is known to be an object or array.
func decode(doc string) (v any) {
	dec := json.NewDecoder(bytes.NewReader([]byte(doc)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// undot replaces dots in names by nesting, in policies and bodies.
func undot(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = undot(v[i])
		}
	case map[string]any:
		out := map[string]any{}
		for name, value := range v {
			names := strings.Split(name, ".")
			value = undot(value)
			for _, n := range slices.Backward(names[1:]) {
				value = map[string]any{n: value}
			}
			out[names[0]] = merge(out[names[0]], value)
		}
		return out
	}
	return v
}

func merge(a, b any) any {
	if a == nil {
		return b
	}
	x, y := a.(map[string]any), b.(map[string]any) // the generator makes no others
	for name, value := range y {
		x[name] = merge(x[name], value)
	}
	return x
}

// ways are the ways in which something matches: with a value, and with none, as all that it
// names is absent.
type ways struct{ value, none bool }

func (w ways) and(o ways) ways {
	return ways{value: w.value && (o.value || o.none) || w.none && o.value, none: w.none && o.none}
}

func (w ways) or(o ways) ways { return ways{w.value || o.value, w.none || o.none} }

func (w ways) any() bool { return w.value || w.none }

// scope is what has to be without a key that is to be absent, and the names that lead to it.
type scope struct {
	v     any
	names int
}

// reference returns in which ways a value matches an object of a policy that is nested under
// these names. Of the elements of an array one that has a value that matches is a scope of
// its own; elements without one are in that of the array.
func reference(policy map[string]any, v any, in scope, names []string) ways {
	if list, ok := v.([]any); ok && len(list) > 0 {
		w := ways{}
		for _, v := range list {
			w.value = w.value || reference(policy, v, scope{v, len(names)}, names).value
			w.none = w.none || reference(policy, v, in, names).none
		}
		return w
	}
	fields, _ := v.(map[string]any)
	all := ways{none: true}
	for name, want := range policy {
		inner := append(slices.Clone(names), name)
		w := ways{}
		switch want := want.(type) {
		case map[string]any:
			w = reference(want, fields[name], in, inner)
		case []any:
			first, isObject := want[0].(map[string]any)
			if name == "$or" && isObject && len(first) > 0 {
				for _, alternative := range want {
					w = w.or(reference(alternative.(map[string]any), v, in, names))
				}
				break
			}
			var values []any
			if value, there := fields[name]; there {
				values = scalars(value)
			}
			for _, c := range want {
				if m, isMap := c.(map[string]any); isMap && m["exists"] == false {
					w.none = w.none || !slices.ContainsFunc(under(in.v, inner[in.names:]), exists)
				}
				w.value = w.value || slices.ContainsFunc(values, func(v any) bool { return condition(c, v) })
			}
		}
		all = all.and(w)
	}
	return all
}

// scalars returns a value, or those of its elements that are no objects.
func scalars(v any) (all []any) {
	switch v := v.(type) {
	case []any:
		for _, v := range v {
			all = append(all, scalars(v)...)
		}
		return all
	case map[string]any:
		return nil
	}
	return []any{v}
}

// under returns the values that a body has under names, in all elements of arrays.
func under(v any, names []string) (all []any) {
	if list, ok := v.([]any); ok {
		for _, v := range list {
			all = append(all, under(v, names)...)
		}
		return all
	}
	if len(names) == 0 {
		return scalars(v)
	}
	if fields, ok := v.(map[string]any); ok {
		if inner, there := fields[names[0]]; there {
			return under(inner, names[1:])
		}
	}
	return nil
}

func exists(v any) bool { return v != nil && v != "" }

func rat(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok {
		return nil
	}
	r, _ := new(big.Rat).SetString(n.String())
	return r
}

func equal(a, b any) bool {
	x, y := rat(a), rat(b)
	return x != nil && y != nil && x.Cmp(y) == 0 || (x == nil || y == nil) && a == b
}

func condition(c, v any) bool {
	rule, ok := c.(map[string]any)
	if !ok {
		return equal(c, v)
	}
	text, isText := v.(string)
	for name, want := range rule {
		switch name {
		case "prefix":
			return isText && strings.HasPrefix(text, want.(string))
		case "suffix":
			return isText && strings.HasSuffix(text, want.(string))
		case "equals-ignore-case":
			return isText && regexp.MustCompile("^(?i:"+regexp.QuoteMeta(want.(string))+")$").MatchString(text)
		case "wildcard":
			re := "^" + strings.ReplaceAll(regexp.QuoteMeta(want.(string)), `\*`, ".*") + "$"
			return isText && regexp.MustCompile(re).MatchString(text)
		case "cidr":
			addr, err := netip.ParseAddr(text)
			return isText && err == nil && netip.MustParsePrefix(want.(string)).Contains(addr)
		case "exists":
			return want == true && exists(v)
		case "numeric":
			list := want.([]any)
			for i := 0; i < len(list); i += 2 {
				if rat(v) == nil {
					return false
				}
				cmp := rat(v).Cmp(rat(list[i+1]))
				if !map[string]bool{"=": cmp == 0, "<": cmp < 0, "<=": cmp <= 0, ">": cmp > 0, ">=": cmp >= 0}[list[i].(string)] {
					return false
				}
			}
			return true
		case "anything-but":
			if v == nil {
				return false
			}
			list, ok := want.([]any)
			if !ok {
				list = []any{want}
			}
			return !slices.ContainsFunc(list, func(c any) bool { return condition(c, v) })
		}
	}
	panic(fmt.Sprint(c))
}

// drawPolicy draws an object of a policy. Few names and values make matches likely.
func drawPolicy(t *rapid.T, scope filter.Scope, depth int) map[string]any {
	names := []string{"a", "b", "c"}
	if scope == filter.Body {
		names = append(names, "d.a", "d.b") // no value is given to d itself
	}
	policy := map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 2, rapid.ID).Draw(t, "names") {
		if scope == filter.Body && depth < 2 && rapid.IntRange(0, 3).Draw(t, "nested") == 0 {
			policy[name] = drawPolicy(t, scope, depth+1)
			continue
		}
		policy[name] = rapid.SliceOfN(rapid.Custom(drawCondition), 1, 3).Draw(t, "conditions")
	}
	if depth < 2 && rapid.IntRange(0, 3).Draw(t, "or") == 0 {
		policy["$or"] = []any{drawPolicy(t, scope, depth+1), drawPolicy(t, scope, depth+1)}
	}
	return policy
}

var (
	texts   = rapid.SampledFrom([]string{"", "x", "xy", "yx", "X", "Xy", "10.0.0.1", "10.0.1.1", "::1", "5"})
	numbers = rapid.SampledFrom([]json.Number{"0", "5", "5.0", "50e-1", "5.00001", "-3", "1e9"})
)

func drawCondition(t *rapid.T) any {
	one := func(name string, value any) any { return map[string]any{name: value} }
	text := texts.Draw(t, "text")
	switch rapid.IntRange(0, 12).Draw(t, "condition") {
	case 0:
		return one("prefix", text)
	case 1:
		return one("suffix", text)
	case 2:
		return one("equals-ignore-case", text)
	case 3:
		return one("wildcard", rapid.SampledFrom([]string{"*", "x*", "*y", "x*y", "*0*1"}).Draw(t, "pattern"))
	case 4:
		return one("cidr", rapid.SampledFrom([]string{"10.0.0.0/24", "10.0.0.1/16", "::/64"}).Draw(t, "range"))
	case 5:
		return one("exists", rapid.Bool().Draw(t, "exists"))
	case 6:
		o := rapid.SampledFrom([]string{"=", "<", "<=", ">", ">="}).Draw(t, "operator")
		return one("numeric", []any{o, numbers.Draw(t, "number")})
	case 7:
		return one("numeric", []any{">", json.Number("-3"), "<=", json.Number("5")})
	case 8:
		return one("anything-but", rapid.SliceOfN(texts, 1, 2).Draw(t, "texts"))
	case 9:
		return one("anything-but", rapid.SliceOfN(numbers, 1, 2).Draw(t, "numbers"))
	case 10:
		name := rapid.SampledFrom([]string{"prefix", "suffix", "wildcard"}).Draw(t, "name")
		return one("anything-but", one(name, "x"+text))
	default:
		return drawScalar(t)
	}
}

func drawScalar(t *rapid.T) any {
	return rapid.OneOf(rapid.Just[any](nil), rapid.SampledFrom([]any{true, false}), texts.AsAny(), texts.AsAny(), numbers.AsAny(),
		rapid.SampledFrom([]any{json.Number("5.000001"), json.Number("-1e30"), json.Number("1000000000.1")})).Draw(t, "scalar")
}

func drawBody(t *rapid.T, depth int) any {
	n := rapid.IntRange(0, 9).Draw(t, "value")
	switch {
	case depth == 0 || depth < 3 && n < 3:
		names := append([]string{"a", "b", "c", "d"}, "d.a")
		names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 4, rapid.ID).Draw(t, "names")
		fields := map[string]any{}
		for _, name := range names {
			fields[name] = drawBody(t, depth+1)
		}
		_, dotted := fields["d.a"]
		d, isObject := fields["d"].(map[string]any)
		_, both := d["a"]
		if dotted && (!isObject || both) {
			delete(fields, "d") // two values of a name are not what this is about
		}
		return fields
	case depth < 4 && n < 5:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) any { return drawBody(t, depth+1) }), 0, 3).Draw(t, "array")
	default:
		return drawScalar(t)
	}
}

func encode(t *rapid.T, v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Match agrees with the reference.
func TestPolicy_Match_reference(t *testing.T) {
	matches, others := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		doc := encode(t, drawPolicy(t, filter.Body, 0))
		p, err := filter.Parse(filter.Body, []byte(doc))
		if err != nil {
			return // beyond a limit, or a key twice
		}
		policy := undot(decode(doc)).(map[string]any)
		for range 20 { // few match
			body := encode(t, drawBody(t, 0))
			top := undot(decode(body)).(map[string]any)
			want := len(top) > 0 && reference(policy, top, scope{v: top}, nil).any()
			if got := p.Match(filter.NewMessage(nil, []byte(body))); got != want {
				t.Fatalf("%s and %s: %t, want %t", doc, body, got, want)
			}
			if want {
				matches++
			} else {
				others++
			}
		}
	})
	t.Logf("%d match, %d do not", matches, others)
	if matches == 0 || others == 0 {
		t.Errorf("%d match, %d do not", matches, others)
	}
}

// An attribute is as the field of a body with its value.
func TestPolicy_Match_referenceAttributes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := encode(t, drawPolicy(t, filter.Attributes, 0))
		p, err := filter.Parse(filter.Attributes, []byte(doc))
		if err != nil {
			return
		}
		attributes, top := map[string]filter.Attribute{}, map[string]any{}
		for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID).Draw(t, "names") {
			switch rapid.IntRange(0, 2).Draw(t, "type") {
			case 0:
				attributes[name] = str(texts.Draw(t, "text"))
				top[name] = attributes[name].Value
			case 1:
				attributes[name] = num(numbers.Draw(t, "number").String())
				top[name] = json.Number(attributes[name].Value)
			case 2:
				attributes[name] = arr(encode(t, rapid.SliceOfN(rapid.Custom(drawScalar), 0, 3).Draw(t, "array")))
				top[name] = decode(attributes[name].Value)
			}
		}
		want := len(top) > 0 && reference(decode(doc).(map[string]any), top, scope{v: top}, nil).any()
		if got := p.Match(filter.NewMessage(attributes, nil)); got != want {
			t.Fatalf("%s and %v: %t, want %t", doc, attributes, got, want)
		}
	})
}
