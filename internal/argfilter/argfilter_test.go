package argfilter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/argfilter"
)

func TestMatch(t *testing.T) {
	const doc = `{"to": "ann@example.org", "n": 1.50, "ok": true, "no": null, "empty": "", "quoted": "a\"b\u0041", "list": [1], "address": {"city": "Bern", "a.b": 1}, "to ": 2, "x": "first", "x": "last"}`
	for cond, want := range map[string]bool{
		"to=ann@example.org": true, "to=ann": false, "to=ANN@example.org": false, "To=ann@example.org": false, `to="ann@example.org"`: false,
		"n=1.50": true, "n=1.5": false, "ok=true": true, "ok=false": false, "no=null": true, "no=": false, "empty=": true, "none=": false, "none=null": false,
		`quoted=a"bA`: true, "list=[1]": false, "list=1": false, "address.city=Bern": true, "address.city=Basel": false, "address=Bern": false,
		`address={"city": "Bern"}`: false, "address.a.b=1": false, "to.city=Bern": false, "to =2": true, "x=last": true, "x=first": false,
	} {
		a, err := argfilter.Parse(cond)
		if err != nil || a.String() != cond {
			t.Errorf("%s: %v, %v", cond, a, err)
		}
		if got := argfilter.Match([]argfilter.Arg{a}, []byte(doc)); got != want {
			t.Errorf("%s: %v, want %v", cond, got, want)
		}
	}
	both := []argfilter.Arg{{"to", "ann@example.org"}, {"ok", "false"}}
	if argfilter.Match(both, []byte(doc)) || !argfilter.Match(both[:1], []byte(doc)) || !argfilter.Match(nil, []byte(doc)) {
		t.Error("not all conditions have to be met")
	}
	for _, odd := range []string{"", "null", "1", `"to"`, "[]", "{", "\xff", strings.Repeat("[", 20_000)} {
		if argfilter.Match(both[:1], []byte(odd)) {
			t.Errorf("%.20q meets a condition", odd)
		}
	}
}

func TestParse_refuses(t *testing.T) {
	for _, bad := range []string{"", "to", "=x", ".to=x", "to.=x", "a..b=x", "to=" + strings.Repeat("x", 1022), "to=\xff"} {
		var f *errand.FieldError
		if a, err := argfilter.Parse(bad); !errors.As(err, &f) || f.Field != "arg" || len(err.Error()) > 300 {
			t.Errorf("%.20q: %v, %v", bad, a, err)
		}
	}
	if a, err := argfilter.Parse("to=a=b"); err != nil || a != (argfilter.Arg{Path: "to", Value: "a=b"}) {
		t.Errorf("%v, %v", a, err)
	}
}

// pages is a list of n jobs, whose args are their numbers.
func pages(n int) func(context.Context, *errand.ListOptions) (errand.JobPage, error) {
	return func(_ context.Context, o *errand.ListOptions) (page errand.JobPage, err error) {
		from := 0
		if o.After != "" {
			if _, err := fmt.Sscan(o.After, &from); err != nil {
				return page, err
			}
		}
		for ; from < n && len(page.Jobs) < o.Limit; from++ {
			page.Jobs = append(page.Jobs, errand.JobInfo{Args: fmt.Append(nil, from)})
		}
		if page.Looked = len(page.Jobs); from < n {
			page.Next = fmt.Sprint(from)
		}
		return page, nil
	}
}

// A list has each job that matches once, over pages that are full or have looked at enough.
func TestList(t *testing.T) {
	for limit, every := range []int{1, 7, 150, 6000} {
		var found []string
		o := errand.ListOptions{Limit: 100 * min(limit, 1)} // zero is the same
		for {
			page, err := argfilter.List(t.Context(), o, pages(5001), func(j *errand.JobInfo) (bool, error) {
				var n int
				_, err := fmt.Sscan(string(j.Args), &n)
				return n%every == 0, err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range page.Jobs {
				found = append(found, string(j.Args))
			}
			if len(page.Jobs) > 100 || page.Looked > 2100 || page.Partial != (page.Next != "" && len(page.Jobs) < 100) || page.Partial && page.Looked < 2000 && len(page.Jobs) <= 50 {
				t.Errorf("every %d: a page of %d jobs, of %d looked at, partial: %v", every, len(page.Jobs), page.Looked, page.Partial)
			}
			if o.After = page.Next; o.After == "" {
				break
			}
		}
		var want []string
		for n := 0; n < 5001; n += every {
			want = append(want, fmt.Sprint(n))
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("every %d: %d found, want %d", every, len(found), len(want))
		}
	}
	broken := errors.New("broken")
	if _, err := argfilter.List(t.Context(), errand.ListOptions{Limit: 1}, pages(1), func(*errand.JobInfo) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
