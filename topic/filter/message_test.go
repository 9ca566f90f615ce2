package filter_test

import (
	"strings"
	"testing"

	"github.com/errandq/errand/topic/filter"
)

const types = "must be one of String, String.Array, Number, Binary, and may have a label of letters, digits, _, - and . after another dot, up to 256 bytes"

func TestAttribute_Validate(t *testing.T) {
	for _, a := range []filter.Attribute{
		str("x"), num("-0.5e3"), num("1000000000"), arr(`["a", 1, true, false, null]`), arr("[]"), {Type: filter.Binary, Value: "AA=="},
		{Type: "String.prefixed", Value: "x"}, {Type: "Number.x", Value: "1"}, {Type: "Binary.y-1_.png", Value: "AA=="}, {Type: "String.Array.x", Value: "x"},
		{Type: "String." + strings.Repeat("x", 249), Value: "x"},
	} {
		if err := a.Validate(); err != nil {
			t.Errorf("%+v: %v", a, err)
		}
	}
	for _, c := range []struct {
		attribute filter.Attribute
		want      string
	}{
		{str(""), "filter: Value: must not be empty"},
		{str("\xff"), `filter: Value "\xff": must be UTF-8`},
		{num("nine"), `filter: Value "nine": must be a number between -1000000000 and 1000000000`},
		{num("1e10"), `filter: Value "1e10": must be a number between -1000000000 and 1000000000`},
		{arr("a"), `filter: Value "a": must be a JSON array of strings, numbers, true, false and null`},
		{arr(`{}`), `filter: Value "{}": must be a JSON array of strings, numbers, true, false and null`},
		{arr(`[[1]]`), `filter: Value "[[1]]": must be a JSON array of strings, numbers, true, false and null`},
		{filter.Attribute{Type: "Number.Array", Value: "[1]"}, `filter: Value "[1]": must be a number between -1000000000 and 1000000000`},
		{filter.Attribute{Type: "Text", Value: "x"}, `filter: Type "Text": ` + types},
		{filter.Attribute{Type: "string.x", Value: "x"}, `filter: Type "string.x": ` + types},
		{filter.Attribute{Type: "Number.", Value: "1"}, `filter: Type "Number.": ` + types},
		{filter.Attribute{Type: "String.a b", Value: "x"}, `filter: Type "String.a b": ` + types},
		{filter.Attribute{Type: "String." + strings.Repeat("x", 250), Value: "x"}, `filter: Type "String.` + strings.Repeat("x", 23) + "..." + strings.Repeat("x", 30) + `": ` + types},
	} {
		if err := c.attribute.Validate(); err == nil || err.Error() != c.want || len(filter.Faults(err)) != 1 {
			t.Errorf("%+v: %v, want %s", c.attribute, err, c.want)
		}
	}
}

// Values under one name are as those of an array, objects become one.
func TestMessage_names(t *testing.T) {
	body := `{"a.b": 1, "a": {"c": 2}, "x": [1, 2], "x": 3, "y": {"k": 1}, "y": 5, "z.": 6, "": {"": 7}}`
	for _, c := range []struct {
		policy string
		want   bool
	}{
		{`{"a": {"b": [1], "c": [2]}}`, true},
		{`{"a.b": [1], "a": {"c": [2]}}`, true},
		{`{"a.b": [1], "a": {"c": [1]}}`, false},
		{`{"x": [2]}`, true}, {`{"x": [3]}`, true},
		{`{"y": [5]}`, true}, {`{"y": {"k": [1]}}`, true}, {`{"y.k": [1]}`, true},
		{`{"z": {"": [6]}}`, true}, {`{".": [7]}`, true}, {`{"": [7]}`, false},
	} {
		if got := parse(t, filter.Body, c.policy).Match(filter.NewMessage(nil, []byte(body))); got != c.want {
			t.Errorf("%s: %t, want %t", c.policy, got, c.want)
		}
	}
}

// Deep bodies and long names end, and quickly.
func TestMessage_deep(t *testing.T) {
	p := parse(t, filter.Body, `{"a": {"b": [1], "c": [{"exists": false}]}}`)
	for _, body := range []string{
		strings.Repeat(`{"a":`, 9000) + `{"b":1}` + strings.Repeat("}", 9000),
		`{"a":` + strings.Repeat(`[`, 9000) + `{"b":1}` + strings.Repeat("]", 9000) + "}",
		strings.Repeat("[", 1e6),
		`{"` + strings.Repeat("a.", 1e5) + `b": 1, "` + strings.Repeat("a.", 1e5) + `c": 1}`,
		`{"a": [` + strings.Repeat(`{"b": 2},`, 1e5) + `{"c": 2}]}`,
	} {
		m := filter.NewMessage(nil, []byte(body))
		if got, want := p.Match(m), strings.Contains(body, "[[{"); got != want {
			t.Errorf("%.50s: %t, want %t", body, got, want)
		}
	}
}

// An attribute with a label is as one without.
func TestMessage_labels(t *testing.T) {
	p := parse(t, filter.Attributes, `{"s": ["x"], "n": [{"numeric": [">", 1]}], "b": [{"exists": false}]}`)
	if !p.Match(filter.NewMessage(map[string]filter.Attribute{
		"s": {Type: "String.prefixed", Value: "x"}, "n": {Type: "Number.cents", Value: "2"}, "b": {Type: "Binary.png", Value: "AA=="},
	}, nil)) {
		t.Error("attributes with labels do not match")
	}
}
