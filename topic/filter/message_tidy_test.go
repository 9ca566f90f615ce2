package filter

import (
	"fmt"
	"strings"
	"testing"
)

// dotted returns an object of n fields below one name.
func dotted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"a.%d":1`, i)
	}
	return "{" + b.String()[1:] + "}"
}

// A name that occurs often costs no more than the same fields under other names: each field
// is sorted once at each level of its name.
func TestMessage_tidy_once(t *testing.T) {
	const n = 10_000
	nested := `{"x":1}`
	for range 100 {
		nested = `{"a":` + nested + `,"a":{"a":{"a":{"y":2}}}}`
	}
	for _, c := range []struct {
		name, body string
		most       int
	}{
		{"dots", dotted(n), 2 * n},
		{"objects", "{" + strings.Repeat(`"a":{"b":1},`, n-1) + `"a":{"c":1}}`, 2 * n},
		{"values", "{" + strings.Repeat(`"a":1,`, n-1) + `"a":{"c":1}}`, n + 1},
		{"nested", nested, 100*5 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, err := readJSON(c.body)
			if err != nil {
				t.Fatal(err)
			}
			d := tidier{todo: []*node{&root}}
			for len(d.todo) > 0 {
				d.next()
			}
			if d.sorted == 0 || d.sorted > c.most {
				t.Errorf("%d fields were sorted, want at most %d", d.sorted, c.most)
			}
		})
	}
}

// Objects of one name are one up to the first value that is no object.
func TestMessage_tidy_mixed(t *testing.T) {
	root, err := readJSON(`{"a":{"b":1},"a.c":2,"a":3,"a":{"b.d":4},"a":{"e":5}}`)
	if err != nil {
		t.Fatal(err)
	}
	root.tidy()
	a := root.get("a")
	if a == nil || a.kind != isArray || len(a.items) != 4 {
		t.Fatalf("a: %+v", a)
	}
	for i, names := range []key{{"b"}, {"c"}, {"b", "d"}, {"e"}} {
		if of := &a.items[[]int{0, 0, 2, 3}[i]]; !of.has(names) {
			t.Errorf("%v is absent in %+v", names, of)
		}
	}
}

func BenchmarkMessage_oneName(b *testing.B) {
	p, err := Parse(Body, []byte(`{"x": ["y"]}`))
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{100, 1000, 10_000} {
		body := []byte(dotted(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Match(NewMessage(nil, body))
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(n), "ns/field")
		})
	}
}
