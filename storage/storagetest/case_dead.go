package storagetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// morgue lets a dozen jobs die, one a second but for two at the same time,
// and returns them in the order of their deaths.
func (f *fixture) morgue() []storage.Record {
	f.Helper()
	reasons := []storage.Reason{storage.ReasonExhausted, storage.ReasonPermanent, storage.ReasonDecode, storage.ReasonSnoozed}
	texts := []string{"Timeout of 5s exceeded", "50% of timeouts", "ÄRGER_1", "ärger-1", "503 from server"}
	var out []storage.Record
	for i := range 12 {
		if i != 6 {
			f.later(time.Second)
		}
		id := f.bury(reasons[i%4], texts[i%5], lane([]string{"a", "b"}[i/6], []string{"x", "y", "z"}[i%3]), func(n *storage.NewJob) {
			n.Headers, n.Priority, n.Timeout, n.Unique = []byte("h"), i, time.Minute, fmt.Sprint("key ", i)
			n.Tags = []string{"all", fmt.Sprint("third-", i%3)}
		})
		out = append(out, f.record(id))
	}
	f.later(time.Second)
	return out
}

// deadList lists dead jobs in pages.
func (f *fixture) deadList(filter storage.Filter, limit int) []storage.Record {
	f.Helper()
	if len(filter.States) > 0 && !slices.Contains(filter.States, storage.Dead) {
		return nil
	}
	filter.States = []storage.State{storage.Dead}
	return f.list(filter, limit)
}

// list lists jobs in pages.
func (f *fixture) list(filter storage.Filter, limit int) []storage.Record {
	f.Helper()
	var out []storage.Record
	after := ""
	for range 1000 {
		page, err := f.s.Jobs(f.ctx, filter, after, limit)
		f.must(err)
		if len(page.Jobs) > limit || page.Looked < len(page.Jobs) {
			f.Fatalf("a page with a limit of %d has %d of %d looked at", limit, len(page.Jobs), page.Looked)
		}
		out = append(out, page.Jobs...)
		if after = page.Next; after == "" {
			return out
		}
	}
	f.Fatalf("the pages have no end")
	return nil
}

func recordIDs(records []storage.Record) []storage.ID {
	var out []storage.ID
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

// filters are conditions on the jobs of the morgue, with those they choose.
func filters(all []storage.Record) []struct {
	storage.Filter
	want []int
} {
	return []struct {
		storage.Filter
		want []int
	}{
		{storage.Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{storage.Filter{Queue: "a"}, []int{0, 1, 2, 3, 4, 5}},
		{storage.Filter{Queue: "A"}, nil},
		{storage.Filter{Queue: "none"}, nil},
		{storage.Filter{Kind: "y"}, []int{1, 4, 7, 10}},
		{storage.Filter{Reason: storage.ReasonDecode}, []int{2, 6, 10}},
		{storage.Filter{States: []storage.State{storage.Dead, storage.Ready}, Kind: "y"}, []int{1, 4, 7, 10}},
		{storage.Filter{States: []storage.State{storage.Ready, storage.Done}}, nil},
		{storage.Filter{Tag: "none"}, nil},
		{storage.Filter{Tag: "third"}, nil},
		{storage.Filter{Tag: "third-1"}, []int{1, 4, 7, 10}},
		{storage.Filter{Tag: "all", Reason: storage.ReasonDecode}, []int{2, 6, 10}},
		{storage.Filter{CreatedFrom: all[5].CreatedAt}, []int{5, 6, 7, 8, 9, 10, 11}},
		{storage.Filter{CreatedBefore: all[5].CreatedAt}, []int{0, 1, 2, 3, 4}},
		{storage.Filter{CreatedFrom: all[3].CreatedAt, CreatedBefore: all[8].CreatedAt, Queue: "b"}, []int{6, 7}},
		{storage.Filter{DueFrom: all[0].CreatedAt.Add(-time.Hour)}, nil},
		{storage.Filter{DueBefore: all[0].CreatedAt.Add(time.Hour)}, nil},
		{storage.Filter{EndedFrom: all[5].EndedAt}, []int{5, 6, 7, 8, 9, 10, 11}},
		{storage.Filter{EndedBefore: all[5].EndedAt}, []int{0, 1, 2, 3, 4}},
		{storage.Filter{EndedFrom: all[3].EndedAt, EndedBefore: all[8].EndedAt}, []int{3, 4, 5, 6, 7}},
		{storage.Filter{Error: "TIMEOUT"}, []int{0, 1, 5, 6, 10, 11}},
		{storage.Filter{Error: "0% of"}, []int{1, 6, 11}},
		{storage.Filter{Error: "%"}, []int{1, 6, 11}},
		{storage.Filter{Error: "_"}, []int{2, 7}},
		{storage.Filter{Error: "Ärger"}, []int{2, 7}},
		{storage.Filter{Error: "rger"}, []int{2, 3, 7, 8}},
		{storage.Filter{Queue: "b", Kind: "x"}, []int{6, 9}},
		{storage.Filter{Queue: "a", Reason: storage.ReasonExhausted}, []int{0, 4}},
		{storage.Filter{Kind: "z", Error: "server"}, nil},
		{storage.Filter{Kind: "y", Error: "server"}, []int{4}},
		{storage.Filter{Queue: "a", Kind: "x", Reason: storage.ReasonSnoozed, Error: "ärger", EndedFrom: all[3].EndedAt, EndedBefore: all[4].EndedAt}, []int{3}},
		{storage.Filter{Queue: "b", Kind: "x", Reason: storage.ReasonSnoozed, Error: "ärger", EndedFrom: all[3].EndedAt, EndedBefore: all[4].EndedAt}, nil},
	}
}

var deadCases = []testCase{
	{"dead_filters", `Filter chooses jobs. Fields that are zero choose all; the others must all match.
Reason and Cause match only dead jobs, EndedFrom and EndedBefore only ended ones, DueFrom and DueBefore only scheduled, ready and blocked ones.
CreatedFrom and CreatedBefore bound the time when a job was enqueued, the former included, DueFrom and DueBefore that when it is due.
EndedFrom and EndedBefore bound the time when a job ended, the former included. A dead job ended when it died.
Error must occur in the last error, without regard to ASCII case.
dead the latest end first, then the highest key`, func(f *fixture) {
		all := f.morgue()
		f.add(newJob())
		for _, c := range filters(all) {
			want := recordIDs(pick(all, c.want...))
			slices.Reverse(want)
			for _, limit := range []int{1, 4, 100} {
				f.order(fmt.Sprintf("%+v in pages of %d", c.Filter, limit), recordIDs(f.deadList(c.Filter, limit)), want)
			}
		}
	}},
}
