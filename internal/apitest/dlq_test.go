package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/sqlite"
)

// graveyard is a queue whose jobs can be made to die at a chosen time, without
// a worker.
type graveyard struct {
	*errand.Queue
	t     *testing.T
	store storage.Store
	now   time.Time
}

func newGraveyard(t *testing.T) *graveyard {
	t.Helper()
	g := &graveyard{t: t, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if g.store, err = sqlite.Open(filepath.Join(t.TempDir(), "jobs.db"), nil); err != nil {
		t.Fatal(err)
	}
	g.Queue, err = errand.New(t.Context(), g.store, &errand.Options{
		Clock: func() time.Time { return g.now }, Logger: slog.New(slog.DiscardHandler), // as the clock jumps
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// bury enqueues a job and has it die a minute later.
func (g *graveyard) bury(args errand.Args, o *errand.JobOptions, reason errand.Reason, text string) errand.ID {
	g.t.Helper()
	id := enqueue(g.t, g.Queue, args, o)
	queue := "default"
	if o != nil && o.Queue != "" {
		queue = o.Queue
	}
	g.die(id, queue, args.Kind(), reason, text)
	return id
}

// die has the only ready job of the queue and kind die.
func (g *graveyard) die(id errand.ID, queue, kind string, reason errand.Reason, text string) {
	g.t.Helper()
	g.now = g.now.Add(time.Minute)
	got, err := g.store.Exchange(g.t.Context(), g.now, storage.Exchange{
		LeaseDuration: time.Minute, Wants: []storage.Want{{Queues: []string{queue}, Kinds: []string{kind}, N: 1}},
	})
	if err != nil || len(got.Leased) != 1 || got.Leased[0].ID != id {
		g.t.Fatalf("Exchange gave %+v, %v: want a lease on %v", got.Leased, err, id)
	}
	done, err := g.store.Exchange(g.t.Context(), g.now, storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{{
		Lease: got.Leased[0].Lease, Outcome: storage.OutcomeDead, Reason: reason, Error: text, Policy: []byte(`{"numRetries":0}`), Cause: text,
		Failure: &storage.NewFailure{Phase: "first", Error: text},
	}}})
	if err != nil || done.Finished[0] != storage.Applied {
		g.t.Fatalf("Exchange gave %+v, %v", done, err)
	}
}

// list returns the IDs of all dead letters that match, page by page.
func (g *graveyard) list(f errand.JobFilter, limit int) (ids []errand.ID) {
	g.t.Helper()
	for after := ""; ; {
		page, err := g.DeadLetters().List(g.t.Context(), f, &errand.ListOptions{Limit: limit, After: after})
		if err != nil {
			g.t.Fatal(err)
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if after = page.Next; after == "" {
			return ids
		}
	}
}

func TestDeadLetters_Get(t *testing.T) {
	g := newGraveyard(t)
	id := g.bury(note{"x", 1}, &errand.JobOptions{Headers: map[string]string{"a": "b"}}, errand.ReasonPermanent, "no such address")
	j, err := g.DeadLetters().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if j.State != errand.Dead || j.Reason != errand.ReasonPermanent || j.Error != "no such address" || j.Attempt != 1 ||
		!j.EndedAt.Equal(g.now) || string(j.Args) != `{"Text":"x","N":1}` || j.Headers["a"] != "b" || j.Policy == nil ||
		len(j.History) != 1 || j.History[0].Error != "no such address" || j.History[0].Phase != "first" {
		t.Errorf("Get gave %+v", j)
	}
	live := enqueue(t, g.Queue, note{}, nil)
	if _, err := g.DeadLetters().Get(t.Context(), live); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("Get of a live job: %v", err)
	}
}

func TestDeadLetters_List(t *testing.T) {
	g := newGraveyard(t)
	a := g.bury(note{}, nil, errand.ReasonExhausted, "dial: connection REFUSED")
	fromHere := g.now
	b := g.bury(note{}, &errand.JobOptions{Queue: "mail"}, errand.ReasonPermanent, "400")
	c := g.bury(value{1}, nil, errand.ReasonDecode, "100% refused")
	before := g.now.Add(time.Microsecond)
	d := g.bury(note{}, nil, errand.ReasonCrashed, "")
	g.now = g.now.Add(time.Hour)

	ids := func(ids ...errand.ID) []errand.ID { return ids }
	for _, test := range []struct {
		name string
		f    errand.JobFilter
		want []errand.ID
	}{
		{"everything, the latest first", errand.JobFilter{}, ids(d, c, b, a)},
		{"everything, said so", errand.JobFilter{All: true}, ids(d, c, b, a)},
		{"queue", errand.JobFilter{Queue: "mail"}, ids(b)},
		{"kind", errand.JobFilter{Kind: "value"}, ids(c)},
		{"reason", errand.JobFilter{Reason: errand.ReasonCrashed}, ids(d)},
		{"error text", errand.JobFilter{Error: "Refused"}, ids(c, a)},
		{"error text is no pattern", errand.JobFilter{Error: "100%"}, ids(c)},
		{"times", errand.JobFilter{EndedFrom: fromHere, EndedBefore: before}, ids(c, b, a)},
		{"age", errand.JobFilter{OlderThan: time.Hour + 2*time.Minute}, ids(b, a)},
		{"two at once", errand.JobFilter{Kind: "note", Error: "refused"}, ids(a)},
		{"none", errand.JobFilter{Queue: "other"}, nil},
		{"by ID, as named, once each", errand.JobFilter{IDs: ids(b, errand.ID{1}, d, b)}, ids(b, d)},
	} {
		for _, limit := range []int{0, 1, 2, 1000} {
			if got := g.list(test.f, limit); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s, pages of %d: got %v, want %v", test.name, limit, got, test.want)
			}
		}
	}
}

func TestDeadLetters_refusesBadInput(t *testing.T) {
	g := newGraveyard(t)
	id := g.bury(note{}, nil, errand.ReasonExhausted, "x")
	dead := g.DeadLetters()
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		f    errand.JobFilter
		want []fault
	}{
		{errand.JobFilter{Queue: "a b"}, []fault{{"queue", `"a b"`, "must match"}}},
		{errand.JobFilter{Kind: "/"}, []fault{{"kind", `"/"`, "must match"}}},
		{errand.JobFilter{Reason: "bored"}, []fault{{"reason", `"bored"`, "must be one of exhausted, permanent, crashed, snoozed, unavailable, decode"}}},
		{errand.JobFilter{Cause: -1}, []fault{{"cause", "-1", "must be the ID of a cause"}}},
		{errand.JobFilter{Error: "\xff"}, []fault{{"error", `"\xff"`, "must be at most 1024 bytes"}}},
		{errand.JobFilter{OlderThan: -1}, []fault{{"older_than", "-1ns", "must not be negative"}}},
		{errand.JobFilter{OlderThan: 1, EndedBefore: day}, []fault{{"older_than", "1ns", "must be zero if ended_before is set"}}},
		{errand.JobFilter{EndedFrom: day, EndedBefore: day.Add(-1)}, []fault{{"ended_before", "2026-01-01T23:59:59.999999999Z", "must not be before"}}},
		{errand.JobFilter{IDs: []errand.ID{id}, Queue: "q"}, []fault{{"ids", "1", "must be the only condition"}}},
		{errand.JobFilter{IDs: []errand.ID{id}, States: []errand.State{errand.Dead}}, []fault{{"ids", "1", "must be the only condition"}}},
		{errand.JobFilter{States: []errand.State{errand.Done}}, []fault{{"states[0]", `"done"`, "must be one of dead"}}},
		{errand.JobFilter{Tag: strings.Repeat("x", 65)}, []fault{{"tag", `"` + strings.Repeat("x", 65) + `"`, "must match"}}},
		{errand.JobFilter{CreatedFrom: day, CreatedBefore: day.Add(-1)}, []fault{{"created_before", "2026-01-01T23:59:59.999999999Z", "must not be before"}}},
		{errand.JobFilter{DueFrom: day}, []fault{{"due_from", "2026-01-02T00:00:00Z", "must be zero: only scheduled, ready and blocked jobs match"}}},
		{errand.JobFilter{DueBefore: day}, []fault{{"due_before", "2026-01-02T00:00:00Z", "must be zero: only scheduled, ready and blocked jobs match"}}},
		{errand.JobFilter{All: true, Kind: "k"}, []fault{{"all", "true", "must be the only condition"}}},
		{errand.JobFilter{All: true, IDs: []errand.ID{id}}, []fault{{"all", "true", "must be the only condition"}}},
	} {
		_, err := dead.Redrive(t.Context(), c.f, nil)
		wantFaults(t, err, c.want...)
		_, err = dead.Purge(t.Context(), c.f)
		wantFaults(t, err, c.want...)
		_, err = dead.List(t.Context(), c.f, nil)
		wantFaults(t, err, c.want...)
	}
	for _, o := range []errand.ListOptions{{Limit: -1}, {Limit: 1001}} {
		_, err := dead.List(t.Context(), errand.JobFilter{}, &o)
		wantFaults(t, err, fault{"limit", fmt.Sprint(o.Limit), "must be between 0 and 1000"})
	}
	_, err := dead.Redrive(t.Context(), errand.JobFilter{IDs: make([]errand.ID, 10_001)}, nil)
	wantFaults(t, err, fault{"ids", "10001", "must be at most 10000 in one call"})
	_, err = dead.List(t.Context(), errand.JobFilter{IDs: make([]errand.ID, 1001)}, nil)
	wantFaults(t, err, fault{"ids", "1001", "must be at most 1000 in a list"})
	_, err = dead.Redrive(t.Context(), errand.JobFilter{}, &errand.RedriveOptions{Queue: "?"})
	wantFaults(t, err, fault{"queue", `"?"`, "must match"})
	if _, err := dead.Purge(t.Context(), errand.JobFilter{}); !errors.Is(err, errand.ErrPurgeAll) {
		t.Errorf("Purge without a condition: %v", err)
	}
	if got := g.list(errand.JobFilter{}, 0); len(got) != 1 {
		t.Errorf("%d dead letters are left: want 1", len(got))
	}
}

func TestDeadLetters_List_cursors(t *testing.T) {
	g := newGraveyard(t)
	for range 3 {
		g.bury(note{}, nil, errand.ReasonExhausted, "x")
	}
	page, err := g.DeadLetters().List(t.Context(), errand.JobFilter{}, &errand.ListOptions{Limit: 1})
	if err != nil || page.Next == "" {
		t.Fatalf("List gave %+v, %v", page, err)
	}
	good := page.Next
	for _, bad := range []string{"x", "!", good[1:], good[:len(good)-1], good + "A", "B" + good[1:]} {
		_, err := g.DeadLetters().List(t.Context(), errand.JobFilter{}, &errand.ListOptions{After: bad})
		wantFaults(t, err, fault{"after", fmt.Sprintf("%q", bad), "must be the Next of a page"})
	}
}

func TestDeadLetters_Redrive(t *testing.T) {
	g := newGraveyard(t)
	const n = 300 // more than one step by ID
	ids := make([]errand.ID, n)
	for i := range ids {
		ids[i] = g.bury(note{N: i}, nil, errand.ReasonExhausted, "x")
	}
	other := g.bury(value{1}, nil, errand.ReasonPermanent, "y")

	r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{Kind: "value"}, &errand.RedriveOptions{Queue: "later"})
	if err != nil || !reflect.DeepEqual(r, errand.RedriveResult{Redriven: 1}) {
		t.Fatalf("Redrive by kind gave %+v, %v", r, err)
	}
	j := lookUp(t, g.Queue, other)
	if j.State != errand.Ready || j.Queue != "later" || j.Attempt != 1 || len(j.History) != 1 {
		t.Errorf("redriven job: %+v", j)
	}

	gone := errand.ID{1}
	r, err = g.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: append([]errand.ID{gone, other}, ids[:260]...)}, nil)
	if err != nil || r.Redriven != 260 || !reflect.DeepEqual(r.NotFound, []errand.ID{gone, other}) {
		t.Fatalf("Redrive by ID gave %d, not found %v, %v", r.Redriven, r.NotFound, err)
	}
	r, err = g.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil)
	if err != nil || r.Redriven != 40 {
		t.Fatalf("Redrive of the rest gave %+v, %v", r, err)
	}
	if left := g.list(errand.JobFilter{}, 0); len(left) > 0 {
		t.Errorf("still dead: %v", left)
	}
}

// A clock that was set back makes deaths of the future, which are dead
// letters like any other.
func TestDeadLetters_clockSetBack(t *testing.T) {
	g := newGraveyard(t)
	g.bury(note{}, nil, errand.ReasonExhausted, "x")
	g.bury(note{}, nil, errand.ReasonExhausted, "x")
	g.now = g.now.Add(-time.Hour)
	if r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil); r.Redriven != 2 || err != nil {
		t.Errorf("Redrive gave %+v, %v: want 2", r, err)
	}
}

func TestDeadLetters_Redrive_uniqueKeyHeld(t *testing.T) {
	g := newGraveyard(t)
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}
	dead := g.bury(note{}, o, errand.ReasonExhausted, "x")
	holder := enqueue(t, g.Queue, note{}, o)
	r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil)
	if err != nil || !reflect.DeepEqual(r, errand.RedriveResult{Duplicates: []errand.ID{dead}}) {
		t.Errorf("Redrive gave %+v, %v: want a duplicate", r, err)
	}
	if _, err := g.Cancel(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	if r, err = g.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil); r.Redriven != 1 || err != nil {
		t.Errorf("Redrive with the key free gave %+v, %v", r, err)
	}
}

func TestDeadLetters_Purge(t *testing.T) {
	g := newGraveyard(t)
	a := g.bury(note{}, nil, errand.ReasonExhausted, "x")
	b := g.bury(note{}, nil, errand.ReasonPermanent, "y")
	c := g.bury(note{}, nil, errand.ReasonPermanent, "z")
	if n, err := g.DeadLetters().Purge(t.Context(), errand.JobFilter{Error: "Z"}); n != 1 || err != nil {
		t.Errorf("Purge by error gave %d, %v", n, err)
	}
	if _, err := g.Job(t.Context(), c); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("Job of a purged one: %v", err)
	}
	if n, err := g.DeadLetters().Purge(t.Context(), errand.JobFilter{IDs: []errand.ID{a, c}}); n != 1 || err != nil {
		t.Errorf("Purge by ID gave %d, %v", n, err)
	}
	if got := g.list(errand.JobFilter{}, 0); !reflect.DeepEqual(got, []errand.ID{b}) {
		t.Errorf("left are %v, want %v", got, b)
	}
	if n, err := g.DeadLetters().Purge(t.Context(), errand.JobFilter{All: true}); n != 1 || err != nil {
		t.Errorf("Purge of all gave %d, %v", n, err)
	}
	wantNothing(t, g.Queue)
}

// stepwise returns each step of a redrive or purge room for one job only, and
// has a job die during each.
type stepwise struct {
	storage.Store
	dies  func()
	steps int
	fail  error
}

func (s *stepwise) Redrive(ctx context.Context, now time.Time, sel storage.Selection, queue string) (storage.Step, error) {
	if s.fail != nil && s.steps == 2 {
		return storage.Step{}, s.fail
	}
	if s.steps++; s.steps > 100 {
		return storage.Step{}, errors.New("no end")
	}
	s.dies()
	// The earliest that is left and matches.
	f := sel.Filter
	if !sel.After.At.IsZero() {
		f.EndedFrom = sel.After.At.Add(time.Microsecond)
	}
	f.States = []storage.State{storage.Dead}
	all, err := s.Jobs(ctx, f, "", 1000)
	if err != nil || len(all.Jobs) == 0 {
		return storage.Step{}, err
	}
	r := all.Jobs[len(all.Jobs)-1]
	step, err := s.Store.Redrive(ctx, now, storage.Selection{IDs: []errand.ID{r.ID}}, queue)
	step.Next = storage.Position{At: r.EndedAt, Key: r.Key}
	return step, err
}

func TestDeadLetters_Redrive_ends(t *testing.T) {
	g := newGraveyard(t)
	taken := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}
	stays := g.bury(note{}, taken, errand.ReasonExhausted, "x")
	enqueue(t, g.Queue, note{}, taken)
	mail := &errand.JobOptions{Queue: "mail"}
	for range 4 {
		g.bury(note{}, mail, errand.ReasonExhausted, "x")
	}
	s := &stepwise{Store: g.store, dies: func() { g.bury(value{1}, mail, errand.ReasonExhausted, "x") }}
	q, err := errand.New(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Five were dead at the beginning; the sixth step finds none of them.
	r, err := q.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil)
	if err != nil || s.steps != 6 || !reflect.DeepEqual(r, errand.RedriveResult{Redriven: 4, Duplicates: []errand.ID{stays}}) {
		t.Errorf("Redrive gave %+v, %v in %d steps: want 4, and %v a duplicate, in 6", r, err, s.steps, stays)
	}

	s.steps, s.fail = 0, storage.ErrFull
	r, err = q.DeadLetters().Redrive(t.Context(), errand.JobFilter{}, nil)
	if !errors.Is(err, errand.ErrFull) || r.Redriven != 1 {
		t.Errorf("Redrive that fails at the third step gave %+v, %v", r, err)
	}
}

func TestDeadLetters_EmptyListIsNotAll(t *testing.T) {
	q := openQueue(t, nil)
	_, err := q.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{}}, nil)
	if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), "ids 0: must not be empty") {
		t.Errorf("Redrive: %v", err)
	}
	if _, err := q.DeadLetters().List(t.Context(), errand.JobFilter{IDs: []errand.ID{}}, nil); !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("List: %v", err)
	}
}

// A redrive with a change is one transaction for each job: those that it puts back are changed, and the
// others are as they were.
func TestDeadLetters_Redrive_change(t *testing.T) {
	g := newGraveyard(t)
	id := g.bury(note{"old", 1}, nil, errand.ReasonExhausted, "x")
	held := g.bury(note{"old", 2}, &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}, errand.ReasonExhausted, "x")
	if _, err := g.Enqueue(t.Context(), note{}, &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}); err != nil {
		t.Fatal(err)
	}
	before := lookUp(t, g.Queue, held)
	none := policy.Policy{}
	for _, c := range []struct {
		f    errand.JobFilter
		o    errand.RedriveOptions
		want []fault
	}{
		{errand.JobFilter{}, errand.RedriveOptions{Change: &errand.JobChange{DueAt: time.Unix(1, 0).UTC(), Queue: "q"}},
			[]fault{{"change.due_at", "1970-01-01T00:00:01Z", "must be zero"}, {"change.queue", `"q"`, "must be empty"}}},
		{errand.JobFilter{}, errand.RedriveOptions{Change: &errand.JobChange{Delay: time.Second}}, []fault{{"change.delay", "1s", "must be zero"}}},
		{errand.JobFilter{}, errand.RedriveOptions{Change: &errand.JobChange{Priority: new(101)}}, []fault{{"change.priority", "101", "must be between -100 and 100"}}},
		{errand.JobFilter{}, errand.RedriveOptions{Change: &errand.JobChange{Args: note{}}}, []fault{{"change.args", `"note"`, "must be nil unless the jobs are named by IDs"}}},
		{errand.JobFilter{IDs: []errand.ID{id}}, errand.RedriveOptions{Change: &errand.JobChange{Args: value{}}}, []fault{{"change.args", `"value"`, "must be of the kind of job"}}},
	} {
		_, err := g.DeadLetters().Redrive(t.Context(), c.f, &c.o)
		wantFaults(t, err, c.want...)
	}
	o := &errand.RedriveOptions{Queue: "mended", Change: &errand.JobChange{Args: note{"new", 3}, Priority: new(5), Policy: none}}
	r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{id, held}}, o)
	if err != nil || !reflect.DeepEqual(r, errand.RedriveResult{Redriven: 1, Duplicates: []errand.ID{held}}) {
		t.Errorf("Redrive gave %+v, %v", r, err)
	}
	j := lookUp(t, g.Queue, id)
	if j.State != errand.Ready || j.Queue != "mended" || j.Priority != 5 || j.Policy == nil || string(j.Args) != `{"Text":"new","N":3}` || len(j.History) != 2 {
		t.Errorf("redriven job: %+v", j)
	}
	if j := lookUp(t, g.Queue, held); !reflect.DeepEqual(j, before) {
		t.Errorf("the job that stays dead is %+v, want %+v", j, before)
	}
	if r, err := g.DeadLetters().Redrive(t.Context(), errand.JobFilter{IDs: []errand.ID{id}}, o); err != nil || len(r.NotFound) != 1 {
		t.Errorf("Redrive of a ready job gave %+v, %v", r, err)
	}

	// As a bulk job too, which keeps the change with it.
	set := map[string]json.RawMessage{"Text": json.RawMessage(`"set"`)}
	b := errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{IDs: []errand.ID{held}}, Redrive: *o, Set: set}
	_, err = g.StartBulk(t.Context(), b)
	wantFaults(t, err, fault{"set", "1", "must be empty if redrive.change has args"})
}
