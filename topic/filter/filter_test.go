package filter_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/errandq/errand/topic/filter"
)

func parse(t testing.TB, scope filter.Scope, doc string) *filter.Policy {
	t.Helper()
	p, err := filter.Parse(scope, []byte(doc))
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return p
}

func str(value string) filter.Attribute { return filter.Attribute{Type: filter.String, Value: value} }
func num(value string) filter.Attribute { return filter.Attribute{Type: filter.Number, Value: value} }
func arr(value string) filter.Attribute {
	return filter.Attribute{Type: filter.StringArray, Value: value}
}

// What the pages of the Amazon SNS Developer Guide say about one key: "String value
// matching", "Numeric value matching" and "Key matching".
var documentedKeys = []struct {
	conditions string
	attributes []filter.Attribute // that match
	bodies     []string
	others     []filter.Attribute // that do not
	refused    []string
}{
	{
		conditions: `["rugby", "tennis"]`,
		attributes: []filter.Attribute{str("rugby"), str("tennis"), arr(`["rugby", "tennis"]`)},
		bodies:     []string{`"rugby"`, `"tennis"`},
		others:     []filter.Attribute{str("baseball"), arr(`["baseball"]`), arr(`"rugby"`), arr(`{"a": "rugby"}`)},
		refused:    []string{`"baseball"`},
	},
	{
		conditions: `[{"anything-but": ["rugby", "tennis"]}]`,
		attributes: []filter.Attribute{str("baseball"), str("football"), arr(`["rugby", "baseball"]`)},
		bodies:     []string{`"baseball"`, `"football"`, `["rugby", "baseball"]`},
		others:     []filter.Attribute{str("rugby"), arr(`["rugby"]`)},
		refused:    []string{`["rugby"]`},
	},
	{
		conditions: `[{"anything-but": {"prefix": "order-"}}]`,
		attributes: []filter.Attribute{str("data-entry"), str("order_number")},
		bodies:     []string{`"data-entry"`, `"order_number"`},
		others:     []filter.Attribute{str("order-cancelled")},
		refused:    []string{`"order-cancelled"`},
	},
	{
		conditions: `[{"anything-but": {"wildcard": "*ball"}}]`,
		attributes: []filter.Attribute{arr(`["hockey", "rugby", "soccer"]`)},
		bodies:     []string{`["hockey", "rugby", "soccer"]`},
		others:     []filter.Attribute{arr(`["baseball", "basketball"]`)},
		refused:    []string{`["baseball", "basketball"]`},
	},
	{
		conditions: `[{"anything-but": {"suffix": "ball"}}]`,
		attributes: []filter.Attribute{arr(`["hockey", "rugby", "soccer"]`)},
		bodies:     []string{`["hockey", "rugby", "soccer"]`},
		others:     []filter.Attribute{arr(`["baseball", "basketball"]`)},
		refused:    []string{`["baseball", "basketball"]`},
	},
	{
		conditions: `[{"equals-ignore-case": "tennis"}]`,
		attributes: []filter.Attribute{str("TENNIS"), str("Tennis")},
		bodies:     []string{`"TENNIS"`, `"teNnis"`},
		others:     []filter.Attribute{str("tenni")},
		refused:    []string{`"tennis "`},
	},
	{
		conditions: `[{"cidr": "10.0.0.0/24"}]`,
		attributes: []filter.Attribute{str("10.0.0.0"), str("10.0.0.255")},
		bodies:     []string{`"10.0.0.0"`, `"10.0.0.255"`},
		others:     []filter.Attribute{str("10.1.1.0"), str("fe80::1"), str("here")},
		refused:    []string{`"10.1.1.0"`, `10`, `"10.0.0.1 "`, `"10.0.0.300"`},
	},
	{
		conditions: `[{"prefix": "bas"}]`,
		attributes: []filter.Attribute{str("baseball"), str("basketball")},
		bodies:     []string{`"baseball"`, `"basketball"`},
		others:     []filter.Attribute{str("rugby")},
		refused:    []string{`"rugby"`},
	},
	{
		conditions: `[{"suffix": "ball"}]`,
		attributes: []filter.Attribute{str("baseball"), str("basketball")},
		bodies:     []string{`"baseball"`, `"basketball"`},
		others:     []filter.Attribute{str("rugby")},
		refused:    []string{`"rugby"`},
	},
	{
		conditions: `[{"wildcard": "*ball"}]`,
		attributes: []filter.Attribute{arr(`["baseball", "basketball"]`)},
		bodies:     []string{`["baseball", "basketball"]`},
		others:     []filter.Attribute{str("rugby")},
		refused:    []string{`"balls"`},
	},
	{
		conditions: `[{"numeric": ["=", 301.5]}]`,
		attributes: []filter.Attribute{num("301.5"), num("3.015e2")},
		bodies:     []string{`301.5`, `3.015e2`},
		others:     []filter.Attribute{num("301"), str("301.5")},
		refused:    []string{`301.50001`, `"301.5"`},
	},
	{
		conditions: `[{"anything-but": [100, 500]}]`,
		attributes: []filter.Attribute{num("101"), num("100.1"), arr("[100, 50]")},
		bodies:     []string{`101`, `100.1`, `[100, 50]`},
		others:     []filter.Attribute{num("100")},
		refused:    []string{`100`},
	},
	{
		conditions: `[{"numeric": ["<", 0]}]`,
		attributes: []filter.Attribute{num("-0.00001"), num("-1000000000")},
		bodies:     []string{`-1`, `-1e400`},
		others:     []filter.Attribute{num("0"), num("1")},
		refused:    []string{`0`, `-0`, `-0.0e5`},
	},
	{
		conditions: `[{"numeric": [">", 0, "<=", 150]}]`,
		attributes: []filter.Attribute{num("150"), num("0.00001")},
		bodies:     []string{`150.0`, `0.000000001`},
		others:     []filter.Attribute{num("0"), num("150.00001")},
		refused:    []string{`0`, `150.000000001`, `1e9`},
	},
	{
		conditions: `[{"exists": true}]`,
		attributes: []filter.Attribute{str("fans"), arr("[false]"), num("0")},
		bodies:     []string{`"fans"`, `0`, `false`, `[null, 1]`},
		others:     []filter.Attribute{arr("[]"), arr("[null]"), {Type: filter.Binary, Value: "YQ=="}},
		refused:    []string{`null`, `""`, `[]`, `{"a": 1}`, `[{"a": 1}]`},
	},
	{
		conditions: `[{"exists": false}]`,
		attributes: []filter.Attribute{{Type: filter.Binary, Value: "YQ=="}},
		bodies:     []string{`null`, `[]`, `{"a": 1}`},
		others:     []filter.Attribute{str("fans")},
		refused:    []string{`"fans"`, `[null, 1]`},
	},
}

func TestPolicy_Match_documentedKeys(t *testing.T) {
	for _, c := range documentedKeys {
		doc := `{"key": ` + c.conditions + `}`
		onAttributes, onBody := parse(t, filter.Attributes, doc), parse(t, filter.Body, doc)
		check := func(want bool, attributes []filter.Attribute, bodies []string) {
			t.Helper()
			for _, a := range attributes {
				m := filter.NewMessage(map[string]filter.Attribute{"key": a, "other": str("x")}, nil)
				if onAttributes.Match(m) != want {
					t.Errorf("%s: %+v: want %t", doc, a, want)
				}
			}
			for _, b := range bodies {
				if onBody.Match(filter.NewMessage(nil, []byte(`{"other": "x", "key": `+b+`}`))) != want {
					t.Errorf("%s: body %s: want %t", doc, b, want)
				}
			}
		}
		check(true, c.attributes, c.bodies)
		check(false, c.others, c.refused)
	}
}

// Whole policies against whole bodies. The first ones are of the pages "AND/OR logic"
// and "Example filter policies" of the Amazon SNS Developer Guide, those with dots
// and with Records were tried on SNS by the tests of LocalStack.
var wholeBodies = []struct {
	policy       string
	match, other []string
}{
	{
		policy: `{"store": ["example_corp"], "event": [{"anything-but": "order_cancelled"}],
			"customer_interests": ["rugby", "football", "baseball"], "price_usd": [{"numeric": [">=", 100]}]}`,
		match: []string{`{"customer_interests": ["soccer", "rugby", "hockey"], "store": "example_corp", "event": "order_placed", "price_usd": 210.75}`},
		other: []string{`{"customer_interests": ["soccer", "hockey"], "store": "example_corp", "event": "order_placed", "price_usd": 210.75}`},
	},
	{
		policy: `{"customer_interests": [{"anything-but": ["rugby", "tennis"]}, {"exists": false}], "event": ["order_cancelled"]}`,
		match:  []string{`{"event": "order_cancelled"}`},
		other:  []string{`{"event": "order_cancelled", "customer_interests": "rugby"}`, `{}`},
	},
	{
		policy: `{"source": ["aws.cloudwatch"], "$or": [{"metricName": ["CPUUtilization"]}, {"namespace": ["AWS/EC2"]}]}`,
		match: []string{
			`{"source": "aws.cloudwatch", "metricName": "CPUUtilization"}`,
			`{"source": "aws.cloudwatch", "namespace": "AWS/EC2"}`,
		},
		other: []string{`{"source": "aws.cloudwatch"}`, `{"namespace": "AWS/EC2"}`},
	},
	{
		policy: `{"$or": [{"metricName": ["CPUUtilization", "ReadLatency"]}, {"namespace": ["AWS/EC2", "AWS/ES"]}],
			"detail": {"scope": ["Service"], "$or": [{"source": ["aws.cloudwatch"]}, {"type": ["CloudWatch Alarm State Change"]}]}}`,
		match: []string{
			`{"metricName": "ReadLatency", "detail": {"scope": "Service", "source": "aws.cloudwatch"}}`,
			`{"namespace": "AWS/ES", "detail": {"scope": "Service", "type": "CloudWatch Alarm State Change"}}`,
		},
		other: []string{
			`{"metricName": "CPUUtilization", "detail": {"scope": "Service", "type": "CPUUtilization"}}`,
			`{"metricName": "CPUUtilization", "detail": {"type": "CloudWatch Alarm State Change"}}`,
			`{"metricName": "CPUUtilization", "scope": "Service"}`,
		},
	},
	{
		policy: `{"object": {"key": [{"prefix": "auto-"}, "hardcodedvalue"], "nested_key": [{"exists": false}]}, "test": [{"exists": false}]}`,
		match:  []string{`{"object": {"key": "auto-test"}}`, `{"object": {"key": "hardcodedvalue"}}`},
		other: []string{
			`{"object": {"key": "test-auto"}}`, `{"object": {"key": "auto-test"}, "test": "just-exists"}`,
			`{"object": {"key": "auto-test", "nested_key": "just-exists"}}`, `{"object": {"test": "auto-test"}}`, `{"test": "auto-test"}`,
			`"Regular string message"`, `Regular string message`,
		},
	},
	{
		policy: `{"object.nested.test": ["string.value"]}`,
		match: []string{
			`{"object": {"nested": {"test": "string.value"}}}`, `{"object.nested.test": "string.value"}`,
			`{"object.nested": {"test": "string.value"}}`, `{"object": {"nested.test": "string.value"}}`,
			`{"object": {"other": 1}, "object.nested": {"test": ["string.value"]}}`,
		},
		other: []string{`{"object": {"nested": {"test": "string.notvalue"}}}`},
	},
	{
		policy: `{"Records": {"s3": {"object": {"key": [{"prefix": "auto-"}]}}, "eventName": [{"prefix": "ObjectCreated:"}]}}`,
		match: []string{
			`{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": {"key": "auto-2314.xml", "size": 17}}}]}`,
			`{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": [[{"key": "auto-2314.xml"}]]}},
				{"eventName": "ObjectRemoved:Delete", "s3": {"object": {"key": "home-2314.xml"}}}]}`,
		},
		other: []string{
			`{"Records": [{"eventName": "ObjectRemoved:Delete", "s3": {"object": {"key": "auto-2314.xml"}}}]}`,
			// two elements of which neither has both
			`{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": {"key": "home-2314.xml"}}},
				{"eventName": "ObjectRemoved:Delete", "s3": {"object": {"key": "auto-2314.xml"}}}]}`,
		},
	},
	{
		// absent from the element in which the other keys match, in whatever order
		policy: `{"lines": {"sku": ["bolt"], "stock": [{"exists": false}]}}`,
		match: []string{
			`{"lines": [{"sku": "bolt"}, {"sku": "nut", "stock": 5}]}`, `{"lines": [[{"stock": 5}], [[{"sku": "bolt"}]]]}`,
			`{"lines": [{"sku": "bolt", "stock": 5}, {"sku": "bolt", "stock": null}]}`,
		},
		other: []string{`{"lines": [{"sku": "bolt", "stock": 5}, {"sku": "nut"}]}`, `{"lines": []}`, `{"sku": "bolt"}`},
	},
	{
		policy: `{"lines": {"a": [{"exists": false}], "b": {"c": ["x"], "d": [{"exists": false}, "y"]}}}`,
		match: []string{
			`{"lines": [{"b": {"c": "x"}}, {"a": 1, "b": {"d": 1}}]}`, `{"lines": [{"b": [{"c": "x"}, {"d": 1}]}]}`,
			`{"lines": [{"a": 1}, {"b": [{"c": "x", "d": 1}, {"c": "x", "d": "y"}]}]}`,
		},
		other: []string{`{"lines": [{"a": 1, "b": {"c": "x"}}]}`, `{"lines": [{"b": [{"c": "x", "d": 1}, {"c": 1}]}]}`},
	},
	{
		policy: `{"lines": {"$or": [{"sku": ["bolt"]}, {"gone": [{"exists": false}]}], "stock": [{"exists": false}]}}`,
		match:  []string{`{"lines": [{"gone": 1, "stock": 1}, {"gone": 1, "sku": "bolt"}]}`, `{"lines": [{"sku": "nut"}]}`},
		other:  []string{`{"lines": [{"gone": 1}, {"sku": "nut"}]}`, `{"lines": [{"sku": "nut"}, {"stock": 1}]}`},
	},
	{
		// where no key matches in an element, absent from all of them
		policy: `{"id": ["a"], "Records": {"error": [{"exists": false}]}}`,
		match:  []string{`{"id": "a", "Records": []}`, `{"id": "a", "Records": [1]}`, `{"id": "a"}`},
		other:  []string{`{"id": "a", "Records": [{}, {"error": 1}]}`, `{}`},
	},
	{
		policy: `{"Records": {"error": [{"exists": false}]}}`,
		match:  []string{`{"Records": []}`, `{"Records": [1]}`, `{"id": "a"}`},
		other:  []string{`{"Records": [{}, {"error": 1}]}`},
	},
	{
		policy: `{"a": ["x\"y\\", "\u00e9\n"]}`,
		match:  []string{`{"a": "x\"y\\"}`, `{"\u0061": "é\u000a"}`, "{\"a\"\r\n:\t[\"b\", \"é\\n\" ] , \"b\": [ ], \"c\": { } } "},
		other:  []string{`{"a": "x"}`},
	},
	{
		// half of a surrogate pair is equal to itself alone
		policy: `{"a": ["\ud83d", "\ud83d\ude00!", "\uDC00\u0041"]}`,
		match:  []string{`{"a": "\uD83D"}`, `{"a": "😀!"}`, `{"a": "\ud83d\uDE00\u0021"}`, `{"a": "\udc00A"}`},
		other:  []string{`{"a": "\ufffd"}`, `{"a": "\ude00"}`, `{"a": "😀"}`, `{"a": "\ud83d\ud83d"}`, `{"a": "\ud83d\u0041"}`},
	},
	{
		// and in any case too; U+FFFD is a character
		policy: `{"a": [{"equals-ignore-case": "\ud83dA"}, {"equals-ignore-case": "x\udc00"}, {"equals-ignore-case": "\ufffd\ufffd\ufffd"}]}`,
		match:  []string{`{"a": "\uD83Da"}`, `{"a": "X\udc00"}`, `{"a": "\ufffd\ufffd\ufffd"}`},
		other: []string{
			`{"a": "\ud83ca"}`, `{"a": "\ufffda"}`, `{"a": "x\udc01"}`, `{"a": "x\ufffd"}`, `{"a": "x"}`, `{"a": "\udc00"}`, `{"a": "\udc01"}`,
			`{"a": "\ud83d"}`,
		},
	},
	{
		policy: `{"a": ["\"\\\/\b\f\n\r\t\u000b", {"prefix": "\ud83d"}]}`,
		match:  []string{`{"a": "\u0022\u005C\u002f\u0008\u000c\u000A\u000d\u0009\u000B"}`, `{"a": "\ud83d\u0041"}`},
		other:  []string{`{"a": "😀"}`, `{"a": "\ufffdA"}`},
	},
	{
		policy: `{"a": [null, true, 7, "x"]}`,
		match:  []string{`{"a": null}`, `{"a": true}`, `{"a": 7.0}`, `{"a": 70e-1}`, `{"a": "x"}`, `{"a": [1, [2, 7]]}`, `{"a": 1, "a": 7}`},
		other:  []string{`{"a": false}`, `{"a": "null"}`, `{"a": "true"}`, `{"a": "7"}`, `{"a": {"a": 7}}`, `{"b": null}`, `[{"a": 7}]`, `{"a": 7} x`},
	},
	{
		policy: `{"a": [{"anything-but": "x"}]}`,
		match:  []string{`{"a": 1}`, `{"a": false}`, `{"a": ""}`},
		other:  []string{`{"a": null}`, `{"a": {}}`, `{"b": 1}`},
	},
	{
		policy: `{"a": [{"anything-but": 5}], "b": [{"anything-but": {"prefix": "x"}}]}`,
		match:  []string{`{"a": "5", "b": 1}`},
		other:  []string{`{"a": 5.00, "b": 1}`, `{"a": 1, "b": "xy"}`, `{"a": 1, "b": null}`, `{"a": null, "b": 1}`},
	},
	{
		// one object is no alternative: $or is a key, as "prefix" is there
		policy: `{"$or": ["x", {"prefix": "y"}]}`,
		match:  []string{`{"$or": "x"}`, `{"$or": "yz"}`},
		other:  []string{`{"x": 1}`},
	},
	{
		policy: `{"$or": {"a": ["x"]}}`,
		match:  []string{`{"$or": {"a": "x"}}`},
		other:  []string{`{"a": "x"}`},
	},
	{
		policy: `{"ip": [{"cidr": "2001:db8::/32"}]}`,
		match:  []string{`{"ip": "2001:db8::1"}`, `{"ip": "2001:0DB8:1::"}`},
		other:  []string{`{"ip": "2001:db9::1"}`, `{"ip": "10.0.0.1"}`, `{"ip": "2001:db8::1%eth0"}`},
	},
}

// The cases of equals-ignore-case are those of the rules engine of SNS: a character of the policy in
// lower or upper case.
func TestPolicy_Match_anyCase(t *testing.T) {
	for _, c := range []struct {
		policy       string
		match, other []string
	}{
		{"k", []string{"k", "K"}, []string{"\u212a", "kk", ""}},                      // the Kelvin sign
		{"\u212a", []string{"k", "\u212a"}, []string{"K"}},                           // whose lower case is k
		{"s", []string{"s", "S"}, []string{"\u017f", "s "}},                          // the long s
		{"stra\u00dfe", []string{"STRA\u00dfE"}, []string{"STRASSE", "STRA\u1e9eE"}}, // the sharp s
		{"\u00e9\u03c3", []string{"\u00c9\u03a3"}, []string{"\u00c9\u03c2", "E\u03a3"}},
		{"", []string{""}, []string{"x"}},
	} {
		doc, err := json.Marshal(map[string]any{"a": []any{map[string]any{"equals-ignore-case": c.policy}}})
		if err != nil {
			t.Fatal(err)
		}
		p := parse(t, filter.Attributes, string(doc))
		check := func(texts []string, want bool) {
			for _, text := range texts {
				if got := p.Match(filter.NewMessage(map[string]filter.Attribute{"a": str(text)}, nil)); got != want {
					t.Errorf("%q and %q: %t", c.policy, text, got)
				}
			}
		}
		check(c.match, true)
		check(c.other, false)
	}
}

func TestPolicy_Match_bodies(t *testing.T) {
	for _, c := range wholeBodies {
		p := parse(t, filter.Body, c.policy)
		for _, body := range c.match {
			if !p.Match(filter.NewMessage(nil, []byte(body))) {
				t.Errorf("%s: %s does not match", c.policy, body)
			}
		}
		for _, body := range c.other {
			if p.Match(filter.NewMessage(nil, []byte(body))) {
				t.Errorf("%s: %s matches", c.policy, body)
			}
		}
	}
}

func TestPolicy_Match_nothing(t *testing.T) {
	for _, scope := range []filter.Scope{filter.Attributes, filter.Body} {
		for _, m := range []*filter.Message{
			filter.NewMessage(nil, nil),
			filter.NewMessage(map[string]filter.Attribute{"b": {Type: filter.Binary, Value: "YQ=="}}, []byte(" {} ")),
			filter.NewMessage(map[string]filter.Attribute{"n": num("nine"), "a": arr("[1"), "t": {Type: "string", Value: "x"}}, []byte("{")),
		} {
			// "An empty set of attributes results in the filter not matching", page
			// "Key matching" of the Amazon SNS Developer Guide.
			if parse(t, scope, `{"a": [{"exists": false}]}`).Match(m) {
				t.Errorf("%v: an empty message matches", scope)
			}
			if !parse(t, scope, `{}`).Match(m) || !new(filter.Policy).Match(m) {
				t.Errorf("%v: the empty policy does not match", scope)
			}
		}
	}
}

// Attributes have no nested keys: a dot in a name is a character.
func TestPolicy_Match_dottedAttribute(t *testing.T) {
	p := parse(t, filter.Attributes, `{"a.b": ["x"]}`)
	if !p.Match(filter.NewMessage(map[string]filter.Attribute{"a.b": str("x")}, nil)) {
		t.Error("an attribute with a dot does not match")
	}
}

func TestPolicy_documents(t *testing.T) {
	const doc = ` {"a": [1.50, "x"]}`
	p := parse(t, filter.Body, doc)
	if p.String() != doc || p.Scope() != filter.Body {
		t.Errorf("%v %q", p.Scope(), p)
	}
	out, err := json.Marshal(map[string]any{"p": p, "zero": new(filter.Policy), "scope": p.Scope()})
	if want := `{"p":{"a":[1.50,"x"]},"scope":"MessageBody","zero":{}}`; string(out) != want || err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

func TestScope(t *testing.T) {
	for _, s := range []filter.Scope{filter.Attributes, filter.Body} {
		text, err := s.MarshalText()
		var back filter.Scope
		if err != nil || back.UnmarshalText(text) != nil || back != s || string(text) != s.String() {
			t.Errorf("%v became %s, %v, %v", s, text, err, back)
		}
	}
	var s filter.Scope
	if err := s.UnmarshalText([]byte("RandomValue")); err == nil || !strings.Contains(err.Error(), "MessageAttributes, MessageBody") {
		t.Error(err)
	}
	if _, err := filter.Scope(2).MarshalText(); err == nil || filter.Scope(2).String() != "Scope(2)" {
		t.Error("scope 2 is written")
	}
	if _, err := filter.Parse(2, []byte("{}")); err == nil {
		t.Error("scope 2 is read")
	}
}

// Many goroutines match one message, which is parsed meanwhile.
func TestMessage_concurrent(t *testing.T) {
	m := filter.NewMessage(map[string]filter.Attribute{"a": str("x")}, []byte(`{"a": "x"}`))
	policies := []*filter.Policy{parse(t, filter.Attributes, `{"a": ["x"]}`), parse(t, filter.Body, `{"a": ["x"]}`)}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			if !policies[i%2].Match(m) {
				t.Error("no match")
			}
		})
	}
	wg.Wait()
}
