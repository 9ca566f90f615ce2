package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/errandq/errand"
)

// A bulk job and the call that does the same at once take the states that the action says.
func TestBulkAction_States(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := bulkQueue(t, 0, errand.Options{})
		ctx := t.Context()
		for do, call := range map[errand.BulkAction]func(f errand.JobFilter) error{
			errand.BulkRedrive: func(f errand.JobFilter) error { return second(q.DeadLetters().Redrive(ctx, f, nil)) },
			errand.BulkRunNow:  func(f errand.JobFilter) error { return second(q.RunNow(ctx, f, nil)) },
			errand.BulkChange:  func(f errand.JobFilter) error { return second(q.Change(ctx, f, errand.JobChange{Queue: "other"})) },
			errand.BulkCancel:  func(f errand.JobFilter) error { return second(q.CancelAll(ctx, f)) },
			errand.BulkDelete:  func(f errand.JobFilter) error { return second(q.Delete(ctx, f)) },
		} {
			for _, s := range []errand.State{errand.Scheduled, errand.Ready, errand.Blocked, errand.Running, errand.Done, errand.Cancelled, errand.Expired, errand.Dead} {
				f := errand.JobFilter{States: []errand.State{s}}
				b := errand.Bulk{Do: do, Filter: f, DryRun: true}
				if do == errand.BulkChange {
					b.Change.Queue = "other"
				}
				takes := slices.Contains(do.States(), s)
				if err := call(f); (err == nil) != takes {
					t.Errorf("the call for %s takes %s jobs: %v", do, s, err)
				}
				if err := second(q.StartBulk(ctx, b)); (err == nil) != takes {
					t.Errorf("the bulk job for %s takes %s jobs: %v", do, s, err)
				}
			}
		}
		if all := errand.BulkAction("paint").States(); all != nil {
			t.Errorf("an action that there is not takes %v", all)
		}
	})
}

// A dry run counts, from the numbers that are kept if it can, and changes nothing.
func TestBulk_dryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ids := bulkQueue(t, 300, errand.Options{})
		for _, c := range []struct {
			filter errand.JobFilter
			want   int64
		}{
			{errand.JobFilter{All: true}, 300},
			{errand.JobFilter{Kind: "note"}, 300},
			{errand.JobFilter{Queue: "other"}, 0},
			{errand.JobFilter{Error: "NO"}, 300},
			{errand.JobFilter{Reason: errand.ReasonExhausted}, 0},
			{errand.JobFilter{IDs: ids[:3]}, 3},
		} {
			b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: c.filter, DryRun: true})
			if err != nil || b.Total != c.want || b.More || len(b.Sample) != int(min(c.want, 10)) || !b.ID.IsZero() {
				t.Errorf("%+v: %+v, %v", c.filter, b, err)
			}
		}
		cause := must(q.DeadLetters().Causes(t.Context(), nil))[0].ID
		for _, c := range []struct {
			filter errand.JobFilter
			total  int64
			more   bool
			look   int
		}{
			{errand.JobFilter{Cause: cause, States: []errand.State{errand.Dead}}, 300, false, 100},
			{errand.JobFilter{Cause: cause, Error: "NO", States: []errand.State{errand.Dead}}, 100, true, 100},
			{errand.JobFilter{Kind: "note"}, 300, false, 100},
			{errand.JobFilter{Error: "NO"}, 100, true, 100},
			{errand.JobFilter{Error: "NO"}, 300, false, 300},
			{errand.JobFilter{Error: "NO"}, 300, false, 2000},
		} {
			b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: c.filter, DryRun: true, Look: c.look})
			if err != nil || b.Total != c.total || b.More != c.more || len(b.Sample) != 10 {
				t.Errorf("%+v, %d looked at: %+v, %v", c.filter, c.look, b, err)
			}
		}
		for _, look := range []int{-1, 2001} {
			_, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, DryRun: true, Look: look})
			if f := (*errand.FieldError)(nil); !errors.As(err, &f) || f.Field != "look" {
				t.Errorf("look %d: %v", look, err)
			}
		}
		if n := notesIn(t, q, errand.Dead); n != 300 || len(must(q.Bulks(t.Context()))) != 0 {
			t.Errorf("%d are dead after it", n)
		}
	})
}

// Bad input is refused, and names the field.
func TestBulk_faults(t *testing.T) {
	q := openQueue(t, nil)
	ctx := t.Context()
	all := errand.JobFilter{All: true}
	bulk := startBulk(t, q, errand.Bulk{Do: errand.BulkDelete, Filter: all})
	waits := enqueue(t, q, note{}, nil)
	long := string(make([]byte, 256))
	for _, c := range []struct {
		bulk  errand.Bulk
		field string
	}{
		{errand.Bulk{}, "do"},
		{errand.Bulk{Do: "explode", Filter: all}, "do"},
		{errand.Bulk{Do: errand.BulkRedrive}, "filter.all"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{States: []errand.State{errand.Ready}}}, "filter.states[0]"},
		{errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Queue: "errand.bulk"}}, "filter.queue"},
		{errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{Kind: "errand.bulk"}}, "filter.kind"},
		{errand.Bulk{Do: errand.BulkCancel, Filter: errand.JobFilter{IDs: []errand.ID{bulk}}}, "filter.ids"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, Rate: -1}, "rate"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, Rate: 100_001}, "rate"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, By: long}, "by"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, Redrive: errand.RedriveOptions{Queue: "x"}}, "redrive"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, RunNow: errand.RunNowOptions{FirstRuns: true}}, "run_now"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, Change: errand.JobChange{Queue: "x"}}, "change"},
		{errand.Bulk{Do: errand.BulkDelete, Filter: all, Set: map[string]json.RawMessage{"a": nil}}, "set"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Set: map[string]json.RawMessage{"a..b": json.RawMessage("1")}}, "set"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Set: map[string]json.RawMessage{"a": json.RawMessage("{}"), "a.b": json.RawMessage("1")}}, "set"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Set: map[string]json.RawMessage{"a": json.RawMessage("x")}}, `set["a"]`},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Redrive: errand.RedriveOptions{Queue: "errand.bulk"}}, "redrive.queue"},
		{errand.Bulk{Do: errand.BulkChange, Filter: all}, "change"},
		{errand.Bulk{Do: errand.BulkChange, Filter: all, Change: errand.JobChange{Queue: "errand.other"}}, "change.queue"},
		{errand.Bulk{Do: errand.BulkChange, Filter: all, Change: errand.JobChange{Args: note{}}}, "change.args"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Redrive: errand.RedriveOptions{Change: &errand.JobChange{Args: note{}}}}, "redrive.change.args"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: all, Redrive: errand.RedriveOptions{Change: &errand.JobChange{Delay: 1}}}, "redrive.change.delay"},
		{errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{IDs: []errand.ID{waits}}, Redrive: errand.RedriveOptions{Change: &errand.JobChange{Args: errand.RawArgs{OfKind: "other", JSON: json.RawMessage("1")}}}}, "redrive.change.args"},
	} {
		_, err := q.StartBulk(ctx, c.bulk)
		var f *errand.FieldError
		if !errors.As(err, &f) || f.Field != c.field {
			t.Errorf("%+v: %v, want a fault of %s", c.bulk, err, c.field)
		}
	}
	if n := len(must(q.Bulks(ctx))); n != 1 {
		t.Errorf("%d bulk jobs were started", n)
	}
	for field, err := range map[string]error{
		"queue": second(q.Enqueue(ctx, note{}, &errand.JobOptions{Queue: "errand.bulk"})),
		"kind":  second(q.Enqueue(ctx, errand.RawArgs{OfKind: "errand.bulk", JSON: json.RawMessage("1")}, nil)),
	} {
		var f *errand.FieldError
		if !errors.As(err, &f) || f.Field != field {
			t.Errorf("Enqueue gave %v, want a fault of %s", err, field)
		}
	}
	defer func() {
		if r := recover(); r == nil {
			t.Error("a handler of the kind errand.bulk is let in")
		}
	}()
	errand.HandleRaw(errand.NewWorker(q, nil), "errand.bulk", func(context.Context, *errand.Job[errand.RawArgs]) error { return nil })
}

// BulkInfo is written and read as JSON.
func TestBulk_json(t *testing.T) {
	q := openQueue(t, nil)
	b, err := q.StartBulk(t.Context(), errand.Bulk{Do: errand.BulkRedrive, Filter: errand.JobFilter{All: true}, Rate: 5, By: "me"})
	check(err)
	var back errand.BulkInfo
	check(json.Unmarshal(must(json.Marshal(b)), &back))
	if back.StartedAt = b.StartedAt; !reflect.DeepEqual(back, b) {
		t.Errorf("%+v came back as %+v", b, back)
	}
}
