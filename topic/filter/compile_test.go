package filter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/errandq/errand/topic/filter"
)

// values returns n conditions.
func values(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"v%d"`, i)
	}
	return "[" + b.String()[1:] + "]"
}

// What is wrong, where, and what is wanted. The cases of one operator are those that
// the tests of LocalStack found SNS to refuse.
func TestParse_faults(t *testing.T) {
	for _, c := range []struct {
		scope  filter.Scope
		doc    string
		path   string
		at     string // what the document has at the offset
		wanted string
	}{
		{filter.Body, `{"key": [["value"]]}`, "$.key[0]", `["value"]`, "must be a string, a number"},
		{filter.Body, `{"key": [{"wrong": true}]}`, "$.key[0].wrong", `"wrong"`, "must be one of prefix"},
		{filter.Body, `{"key": [{"suffix": "a", "prefix": "b"}]}`, "$.key[0]", `{"suffix"`, "exactly one member"},
		{filter.Body, `{"key": [{}]}`, "$.key[0]", `{}`, "exactly one member"},
		{filter.Body, `{"key": [{"suffix": 100}]}`, "$.key[0].suffix", "100", "must be a string"},
		{filter.Body, `{"key": [{"prefix": null}]}`, "$.key[0].prefix", "null", "must be a string"},
		{filter.Body, `{"key": [{"equals-ignore-case": ["a"]}]}`, "$.key[0].equals-ignore-case", `["a"]`, "must be a string"},
		{filter.Body, `{"key": {"suffix": "value"}}`, "$.key.suffix", `"value"`, "must be an array or an object"},
		{filter.Body, `{"key": "value"}`, "$.key", `"value"`, "must be an array or an object"},
		{filter.Attributes, `{"key": {"a": ["x"]}}`, "$.key", `{"a"`, "attributes have no nested keys"},
		{filter.Body, `{"key": []}`, "$.key", `[]`, "must not be empty"},
		{filter.Body, `{"key": {}}`, "$.key", `{}`, "must not be empty"},
		{filter.Body, `["x"]`, "$", `["x"]`, "must be an object"},
		{filter.Body, `{"key": [{"numeric": []}]}`, "$.key[0].numeric", `[]`, "must be an array such as"},
		{filter.Body, `{"key": [{"numeric": 5}]}`, "$.key[0].numeric", `5`, "must be an array such as"},
		{filter.Body, `{"key": [{"numeric": ["operator"]}]}`, "$.key[0].numeric[0]", `"operator"`, "must be one of =, <"},
		{filter.Body, `{"key": [{"numeric": [1, "<="]}]}`, "$.key[0].numeric[0]", "1,", "must be one of =, <"},
		{filter.Body, `{"key": [{"numeric": ["=", "000"]}]}`, "$.key[0].numeric[1]", `"000"`, "must be a number between"},
		{filter.Body, `{"key": [{"numeric": [">="]}]}`, "$.key[0].numeric[0]", `">="`, "must be followed by a number"},
		{filter.Body, `{"key": [{"numeric": ["<", 100, ">", 10]}]}`, "$.key[0].numeric[2]", `">"`, "must not be there"},
		{filter.Body, `{"key": [{"numeric": ["=", 100, "<", 10]}]}`, "$.key[0].numeric[2]", `"<"`, "must not be there"},
		{filter.Body, `{"key": [{"numeric": [">=", 1, ">", 2]}]}`, "$.key[0].numeric[2]", `">"`, "must be one of <, <="},
		{filter.Body, `{"key": [{"numeric": [">", 3, "<", 1]}]}`, "$.key[0].numeric[3]", "1]", "above the lower end"},
		{filter.Body, `{"key": [{"numeric": [">=", 3, "<=", 3]}]}`, "$.key[0].numeric[3]", "3]", "above the lower end"},
		{filter.Body, `{"key": [{"numeric": [">", 20, "<="]}]}`, "$.key[0].numeric[2]", `"<="`, "must be followed by a number"},
		{filter.Body, `{"key": [{"numeric": [">", 20, 30]}]}`, "$.key[0].numeric[2]", "30", "must be one of <, <="},
		{filter.Body, `{"key": [{"numeric": [">", 20, "<", 30, "<", 50]}]}`, "$.key[0].numeric[4]", `"<", 50`, "must not be there"},
		{filter.Body, `{"key": [{"numeric": [">", "20"]}]}`, "$.key[0].numeric[1]", `"20"`, "must be a number between"},
		{filter.Body, `{"key": [1000000000.00001]}`, "$.key[0]", "1000000000.00001", "between -1000000000 and 1000000000"},
		{filter.Body, `{"key": [-1000000000.000001]}`, "$.key[0]", "-1000000000.000001", "between -1000000000"},
		{filter.Body, `{"key": [0.000001]}`, "$.key[0]", "0.000001", "at most 5 decimals"},
		{filter.Body, `{"key": [{"exists": null}]}`, "$.key[0].exists", "null", "must be true or false"},
		{filter.Body, `{"key": [{"exists": "no"}]}`, "$.key[0].exists", `"no"`, "must be true or false"},
		{filter.Body, `{"key": [{"anything-but": {"wrong": null}}]}`, "$.key[0].anything-but.wrong", `"wrong"`, "must be one of prefix, suffix, wildcard"},
		{filter.Body, `{"key": [{"anything-but": {"exists": false}}]}`, "$.key[0].anything-but.exists", `"exists"`, "must be one of prefix, suffix, wildcard"},
		{filter.Body, `{"key": [{"anything-but": {"prefix": false}}]}`, "$.key[0].anything-but.prefix", "false", "must be a string"},
		{filter.Body, `{"key": [{"anything-but": {"suffix": ""}}]}`, "$.key[0].anything-but.suffix", `""`, "must not be empty"},
		{filter.Body, `{"key": [{"anything-but": {}}]}`, "$.key[0].anything-but", `{}`, "exactly one member"},
		{filter.Body, `{"key": [{"anything-but": []}]}`, "$.key[0].anything-but", `[]`, "must not be empty"},
		{filter.Body, `{"key": [{"anything-but": null}]}`, "$.key[0].anything-but", `null`, "must be a string, a number"},
		{filter.Body, `{"key": [{"anything-but": ["a", 1]}]}`, "$.key[0].anything-but[1]", "1]", "as all others"},
		{filter.Body, `{"key": [{"anything-but": [1, "a"]}]}`, "$.key[0].anything-but[1]", `"a"`, "as all others"},
		{filter.Body, `{"key": [{"anything-but": [true]}]}`, "$.key[0].anything-but[0]", "true", "as all others"},
		{filter.Body, `{"key": [{"anything-but": 2e9}]}`, "$.key[0].anything-but", "2e9", "between -1000000000"},
		{filter.Body, `{"key": [{"cidr": "10.0.0.0"}]}`, "$.key[0].cidr", `"10.0.0.0"`, "range of IP addresses"},
		{filter.Body, `{"key": [{"cidr": "10.0.0.0/33"}]}`, "$.key[0].cidr", `"10.0.0.0/33"`, "range of IP addresses"},
		{filter.Body, `{"key": [{"cidr": 10}]}`, "$.key[0].cidr", `10}`, "range of IP addresses"},
		{filter.Body, `{"key": [{"wildcard": "a**b"}]}`, "$.key[0].wildcard", `"a**b"`, "two * in a row"},
		{filter.Body, `{"key": [{"wildcard": "a\\b"}]}`, "$.key[0].wildcard", `"a\\b"`, "must not have a backslash"},
		{filter.Body, `{"key": [{"wildcard": "a\\"}]}`, "$.key[0].wildcard", `"a\\"`, "must not have a backslash"},
		{filter.Body, `{"key": [{"wildcard": "*a*b*c*"}]}`, "$.key[0].wildcard", `"*a*b*c*"`, "at most 3 wildcards"},
		{filter.Body, `{"key": [{"wildcard": 5}]}`, "$.key[0].wildcard", `5}`, "must be a string"},
		{filter.Body, `{"a": ["x"], "a": ["y"]}`, "$.a", `"a": ["y"]`, "given twice"},
		{filter.Body, `{"a": ["x"], "\u0061": ["y"]}`, "$.a", `"\u0061"`, "given twice"},
		{filter.Body, `{"a": {"b": ["x"]}, "a.b": ["y"]}`, `$["a.b"]`, `"a.b"`, "beside it"},
		{filter.Body, `{"$or": [{"a": ["x"]}, {"b": ["x"]}], "b": ["y"]}`, "$.b", `"b": ["y"]`, "beside it"},
		{filter.Body, `{"$or": [{"numeric": 123}, {"prefix": "abc"}]}`, "$.$or[0].numeric", "123", "must be an array such as"},
		{filter.Body, `{"$or": [{"a": ["x"]}]}`, "$.$or[0].a", `"a"`, "alternatives are two objects or more"},
		{filter.Body, `{"$or": [{"a": ["x"]}, {}]}`, "$.$or[1]", `{}`, "must not be empty"},
		{filter.Body, `{"a": ["x"] "b"}`, "$", `"b"`, "must be JSON"},
		{filter.Body, `{"a": ["x"]`, "$", "", "must be JSON"},
		{filter.Body, "{\"a\": [\"\xff\"]}", "$", "\xff", "must be UTF-8"},
		{filter.Attributes, `{"a":["1"],"b":["1"],"c":["1"],"d":["1"],"e":["1"],"f":["1"],"g":["1"]}`, "$.f", `"f"`, "at most 5 keys, there are 7"},
		{filter.Body, `{"a":{"b":["1"],"c":["1"],"d":["1"]},"$or":[{"e":["1"],"f":["1"]},{"g":["1"]}]}`, "$.$or[1].g", `"g"`, "at most 5 keys, there are 6"},
		{filter.Attributes, `{"key": ` + values(151) + `}`, "$", "{", "at most 150"},
		{filter.Attributes, `{"a": ` + values(100) + `, "b": ` + values(51) + `}`, "$", "{", "at most 150"},
		// of the test on SNS: 3 x 4 x 2 x 3 x 1 x 3 = 216
		{filter.Body, `{"a": {"b": {"c": ` + values(4) + `}}, "d": {"e": ` + values(3) + `}, "f": ` + values(3) + `}`, "$", "{", "at most 150"},
		{filter.Body, strings.Repeat(`{"a":`, 151) + `["x"]` + strings.Repeat("}", 151), "$" + strings.Repeat(".a", 98) + ".a...a" + strings.Repeat(".a", 50)[:99], `"a":["x"]`, "deeper than 150"},
		{filter.Body, strings.Repeat(`{"$or":[{"x":["1"]},`, 151) + `{"y":["1"]}` + strings.Repeat("]}", 151), "$", "{", "at most 150"},
		{filter.Body, `{"a": [` + strings.Repeat(`{"wildcard": "*x*"},`, 4) + `{"wildcard": "x*"}]}`, "$", "{", "at most 100"},
		{filter.Body, `{"a b": [0.123456]}`, `$["a b"][0]`, "0.123456", "decimals"},
	} {
		_, err := filter.Parse(c.scope, []byte(c.doc))
		faults := filter.Faults(err)
		if len(faults) == 0 {
			t.Errorf("%.100s: %v", c.doc, err)
			continue
		}
		f := faults[0]
		if c.path != "" && f.Path != c.path && !strings.Contains(f.Path, "...") ||
			!strings.HasPrefix(c.doc[f.Offset:], c.at) || !strings.Contains(f.Want, c.wanted) {
			t.Errorf("%.100s:\n%v\nat %.20s: want %s at %s, and %q", c.doc, f, c.doc[f.Offset:], c.path, c.at, c.wanted)
		}
		if !strings.HasPrefix(f.Error(), "filter: $") || !strings.Contains(err.Error(), fmt.Sprintf(" at byte %d: must ", f.Offset)) {
			t.Errorf("%v", f)
		}
	}
}

// At its limits a policy is accepted.
func TestParse_limits(t *testing.T) {
	for _, c := range []struct {
		scope filter.Scope
		doc   string
	}{
		// 3 x 6 + 3 x 4 x 4 + 3 x 4 x 7 = 150, accepted by SNS too
		{filter.Attributes, `{"source": ` + values(3) + `, "$or": [{"metricName": ` + values(6) + `},
			{"metricType": ` + values(4) + `, "$or": [{"metricId": ` + values(4) + `}, {"spaceId": ` + values(7) + `}]}]}`},
		{filter.Attributes, `{"key": ` + values(150) + `}`},
		// page "Filter policy constraints": 4 x 3 x 3 x 2 = 72, and twice that
		{filter.Body, `{"a": {"b": {"c": ` + values(4) + `}}, "d": {"e": ` + values(3) + `}, "f": ["x", "y"]}`},
		{filter.Body, strings.Repeat(`{"a":`, 150) + `["x"]` + strings.Repeat("}", 150)},
		{filter.Body, `{"$or": [{"a": ["1"], "b": ["1"]}, {"a": ["2"], "c": ["1"]}, {"b": ["2"], "c": ["2"], "d": ["1"], "e": ["1"]}]}`},
		{filter.Body, `{"a": [1000000000, -1000000000, 999999999.99999, 1e9, 0.00001, {"numeric": [">", -1e9, "<=", 1e9]}]}`},
		{filter.Body, `{"a": [{"wildcard": "*"}, {"wildcard": "a\\*\\\\*b"}, {"wildcard": ""}, {"prefix": ""}]}`},
		// 4 x (4 x 3 x 2) = 96 points
		{filter.Body, `{"a": [` + strings.Repeat(`{"wildcard": "*x*"},`, 3) + `{"wildcard": "*y*"}]}`},
		{filter.Body, `{"a": [` + strings.Repeat(`{"anything-but": "x"},`, 20) + `"x"]}`},
		{filter.Body, `{"a": ["` + strings.Repeat("x", filter.MaxSize-11) + `"]}`},
		{filter.Body, `{"": [""], ".": ["x"]}`},
		{filter.Attributes, ` { } `},
	} {
		if _, err := filter.Parse(c.scope, []byte(c.doc)); err != nil {
			t.Errorf("%.200s: %v", c.doc, err)
		}
	}
	_, err := filter.Parse(filter.Body, []byte(strings.Repeat(" ", filter.MaxSize-1)+"{}"))
	if err == nil || !strings.Contains(err.Error(), "of 262145 bytes") || !strings.Contains(err.Error(), "at most 262144 bytes") {
		t.Error(err)
	}
}

// The combinations that the pages "AND/OR logic" and "Filter policy constraints" of
// the Amazon SNS Developer Guide count. A key with 100 conditions beside makes them
// too many, so that the fault has their number.
func TestParse_combinations(t *testing.T) {
	for _, c := range []struct {
		doc  string
		want int
	}{
		{`{"a": ["1", "2", "3"], "b": ["1"], "c": ["1", "2"]}`, 6},
		{`{"source": ["x"], "$or": [{"metricName": ["a", "b"]}, {"metricType": ["x"],
			"$or": [{"metricId": [1234, 4321]}, {"spaceId": [1000, 2000, 3000]}]}]}`, 7},
		{`{"$or": [{"metricName": ["a", "b"]}, {"namespace": ["a", "b"]}],
			"detail": {"scope": ["x"], "$or": [{"source": ["x"]}, {"type": ["x"]}]}}`, 32},
		{`{"a": {"b": {"c": ["1", "2", "3", "4"]}}, "d": {"e": ["1", "2", "3"]}}`, 72},
		// refused by SNS: 3x4x2 + 3x4x6 + 2x4x2 + 2x4x6
		{`{"$or": [{"metricName": ["a", "b", "c"]}, {"namespace": ["a", "b"]}],
			"detail": {"scope": ["x", "y"], "$or": [{"source": ["x"]}, {"type": ["x", "y", "z"]}]}}`, 160},
	} {
		_, err := filter.Parse(filter.Body, []byte(`{"key": `+values(100)+","+c.doc[1:]))
		if want := fmt.Sprintf("with %d combinations", 100*c.want); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", c.doc, err, want)
		}
	}
}

func TestFaults(t *testing.T) {
	_, err := filter.Parse(filter.Body, []byte(`{"b": 1, "a": [{"prefix": 1}, {"suffix": 2}]}`))
	faults := filter.Faults(fmt.Errorf("create: %w", err))
	if len(faults) != 3 || faults[0].Path != "$.b" || faults[2].Path != "$.a[1].suffix" || faults[2].Value != "2" {
		t.Errorf("%d faults: %v", len(faults), err)
	}
	if err.Error() != `filter: $.b 1 at byte 6: must be an array or an object
filter: $.a[0].prefix 1 at byte 26: must be a string
filter: $.a[1].suffix 2 at byte 41: must be a string` {
		t.Error(err)
	}
	_, err = filter.Parse(filter.Body, []byte(`{"a": [`+strings.Repeat(`{"prefix": 1},`, 100)+`1]}`))
	if n := len(filter.Faults(err)); n != 20 {
		t.Errorf("%d faults", n)
	}
	if filter.Faults(errors.New("other")) != nil || filter.Faults(nil) != nil {
		t.Error("other errors have faults")
	}
}
