package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/errandq/errand"
)

// BenchmarkActions asks for each kind of action and confirms it, and reports the 95th percentile of
// how long the question and the answer take together.
func BenchmarkActions(b *testing.B) {
	q := benchQueue(b)
	h := admin(q)
	scheduled, err := q.Jobs(b.Context(), errand.JobFilter{States: []errand.State{errand.Scheduled}}, &errand.ListOptions{Limit: 1000})
	if err != nil || len(scheduled.Jobs) < 1000 {
		b.Fatalf("%d jobs, %v", len(scheduled.Jobs), err)
	}
	id := func(i int) string { return scheduled.Jobs[i%1000].ID.String() }
	for _, c := range []struct {
		name string
		form func(i int) url.Values
	}{
		{"redrive-all", func(int) url.Values { return url.Values{"do": {"redrive"}, "state": {"dead"}} }},
		{"redrive-kind", func(int) url.Values { return url.Values{"do": {"redrive"}, "kind": {"letter"}} }},
		{"cancel-tag", func(int) url.Values { return url.Values{"do": {"cancel"}, "tag": {"odd"}, "state": {"scheduled"}} }},
		{"redrive-error", func(int) url.Values { return url.Values{"do": {"redrive"}, "error": {"of cause 3"}} }},
		{"change-one", func(i int) url.Values {
			return url.Values{"do": {"change"}, "form": {"1"}, "of-id": {id(i)}, "priority": {fmt.Sprint(1 + i%99)}}
		}},
		{"run-one", func(i int) url.Values { return url.Values{"do": {"run"}, "id": {id(i)}} }},
		{"enqueue", func(int) url.Values { return url.Values{"do": {"enqueue"}, "kind": {"letter"}, "args": {"{}"}} }},
		{"hold", func(int) url.Values { return url.Values{"do": {"hold"}, "queue": {"later1"}} }},
	} {
		b.Run("do="+c.name, func(b *testing.B) {
			var all []time.Duration
			for i := 0; b.Loop(); i++ {
				begun := time.Now()
				asked := send(h, c.form(i))
				if f := formOf(asked.text); f.Get("key") != "" {
					if a := send(h, f); a.status != http.StatusSeeOther {
						b.Fatalf("%d %s", a.status, a.text)
					}
				} else if asked.status != http.StatusOK {
					b.Fatalf("%d %s", asked.status, asked.text)
				}
				all = append(all, time.Since(begun))
			}
			reportP95(b, all)
		})
	}
}
