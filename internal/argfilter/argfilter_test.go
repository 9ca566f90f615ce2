package argfilter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	const nested = `{"to": ["ann@example.org", {"n": 1.50}], "raw": "{\"to\": \"bob\"}", "e": "\u0061=b", "x": {"ok": true}, "name": null}`
	for cond, want := range map[string]bool{
		"ann@example.org": true, "ann": false, "1.50": true, "1.5": false, "=a=b": true, "=ann@example.org": true, "bob": false, `={"to": "bob"}`: true,
		`{"to": "bob"}`: true, "true": true, "null": true, "to": false, "name": false, "[": false,
	} {
		a, err := argfilter.Parse(cond)
		if again, _ := argfilter.Parse(a.String()); err != nil || again != a || a.Path != "" {
			t.Errorf("%s: %v, %v", cond, a, err)
		}
		if got := argfilter.Match([]argfilter.Arg{a}, []byte(nested)); got != want {
			t.Errorf("%s anywhere: %v, want %v", cond, got, want)
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
	for _, bad := range []string{"", "=", ".to=x", "to.=x", "a..b=x", "to=" + strings.Repeat("x", 1022), "to=\xff"} {
		var f *errand.FieldError
		if a, err := argfilter.Parse(bad); !errors.As(err, &f) || f.Field != "arg" || len(err.Error()) > 300 {
			t.Errorf("%.20q: %v, %v", bad, a, err)
		}
	}
	if a, err := argfilter.Parse("to=a=b"); err != nil || a != (argfilter.Arg{Path: "to", Value: "a=b"}) {
		t.Errorf("%v, %v", a, err)
	}
}

// numbers is a queue of so many jobs, whose args are their numbers. Of each hundredth they are large.
type numbers struct {
	n, limit int // limit is the largest that was asked for
	reads    int
}

func (q *numbers) Jobs(_ context.Context, _ errand.JobFilter, o *errand.ListOptions) (page errand.JobPage, err error) {
	q.reads++
	q.limit = max(q.limit, o.Limit)
	from := 0
	if o.After != "" {
		if _, err := fmt.Sscan(o.After, &from); err != nil {
			return page, err
		}
	}
	for ; from < q.n && len(page.Jobs) < o.Limit; from++ {
		j, _ := q.Job(context.Background(), errand.ID{14: byte(from >> 8), 15: byte(from)})
		if o.MaxArgs > 0 && from%100 == 0 {
			j.Args, j.ArgsBytes = nil, int64(o.MaxArgs)+1
		}
		page.Jobs = append(page.Jobs, j)
	}
	if page.Looked = len(page.Jobs); from < q.n {
		page.Next, page.Looked = fmt.Sprint(from), page.Looked+1
	}
	return page, nil
}

func (q *numbers) Job(_ context.Context, id errand.ID) (errand.JobInfo, error) {
	return errand.JobInfo{ID: id, Args: fmt.Append(nil, int(id[14])<<8|int(id[15]))}, nil
}

// A list has each job that is kept once, over pages that are full, or have looked at enough. It goes
// on in steps until it is told that that is enough.
func TestList(t *testing.T) {
	for _, every := range []int{1, 7, 150, 6000} {
		for _, steps := range []int{0, 13, 1000} { // more than the least
			var found []string
			q := &numbers{n: 5001}
			o := errand.ListOptions{Limit: 100 * min(every-1, 1), Args: true} // zero is the same
			for {
				n := 0
				page, err := argfilter.List(t.Context(), q, errand.JobFilter{}, o, func(j *errand.JobInfo) (bool, error) {
					var n int
					_, err := fmt.Sscan(string(j.Args), &n)
					return n%every == 0, err
				}, func() bool { n++; return n > steps })
				if err != nil {
					t.Fatal(err)
				}
				for _, j := range page.Jobs {
					found = append(found, fmt.Sprint(int(j.ID[14])<<8|int(j.ID[15])))
				}
				looked := min(2000+200*steps, 5001)
				if full := len(page.Jobs) == 100; len(page.Jobs) > 100 || page.Partial == full && page.Next != "" || page.Partial && page.Looked != looked || page.Looked > looked {
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
			if q.limit > 200 || q.reads > 5001/49 {
				t.Errorf("every %d: %d reads, of up to %d jobs", every, q.reads, q.limit)
			}
		}
	}
	broken := errors.New("broken")
	if _, err := argfilter.List(t.Context(), &numbers{n: 1}, errand.JobFilter{}, errand.ListOptions{Limit: 1}, func(*errand.JobInfo) (bool, error) { return false, broken }, nil); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	page, err := argfilter.List(t.Context(), &numbers{n: 50}, errand.JobFilter{}, errand.ListOptions{Limit: 20}, nil, nil)
	if err != nil || len(page.Jobs) != 20 || page.Next != "20" || page.Partial {
		t.Errorf("all: %v, %v", page, err)
	}
}

// About counts what a list looks at: of most states all jobs, whatever their queue.
func TestAbout(t *testing.T) {
	lanes := []errand.LaneTotals{
		{Stats: errand.LaneStats{Queue: "a", Kind: "k", Ready: 1, Scheduled: 2, Dead: 4, Done: 8}},
		{Stats: errand.LaneStats{Queue: "b", Kind: "k", Ready: 16, Running: 32, Blocked: 64, Cancelled: 128, Expired: 256}},
	}
	for _, c := range []struct {
		f    errand.JobFilter
		want int64 // -1: not known
	}{
		{errand.JobFilter{}, 511}, {errand.JobFilter{Queue: "a"}, 495}, {errand.JobFilter{Kind: "k", States: []errand.State{errand.Ready}}, 17},
		{errand.JobFilter{Queue: "b", States: []errand.State{errand.Ready, errand.Dead}}, 20}, {errand.JobFilter{States: []errand.State{errand.Cancelled}}, 392},
		{errand.JobFilter{Error: "x", States: []errand.State{errand.Running, errand.Blocked, errand.Scheduled}}, 98},
		{errand.JobFilter{Group: "g"}, -1}, {errand.JobFilter{Tag: "t"}, -1}, {errand.JobFilter{Parent: errand.ID{1}}, -1}, {errand.JobFilter{Origin: errand.Origin{Device: "d"}}, -1}, {errand.JobFilter{DueFrom: time.Unix(1, 0)}, -1},
	} {
		if n, known := argfilter.About(&c.f, lanes); known != (c.want >= 0) || known && n != c.want {
			t.Errorf("%+v: %d, %v, want %d", c.f, n, known, c.want)
		}
	}
}
