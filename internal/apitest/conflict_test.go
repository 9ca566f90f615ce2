package apitest

import (
	"context"
	"database/sql"
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

// century is as long as a key can be held or a job be put off.
const century = 100 * 365 * 24 * time.Hour

func debounce(quiet, most time.Duration) *errand.Unique {
	return &errand.Unique{Key: "d", OnConflict: errand.OnConflict{Mode: errand.Debounce, Quiet: quiet, MaxWait: most}}
}

func TestQueue_OnConflict_refused(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	merge := func(_, new errand.Args) (errand.Args, error) { return new, nil }
	for _, c := range []struct {
		fields string
		o      errand.JobOptions
	}{
		{"unique.for", errand.JobOptions{Unique: &errand.Unique{Key: "a", For: time.Millisecond}}},
		{"unique.for", errand.JobOptions{Unique: &errand.Unique{Key: "a", For: -time.Hour}}},
		{"unique.for", errand.JobOptions{Unique: &errand.Unique{Key: "a", For: time.Hour, Forever: true}}},
		{"unique.for", errand.JobOptions{Unique: &errand.Unique{Key: "a", For: century + 1}}},
		{"unique.key", errand.JobOptions{Unique: &errand.Unique{Key: "a", ByArgs: true}}},
		{"unique.on_conflict.mode", errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: 5}}}},
		{"unique.on_conflict.mode", errand.JobOptions{Unique: &errand.Unique{Key: "a", Forever: true, OnConflict: errand.OnConflict{Mode: errand.Replace}}}},
		{"unique.on_conflict.mode", errand.JobOptions{Group: "g", Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.After}}}},
		{"unique.on_conflict.quiet", errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Debounce, Quiet: time.Millisecond}}}},
		{"unique.on_conflict.quiet", errand.JobOptions{Unique: debounce(100*time.Millisecond-1, 0)}},
		{"unique.on_conflict.quiet", errand.JobOptions{Unique: debounce(century+1, 0)}},
		{"unique.on_conflict.max_wait", errand.JobOptions{Unique: debounce(time.Minute, century+1)}},
		{"unique.on_conflict.quiet", errand.JobOptions{DueAt: time.Now().Add(time.Hour), Unique: debounce(time.Minute, 0)}},
		{"unique.on_conflict.max_wait", errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Debounce, Quiet: time.Minute, MaxWait: time.Second}}}},
		{"unique.on_conflict.quiet", errand.JobOptions{Delay: time.Hour, Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Debounce, Quiet: time.Minute}}}},
		{"unique.on_conflict.quiet unique.on_conflict.max_wait", errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace, Quiet: time.Minute, MaxWait: time.Hour}}}},
		{"unique.on_conflict.fresh unique.on_conflict.merge", errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Fresh: true, Merge: merge}}}},
	} {
		_, err := q.Enqueue(ctx, Upload{1}, &c.o)
		if got := faultFields(err); got != c.fields {
			t.Errorf("%+v: faults in %q (%v), want %q", c.o.Unique, got, err, c.fields)
		}
	}
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace, Merge: merge}}}
	_, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: Upload{1}, Options: o}})
	if got := faultFields(err); got != "jobs[0].unique.on_conflict.merge" {
		t.Errorf("EnqueueMany with Merge: faults in %q (%v)", got, err)
	}
	o.Unique.OnConflict.Merge = nil
	o.Unique.For = time.Hour
	err = q.Schedule(ctx, errand.Schedule{Name: "s", Spec: "@daily", Args: Upload{1}, Options: o})
	if got := faultFields(err); got != "options.unique.for options.unique.on_conflict.mode" {
		t.Errorf("a schedule with a conflict: faults in %q (%v)", got, err)
	}
	if counts, err := q.Counts(ctx); err != nil || len(counts) != 0 {
		t.Errorf("there are %v, %v: want nothing", counts, err)
	}
	for _, u := range []*errand.Unique{
		{Key: "a", For: time.Second},
		{Key: "b", For: century},
		{Key: "c", Forever: true, OnConflict: errand.OnConflict{Mode: errand.Fail}},
		debounce(100*time.Millisecond, 100*time.Millisecond),
		debounce(century, century),
	} {
		if _, err := q.Enqueue(ctx, Upload{1}, &errand.JobOptions{Unique: u}); err != nil {
			t.Errorf("%+v is refused: %v", u, err)
		}
	}
}

// faultFields returns the fields of the faults of an error.
func faultFields(err error) string {
	var out []string
	for _, line := range strings.Split(fmt.Sprint(err), "\n") {
		field, _, _ := strings.Cut(strings.TrimPrefix(line, "errand: "), " ")
		out = append(out, field)
	}
	if !errors.Is(err, errand.ErrInvalid) {
		return fmt.Sprintf("no fault: %v", err)
	}
	return strings.Join(out, " ")
}

// Notes are the args of jobs that are merged.
type Notes struct{ All []int }

// Kind names the type of job.
func (Notes) Kind() string { return "notes" }

func merging(f func(old, new Notes) (errand.Args, error)) *errand.JobOptions {
	return &errand.JobOptions{Unique: &errand.Unique{Key: "log", OnConflict: errand.OnConflict{
		Mode: errand.After, Merge: func(old, new errand.Args) (errand.Args, error) { return f(old.(Notes), new.(Notes)) },
	}}}
}

func TestQueue_OnConflict_merge(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	join := merging(func(old, new Notes) (errand.Args, error) { return Notes{slices.Concat(old.All, new.All)}, nil })
	first := must(q.Enqueue(ctx, Notes{[]int{1}}, join))
	if first.Duplicate || first.Replaced {
		t.Fatalf("the first is %+v", first)
	}
	for n := 2; n < 5; n++ {
		e := must(q.Enqueue(ctx, Notes{[]int{n}}, join))
		if e.ID != first.ID || !e.Replaced {
			t.Errorf("edit %d is %+v", n, e)
		}
	}
	check(q.Tx(ctx, func(tx *sql.Tx) error {
		for n := 5; n < 7; n++ {
			if _, err := q.EnqueueTx(ctx, tx, Notes{[]int{n}}, join); err != nil {
				return err
			}
		}
		return nil
	}))
	// Somebody changes the job while it is merged: the merge begins again.
	calls := 0
	must(q.Enqueue(ctx, Notes{[]int{8}}, merging(func(old, new Notes) (errand.Args, error) {
		if calls++; calls == 1 {
			must(q.Enqueue(ctx, Notes{[]int{7}}, join))
		}
		return Notes{slices.Concat(old.All, new.All)}, nil
	})))
	job := must(q.Job(ctx, first.ID))
	if string(job.Args) != `{"All":[1,2,3,4,5,6,7,8]}` || calls != 2 {
		t.Errorf("the args are %s after %d calls", job.Args, calls)
	}
	boom := errors.New("boom")
	for _, f := range []func(old, new Notes) (errand.Args, error){
		func(_, _ Notes) (errand.Args, error) { return nil, boom },
		func(_, _ Notes) (errand.Args, error) { return nil, nil },
		func(_, _ Notes) (errand.Args, error) { return Upload{1}, nil },
	} {
		if _, err := q.Enqueue(ctx, Notes{[]int{9}}, merging(f)); faultFields(err) != "unique.on_conflict.merge" {
			t.Errorf("a bad merge returns %v", err)
		}
	}
	if again := must(q.Job(ctx, first.ID)); string(again.Args) != string(job.Args) {
		t.Errorf("a bad merge has left %s", again.Args)
	}
}

// TestQueue_OnConflict_mergePointers merges args that are pointers: if new is one so is old.
func TestQueue_OnConflict_mergePointers(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace}}}
	for _, args := range []errand.Args{&Notes{[]int{1}}, &errand.RawArgs{OfKind: "raw", JSON: json.RawMessage(`{"a":1}`)}} {
		must(q.Enqueue(ctx, args, o))
		called := false
		o.Unique.OnConflict.Merge = func(old, _ errand.Args) (errand.Args, error) {
			called = true
			if !reflect.DeepEqual(old, args) {
				t.Errorf("old is %#v, want %#v", old, args)
			}
			return old, nil
		}
		must(q.Enqueue(ctx, args, o))
		if o.Unique.OnConflict.Merge = nil; !called {
			t.Errorf("%T is not merged", args)
		}
	}
}

func TestQueue_OnConflict_fail(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	once := &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Fail}}}
	first := must(q.Enqueue(ctx, Upload{1}, once))
	enqueues := map[string]func() error{
		"Enqueue": func() error { _, err := q.Enqueue(ctx, Upload{2}, once); return err },
		"EnqueueMany": func() error {
			_, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: Upload{2}}, {Args: Upload{2}, Options: once}})
			return err
		},
		"EnqueueTx": func() error {
			return q.Tx(ctx, func(tx *sql.Tx) error { _, err := q.EnqueueTx(ctx, tx, Upload{2}, once); return err })
		},
	}
	for name, enqueue := range enqueues {
		var d *errand.DuplicateError
		if err := enqueue(); !errors.As(err, &d) || !errors.Is(err, errand.ErrDuplicate) || d.ID != first.ID {
			t.Errorf("%s returns %v", name, err)
		}
	}
	if n := must(q.Counts(ctx))[0].N; n != 1 {
		t.Errorf("there are %d jobs, want 1", n)
	}
}

func TestUnique_ByArgs(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	once := &errand.JobOptions{Unique: &errand.Unique{ByArgs: true}}
	raw := func(text string) errand.RawArgs { return errand.RawArgs{OfKind: "raw", JSON: json.RawMessage(text)} }
	first := must(q.Enqueue(ctx, raw(`{"a":1,"b":[1,2],"c":12345678901234567890}`), once))
	for text, same := range map[string]bool{
		`{"b": [1, 2], "c":12345678901234567890, "a":1}`: true,
		`{"b":[2,1],"a":1,"c":12345678901234567890}`:     false,
		`{"b":[1,2],"a":1,"c":12345678901234567891}`:     false,
	} {
		if e := must(q.Enqueue(ctx, raw(text), once)); e.Duplicate != same || same && e.ID != first.ID {
			t.Errorf("%s: %+v, want duplicate %t", text, e, same)
		}
	}
}

func TestQueue_OnConflict_events(t *testing.T) {
	q, remove := tempQueue(nil)
	defer remove()
	ctx := context.Background()
	sub := must(q.Subscribe(ctx, errand.EventFilter{Types: []errand.EventType{errand.EventReplaced}}, 10))
	o := &errand.JobOptions{Unique: &errand.Unique{Key: "a", OnConflict: errand.OnConflict{Mode: errand.Replace}}}
	first := must(q.Enqueue(ctx, Upload{1}, o))
	must(q.Enqueue(ctx, Upload{2}, o))
	if e := <-sub.Events(); e.ID != first.ID || e.Type != errand.EventReplaced {
		t.Errorf("the event is %+v", e)
	}
}
