package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func TestTags(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	given := []string{"customer:42", "eu", "customer:42", "Big_1/x"}
	id := enqueue(t, q, note{}, &errand.JobOptions{Tags: given})
	if j := lookUp(t, q, id); !slices.Equal(j.Tags, []string{"Big_1/x", "customer:42", "eu"}) {
		t.Errorf("the job has the tags %q", j.Tags)
	}
	s := errand.Schedule{Name: "s", Spec: "@hourly", Args: note{}, Options: &errand.JobOptions{Tags: []string{"b", "a"}}}
	if err := q.Schedule(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := q.Schedules().Get(t.Context(), "s")
	if err != nil || !slices.Equal(got.Options.Tags, []string{"a", "b"}) {
		t.Errorf("the schedule has the tags %q, %v", got.Options.Tags, err)
	}
	e, err := q.Schedules().Run(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if j := lookUp(t, q, e.ID); !slices.Equal(j.Tags, []string{"a", "b"}) {
		t.Errorf("the job of the schedule has the tags %q", j.Tags)
	}
}

func TestTags_refused(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	const form = "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}"
	nine := strings.Fields("a b c d e f g h i")
	long := strings.Repeat("x", 65)
	_, err := q.EnqueueMany(t.Context(), []errand.NewJob{
		{Args: note{}, Options: &errand.JobOptions{Tags: []string{long[1:], ""}}},
		{Args: note{}, Options: &errand.JobOptions{Tags: append(nine[:8:8], "a")}},
		{Args: note{}, Options: &errand.JobOptions{Tags: nine}},
		{Args: note{}, Options: &errand.JobOptions{Tags: []string{"a b", "-", long, "\x00", "\xff"}}},
	})
	wantFaults(t, err, fault{"jobs[0].tags[1]", `""`, form}, fault{"jobs[2].tags", "9", "must be at most 8"},
		fault{"jobs[3].tags[0]", `"a b"`, form}, fault{"jobs[3].tags[1]", `"-"`, form}, fault{"jobs[3].tags[2]", fmt.Sprintf("%q", long), form},
		fault{"jobs[3].tags[3]", `"\x00"`, form}, fault{"jobs[3].tags[4]", `"\xff"`, form})
	err = q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@hourly", Args: note{}, Options: &errand.JobOptions{Tags: []string{"?"}}})
	wantFaults(t, err, fault{"options.tags[0]", `"?"`, form})
	wantNothing(t, q)
}

// listAll returns the IDs of all jobs that match, page by page.
func listAll(t *testing.T, q *errand.Queue, f errand.JobFilter, limit int) (ids []errand.ID) {
	t.Helper()
	o := errand.ListOptions{Limit: limit}
	for {
		page, err := q.Jobs(t.Context(), f, &o)
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if o.After = page.Next; o.After == "" {
			return ids
		}
	}
}

func TestJobs(t *testing.T) {
	g := newGraveyard(t)
	dead := g.bury(note{}, &errand.JobOptions{Tags: []string{"a"}}, errand.ReasonExhausted, "Refused")
	g.now = g.now.Add(time.Minute)
	late := enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: 2 * time.Hour})
	soon := enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour, Tags: []string{"a"}})
	ready := enqueue(t, g.Queue, value{1}, &errand.JobOptions{Queue: "mail"})
	cancelled := enqueue(t, g.Queue, note{}, nil)
	if _, err := g.Cancel(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	ids := func(ids ...errand.ID) []errand.ID { return ids }
	from := g.now
	for _, test := range []struct {
		name string
		f    errand.JobFilter
		want []errand.ID
	}{
		{"everything", errand.JobFilter{}, ids(ready, soon, late, dead, cancelled)},
		{"everything, said so", errand.JobFilter{All: true}, ids(ready, soon, late, dead, cancelled)},
		{"states", errand.JobFilter{States: []errand.State{errand.Dead, errand.Ready, errand.Dead}}, ids(ready, dead)},
		{"queue", errand.JobFilter{Queue: "mail"}, ids(ready)},
		{"kind", errand.JobFilter{Kind: "note"}, ids(soon, late, dead, cancelled)},
		{"tag", errand.JobFilter{Tag: "a"}, ids(soon, dead)},
		{"time of enqueueing", errand.JobFilter{CreatedFrom: from}, ids(cancelled, ready, soon, late)},
		{"before that", errand.JobFilter{CreatedBefore: from}, ids(dead)},
		{"due time", errand.JobFilter{DueFrom: from.Add(time.Hour), DueBefore: from.Add(2 * time.Hour)}, ids(soon)},
		{"reason", errand.JobFilter{Reason: errand.ReasonExhausted}, ids(dead)},
		{"error", errand.JobFilter{Error: "refused"}, ids(dead)},
		{"end", errand.JobFilter{EndedFrom: from}, ids(cancelled)},
		{"age", errand.JobFilter{OlderThan: time.Minute}, ids(dead)},
		{"by ID, as named", errand.JobFilter{IDs: ids(cancelled, errand.ID{1}, dead, late, dead)}, ids(cancelled, dead, late)},
	} {
		for _, limit := range []int{0, 1, 2, 1000} {
			if got := listAll(t, g.Queue, test.f, limit); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s, pages of %d: got %v, want %v", test.name, limit, got, test.want)
			}
		}
	}
	page, err := g.Jobs(t.Context(), errand.JobFilter{Tag: "a", Error: "refused"}, nil)
	if err != nil || len(page.Jobs) != 1 || page.Partial || page.Looked != 2 {
		t.Fatalf("Jobs gave %+v, %v", page, err)
	}
	if j := page.Jobs[0]; j.ID != dead || j.Error != "Refused" || j.Attempt != 1 || j.Policy == nil || j.Args != nil || j.History != nil || len(j.Tags) != 1 {
		t.Errorf("the job is %+v", j)
	}
}

// A page that has looked at enough says so.
func TestJobs_partial(t *testing.T) {
	q := openQueue(t, nil)
	all := slices.Repeat([]errand.NewJob{{Args: note{}}}, 3000)
	if _, err := q.EnqueueMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	page, err := q.Jobs(t.Context(), errand.JobFilter{Error: "x"}, nil)
	if err != nil || len(page.Jobs) != 0 || !page.Partial || page.Looked != 2000 || page.Next == "" {
		t.Errorf("the first page has %d jobs of %d, partial %t, next %q, %v", len(page.Jobs), page.Looked, page.Partial, page.Next, err)
	}
	page, err = q.Jobs(t.Context(), errand.JobFilter{Error: "x"}, &errand.ListOptions{After: page.Next})
	if err != nil || len(page.Jobs) != 0 || page.Partial || page.Looked != 1000 || page.Next != "" {
		t.Errorf("the second page has %d jobs of %d, partial %t, next %q, %v", len(page.Jobs), page.Looked, page.Partial, page.Next, err)
	}
}

func TestJobs_refusesBadInput(t *testing.T) {
	g := newGraveyard(t)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	const waits, ended = "must be zero: only scheduled, ready and blocked jobs match", "must be zero: only jobs that have ended match"
	for _, c := range []struct {
		f    errand.JobFilter
		want []fault
	}{
		{errand.JobFilter{States: []errand.State{errand.Ready, "waiting"}}, []fault{
			{"states[1]", `"waiting"`, "must be one of scheduled, ready, blocked, running, done, cancelled, expired, dead"}}},
		{errand.JobFilter{DueFrom: day, DueBefore: day.Add(-1)}, []fault{{"due_before", "2026-01-01T23:59:59.999999999Z", "must not be before due_from 2026-01-02T00:00:00Z"}}},
		{errand.JobFilter{DueFrom: day, States: []errand.State{errand.Dead}}, []fault{{"due_from", "2026-01-02T00:00:00Z", waits}}},
		{errand.JobFilter{Reason: errand.ReasonDecode, States: []errand.State{errand.Done}}, []fault{{"reason", `"decode"`, ended}}},
		{errand.JobFilter{OlderThan: 1, States: []errand.State{errand.Running}}, []fault{{"older_than", "1ns", ended}}},
		{errand.JobFilter{IDs: []errand.ID{{1}}, Tag: "a"}, []fault{{"ids", "1", "must be the only condition"}}},
		{errand.JobFilter{IDs: []errand.ID{}}, []fault{{"ids", "0", "must not be empty"}}},
		{errand.JobFilter{IDs: make([]errand.ID, 1001)}, []fault{{"ids", "1001", "must be at most 1000 in a list"}}},
		{errand.JobFilter{Group: "g"}, []fault{{"queue", `""`, "must be set with group: a group is one of its queue"}}},
		{errand.JobFilter{Group: "a\x00", Queue: "default"}, []fault{{"group", `"a\x00"`, "must be valid UTF-8 without NUL"}}},
		{errand.JobFilter{Tag: "?", Queue: "?", Kind: "?"}, []fault{{"queue", `"?"`, "must match"}, {"kind", `"?"`, "must match"}, {"tag", `"?"`, "must match"}}},
	} {
		page, err := g.Jobs(t.Context(), c.f, nil)
		wantFaults(t, err, c.want...)
		if !reflect.DeepEqual(page, errand.JobPage{}) {
			t.Errorf("%+v: %+v", c.f, page)
		}
	}
	for _, limit := range []int{-1, 1001} {
		_, err := g.Jobs(t.Context(), errand.JobFilter{}, &errand.ListOptions{Limit: limit})
		wantFaults(t, err, fault{"limit", fmt.Sprint(limit), "must be between 0 and 1000"})
	}
	_, err := g.Jobs(t.Context(), errand.JobFilter{}, &errand.ListOptions{MaxArgs: -1})
	wantFaults(t, err, fault{"max_args", "-1", "must not be negative"})
}

// Args that are too large are left out of a list, also of one by ID, which says how large they are.
func TestJobs_maxArgs(t *testing.T) {
	g := newGraveyard(t)
	short, long := errand.RawArgs{OfKind: "raw", JSON: []byte(`"x"`)}, errand.RawArgs{OfKind: "raw", JSON: []byte(`"` + strings.Repeat("x", 5000) + `"`)}
	ids := []errand.ID{enqueue(t, g.Queue, short, nil), enqueue(t, g.Queue, long, nil)}
	for _, f := range []errand.JobFilter{{Kind: "raw"}, {IDs: ids}} {
		for most, want := range map[int]int{3: 0, 5001: 0, 5002: 5002, 0: 5002} {
			page, err := g.Jobs(t.Context(), f, &errand.ListOptions{Args: true, MaxArgs: most})
			if err != nil || len(page.Jobs) != 2 {
				t.Fatal(page, err)
			}
			for _, j := range page.Jobs {
				is, left := len(short.JSON), 0
				if j.ID == ids[1] {
					is, left = want, 5002-want
				}
				if len(j.Args) != is || j.ArgsBytes != int64(left) {
					t.Errorf("MaxArgs %d: a job has %d bytes of args, and %d were left out; want %d and %d", most, len(j.Args), j.ArgsBytes, is, left)
				}
			}
		}
	}
}

// The jobs of a group are listed and changed, and no others.
func TestJobs_group(t *testing.T) {
	g := newGraveyard(t)
	add := func(group string, delay time.Duration) errand.ID {
		return enqueue(t, g.Queue, note{}, &errand.JobOptions{Group: group, Delay: delay})
	}
	dead := g.bury(note{}, &errand.JobOptions{Group: "a"}, errand.ReasonExhausted, "x")
	waits, last := add("a", 0), add("a", 0)
	other, later := g.bury(note{}, &errand.JobOptions{Group: "c"}, errand.ReasonExhausted, "x"), add("b", time.Hour)
	of := errand.JobFilter{Queue: "default", Group: "a"}
	page, err := g.Jobs(t.Context(), of, nil)
	if err != nil || len(page.Jobs) != 3 || page.Jobs[0].ID != last || page.Jobs[1].ID != waits || page.Jobs[2].ID != dead || page.Jobs[0].Group != "a" {
		t.Errorf("the jobs of a group are %+v, %v", page, err)
	}
	page, err = g.DeadLetters().List(t.Context(), of, nil)
	if err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != dead {
		t.Errorf("the dead letters of a group are %+v, %v", page, err)
	}
	for what, call := range map[string]func(f errand.JobFilter) (any, error){
		"Change": func(f errand.JobFilter) (any, error) {
			return g.Change(t.Context(), f, errand.JobChange{Queue: "other"})
		},
		"CancelAll": func(f errand.JobFilter) (any, error) { return g.CancelAll(t.Context(), f) },
		"Delete":    func(f errand.JobFilter) (any, error) { return g.Delete(t.Context(), f) },
		"RunNow":    func(f errand.JobFilter) (any, error) { return g.RunNow(t.Context(), f, nil) },
		"Redrive":   func(f errand.JobFilter) (any, error) { return g.DeadLetters().Redrive(t.Context(), f, nil) },
		"Purge":     func(f errand.JobFilter) (any, error) { return g.DeadLetters().Purge(t.Context(), f) },
	} {
		r, err := call(errand.JobFilter{Group: "a"})
		wantFaults(t, err, fault{"queue", `""`, "must be set with group: a group is one of its queue"})
		if !reflect.ValueOf(r).IsZero() {
			t.Errorf("%s returns %+v", what, r)
		}
	}
	take := func(what string, want int, n int, err error) {
		t.Helper()
		if n != want || err != nil {
			t.Errorf("%s took %d jobs of the group, want %d; %v", what, n, want, err)
		}
	}
	dry, err := g.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkCancel, Filter: of, DryRun: true})
	if take("a dry run", 2, int(dry.Total), err); dry.More || len(dry.Sample) != 2 {
		t.Errorf("a dry run returns %+v", dry)
	}
	r, err := g.DeadLetters().Redrive(t.Context(), of, nil)
	take("Redrive", 1, r.Redriven, err)
	cancelled, err := g.CancelAll(t.Context(), of)
	take("CancelAll", 3, cancelled.Changed, err)
	n, err := g.Delete(t.Context(), of)
	take("Delete", 3, n, err)
	n, err = g.DeadLetters().Purge(t.Context(), of)
	take("Purge", 0, n, err)
	of.Group = "b"
	run, err := g.RunNow(t.Context(), of, &errand.RunNowOptions{FirstRuns: true})
	take("RunNow", 1, run.Ready, err)
	changed, err := g.Change(t.Context(), of, errand.JobChange{Queue: "other"})
	take("Change", 1, changed.Changed, err)
	for id, want := range map[errand.ID]string{other: "dead in default", later: "ready in other"} {
		if j := lookUp(t, g.Queue, id); fmt.Sprintf("%s in %s", j.State, j.Queue) != want {
			t.Errorf("a job is %s in queue %s, want %s", j.State, j.Queue, want)
		}
	}
}

// A cursor is for the list that it comes from.
func TestJobs_cursors(t *testing.T) {
	g := newGraveyard(t)
	for range 3 {
		g.bury(note{}, nil, errand.ReasonExhausted, "x")
		enqueue(t, g.Queue, note{}, &errand.JobOptions{Delay: time.Hour})
	}
	day := g.now.Add(-time.Hour)
	next := func(f errand.JobFilter, after string) (string, error) {
		page, err := g.Jobs(t.Context(), f, &errand.ListOptions{Limit: 1, After: after})
		return page.Next, err
	}
	filters := []errand.JobFilter{
		{}, {Queue: "default"}, {Kind: "note"}, {States: []errand.State{errand.Dead}}, {States: []errand.State{errand.Dead, errand.Scheduled}},
		{CreatedFrom: day}, {Error: "x"}, {Reason: errand.ReasonExhausted},
	}
	for i, f := range filters {
		after, err := next(f, "")
		if err != nil || after == "" {
			t.Fatalf("%+v: %q, %v", f, after, err)
		}
		for k, other := range filters {
			if _, err := next(other, after); k == i && err != nil {
				t.Errorf("%+v: %v", f, err)
			} else if k != i {
				wantFaults(t, err, fault{"after", fmt.Sprintf("%q", after), "must be the Next of a page of the same filter"})
			}
		}
	}
	// The same list in other words.
	after, _ := next(errand.JobFilter{CreatedFrom: day, States: []errand.State{errand.Dead, errand.Scheduled}}, "")
	same := errand.JobFilter{CreatedFrom: day.In(time.FixedZone("", 3600)), States: []errand.State{errand.Scheduled, errand.Dead, errand.Dead}}
	if _, err := next(same, after); err != nil {
		t.Errorf("the same filter in other words: %v", err)
	}
	after, _ = next(errand.JobFilter{States: []errand.State{errand.Dead}}, "")
	if _, err := g.DeadLetters().List(t.Context(), errand.JobFilter{}, &errand.ListOptions{After: after}); err != nil {
		t.Errorf("the list of dead letters: %v", err)
	}
	if _, err := next(errand.JobFilter{}, "AQ"); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("a cursor that is none: %v", err)
	}
}

// A program can serve a job as it is.
func TestJobInfo_JSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	j := errand.JobInfo{
		Queue: "a", Kind: "note", State: errand.Scheduled, Attempt: 1, Retry: 1, CreatedAt: at, DueAt: at, Timeout: 1500 * time.Millisecond,
		Args:    json.RawMessage(`{"n":1}`),
		History: []errand.Failure{{Attempt: 1, At: at, Phase: "first", Error: "away", Duration: time.Millisecond, Args: []byte(`{"n":0}`)}},
	}
	b, err := json.Marshal([]errand.JobInfo{j})
	if want := `[{"id":"00000000-0000-0000-0000-000000000000","queue":"a","kind":"note","state":"scheduled","priority":0,"attempt":1,"retry":1,` +
		`"created_at":"2026-03-01T12:00:00Z","due_at":"2026-03-01T12:00:00Z","timeout_s":1.5,"args":{"n":1},` +
		`"history":[{"attempt":1,"at":"2026-03-01T12:00:00Z","phase":"first","error":"away","duration_s":0.001,"args":{"n":0}}]}]`; err != nil || string(b) != want {
		t.Errorf("job is %s, %v", b, err)
	}
	var got []errand.JobInfo
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, []errand.JobInfo{j}) {
		t.Errorf("read %+v, %v", got, err)
	}
}
