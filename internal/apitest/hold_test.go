package apitest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
)

func TestQueue_Hold(t *testing.T) {
	q := openQueue(t, nil)
	ctx := t.Context()
	for range 3 {
		enqueue(t, q, note{}, nil)
	}
	enqueue(t, q, note{}, &errand.JobOptions{Queue: "b", Delay: time.Hour})
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for _, c := range []struct {
		lane errand.Lane
		o    *errand.HoldOptions
	}{
		{errand.Lane{Queue: "default"}, nil},
		{errand.Lane{Queue: "default"}, &errand.HoldOptions{Reason: "modem", By: "ada", Detail: "no contract yet", Until: until}},
		{errand.Lane{Kind: "note"}, &errand.HoldOptions{Reason: "modem", For: time.Hour}},
		{errand.Lane{Queue: "default"}, &errand.HoldOptions{Reason: "dry", DryRun: true}},
	} {
		if err := q.Hold(ctx, c.lane, c.o); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Pause(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	holds, err := q.Holds(ctx)
	if err != nil || len(holds) != 4 {
		t.Fatalf("Holds returned %+v, %v", holds, err)
	}
	if until := holds[0].Until.Sub(holds[0].Since); until < time.Hour || until > time.Hour+time.Microsecond {
		t.Errorf("a hold for an hour lasts %v", until)
	}
	for i := range holds {
		if age := time.Since(holds[i].Since); age < 0 || age > time.Minute {
			t.Errorf("hold %d has begun %v ago", i, age)
		}
		holds[i].Since = time.Time{}
	}
	holds[0].Until = time.Time{}
	want := []errand.HoldState{
		{Lane: errand.Lane{Kind: "note"}, Reason: "modem", For: time.Hour, Waiting: 4, Ready: 3},
		{Lane: errand.Lane{Queue: "b"}, Reason: "paused", Waiting: 1},
		{Lane: errand.Lane{Queue: "default"}, Reason: "held", Waiting: 3, Ready: 3},
		{Lane: errand.Lane{Queue: "default"}, Reason: "modem", By: "ada", Detail: "no contract yet", Until: until.UTC(), Waiting: 3, Ready: 3},
	}
	if !reflect.DeepEqual(holds, want) {
		t.Errorf("Holds returned\n %+v, want\n %+v", holds, want)
	}
	if got, err := q.Paused(ctx); !reflect.DeepEqual(got, []string{"b"}) || err != nil {
		t.Errorf("Paused returned %v, %v", got, err)
	}
	for _, c := range []struct {
		lane   errand.Lane
		reason string
		want   bool
	}{
		{errand.Lane{Queue: "default"}, "", true},
		{errand.Lane{Queue: "default"}, "held", false},
		{errand.Lane{Queue: "default"}, "modem", true},
		{errand.Lane{Queue: "default", Kind: "note"}, "modem", false},
		{errand.Lane{Queue: "b"}, "paused", true},
	} {
		if was, err := q.Release(ctx, c.lane, c.reason); was != c.want || err != nil {
			t.Errorf("Release of %v, %q returned %v, %v", c.lane, c.reason, was, err)
		}
	}
}

func TestQueue_Hold_badInput(t *testing.T) {
	q := openQueue(t, nil)
	ctx, mail := t.Context(), errand.Lane{Queue: "mail"}
	long := strings.Repeat("r", 129)
	for _, c := range []struct {
		lane errand.Lane
		o    *errand.HoldOptions
		want []fault
	}{
		{errand.Lane{}, nil, []fault{{"lane", `""`, "must name a queue, a kind, or both"}}},
		{errand.Lane{Queue: "a b", Kind: "-"}, nil, []fault{{"lane.queue", `"a b"`, "must match"}, {"lane.kind", `"-"`, "must match"}}},
		{mail, &errand.HoldOptions{Reason: "a b", DryRun: true}, []fault{{"reason", `"a b"`, "must match"}}},
		{mail, &errand.HoldOptions{Reason: "a b"}, []fault{{"reason", `"a b"`, "must match"}}},
		{mail, &errand.HoldOptions{Reason: long}, []fault{{"reason", `"` + long[:100] + `"... (129 bytes)`, "must match"}}},
		{mail, &errand.HoldOptions{Reason: "unavailable"}, []fault{{"reason", `"unavailable"`, "must not be unavailable or brake: errand begins such holds itself"}}},
		{errand.Lane{Queue: "mail", Kind: "note"}, &errand.HoldOptions{Reason: "brake"}, []fault{{"reason", `"brake"`, "must not be unavailable or brake"}}},
		{mail, &errand.HoldOptions{For: -1}, []fault{{"for", "-1ns", "must not be negative"}}},
		{mail, &errand.HoldOptions{Until: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}, []fault{{"until", "2020-01-01T00:00:00Z", "must be after now"}}},
		{mail, &errand.HoldOptions{Until: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, []fault{{"until", "10000-01-01T00:00:00Z", "must be in the year 9999 at the latest"}}},
		{mail, &errand.HoldOptions{For: 1, Until: time.Now().Add(time.Hour)}, []fault{{"for", "1ns", "must be zero if until is set"}}},
		{mail, &errand.HoldOptions{By: long + long}, []fault{{"by", `"` + long[:100] + `"... (258 bytes)`, "must be at most 255 bytes"}}},
		{mail, &errand.HoldOptions{Detail: strings.Repeat("n", 1001)}, []fault{{"detail", `"` + strings.Repeat("n", 100) + `"... (1001 bytes)`, "must be at most 1000 bytes"}}},
		{mail, &errand.HoldOptions{Detail: "\x00"}, []fault{{"detail", `"\x00"`, "must be at most 1000 bytes of UTF-8 without NUL"}}},
		{mail, &errand.HoldOptions{By: "\xff"}, []fault{{"by", `"\xff"`, "must be at most 255 bytes of UTF-8"}}},
		{mail, &errand.HoldOptions{By: "\x00"}, []fault{{"by", `"\x00"`, "must be at most 255 bytes of UTF-8 without NUL"}}},
	} {
		wantFaults(t, q.Hold(ctx, c.lane, c.o), c.want...)
	}
	_, err := q.Release(ctx, errand.Lane{}, "a b")
	wantFaults(t, err, fault{"lane", `""`, "must name"}, fault{"reason", `"a b"`, "must match"})
	for _, reason := range []string{"unavailable", "brake"} {
		if was, err := q.Release(ctx, mail, reason); was || err != nil {
			t.Errorf("Release of %q returned %v, %v", reason, was, err)
		}
	}
	if holds, err := q.Holds(ctx); len(holds) > 0 || err != nil {
		t.Errorf("Holds returned %+v, %v, after nothing but bad input", holds, err)
	}
}
