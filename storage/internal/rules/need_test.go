package rules

import (
	"reflect"
	"testing"

	"github.com/errandq/errand/storage"
)

func TestNeed(t *testing.T) {
	var n Need
	if !n.None() {
		t.Error("nothing is not none")
	}
	n.Enter([]storage.NewJob{job("")})
	if !n.None() || n.Fresh != 1 {
		t.Errorf("a plain job needs %+v", n)
	}
	member := grouped("g", "")
	if n.Enter([]storage.NewJob{member}); n.None() {
		t.Error("a member needs nothing")
	}
	for _, n := range []Need{{Keys: []NeedKey{{Name: "u"}}}, {Groups: []string{"q g"}, Leave: []int32{1}}} {
		if n.None() {
			t.Errorf("%+v is none", n)
		}
	}
	replace, merge := &storage.Conflict{Mode: storage.Replace}, &storage.Conflict{Mode: storage.Replace, Merge: &storage.Merge{}}
	sorted := func(more ...storage.NewJob) Need {
		n := Need{Jobs: []int64{3, 1, 2}, Anew: true}
		n.Enter([]storage.NewJob{member, {Unique: "b", Conflict: replace}, {Unique: "b", Conflict: merge}, {Unique: "b", Conflict: replace}, {Unique: "a"}, {Unique: "b"}})
		n.End("c", "q h")
		n.End("a", "q g")
		n.End("", "q h")
		n.Enter(more)
		n.Sort()
		return n
	}
	want := Need{
		Keys: []NeedKey{{Name: "a"}, {"b", merge}, {Name: "c"}, {Name: "m"}}, Groups: []string{"q g", "q h"}, Leave: []int32{1, 2},
		Jobs: []int64{1, 2, 3}, Fresh: 6, Anew: true,
	}
	member.Unique = "m"
	n = sorted()
	for range 2 { // it may be sorted again
		if !reflect.DeepEqual(n, want) {
			t.Errorf("\n got %+v\nwant %+v", n, want)
		}
		n.Sort()
	}
	want.Keys[3].Conflict, want.Leave[0], want.Fresh = replace, 2, 7
	if n = sorted(storage.NewJob{Unique: "m", Conflict: replace}); !reflect.DeepEqual(n, want) { // it may put the member off
		t.Errorf("\n got %+v\nwant %+v", n, want)
	}
}

func TestNeed_Ends(t *testing.T) {
	var n Need
	n.End("u", "q g")
	for _, c := range []struct {
		key, group string
		want       bool
	}{{"", "", true}, {"u", "", true}, {"u", "q g", true}, {"", "q g", true}, {"v", "", false}, {"u", "q h", false}, {"v", "q g", false}} {
		if got := n.Ends(c.key, c.group); got != c.want {
			t.Errorf("Ends(%q, %q) is %t", c.key, c.group, got)
		}
	}
}
