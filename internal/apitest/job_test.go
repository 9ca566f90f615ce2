package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

//errand:shows verdicts | | `VerdictOf` reads what a handler asked for; the error of a snooze is in the dead letter of a job that snoozed too often
func TestVerdictOf(t *testing.T) {
	why := errors.New("why")
	for _, c := range []struct {
		err  error
		want string // nothing: no verdict
	}{
		{nil, ""},
		{why, ""},
		{errand.Permanent(why), "permanent: why"},
		{errand.Permanent(nil), "permanent"},
		{errand.RetryAfter(time.Minute, why), "retry after 1m0s: why"},
		{errand.Snooze(time.Second, why), "snooze 1s: why"},
		{errand.Snooze(time.Second, nil), "snooze 1s"},
		{errand.Cancel(why), "cancel: why"},
		{errand.Unavailable(why), "unavailable: why"},
		{errand.HoldLane(time.Minute, why), "hold lane 1m0s: why"},
		{fmt.Errorf("send: %w", errors.Join(why, errand.Cancel(why))), "cancel: why"},
		{errand.Snooze(time.Second, errand.Permanent(why)), "snooze 1s: why"},
		{errand.Permanent(errand.Snooze(time.Second, why)), "permanent: why"},
	} {
		v, ok := errand.VerdictOf(c.err)
		if got := v.String(); got != c.want || ok != (c.want != "") {
			t.Errorf("VerdictOf(%v) is %q, %t: want %q", c.err, got, ok, c.want)
		}
		if ok && errors.Is(c.err, why) != errors.Is(v.Err, why) {
			t.Errorf("VerdictOf(%v) has the error %v", c.err, v.Err)
		}
	}
}

//errand:shows verdicts
func TestSnooze_ItsErrorIsKeptInTheDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		e, err := q.Enqueue(t.Context(), note{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := errand.NewWorker(q, &errand.WorkerOptions{MaxSnoozes: 1})
		errand.Handle(w, func(context.Context, *errand.Job[note]) error {
			return errand.Snooze(time.Second, errors.New("the printer is off"))
		})
		run(t, w)
		time.Sleep(time.Minute)
		d, err := q.DeadLetters().Get(t.Context(), e.ID)
		if err != nil || d.Reason != errand.ReasonSnoozed || !strings.HasSuffix(d.Error, "the printer is off") {
			t.Errorf("dead letter: %s, error %q, %v", d.Reason, d.Error, err)
		}
	})
}

// private is lost in JSON.
type private struct{ id int }

func (private) Kind() string { return "private" }

// copied has kept the kind of the type it was copied from.
type copied struct{ Text string }

func (copied) Kind() string { return "note" }

// embeds has its only field by a type of which JSON sees nothing.
type (
	inner  struct{ id int }
	embeds struct{ inner }
)

func (embeds) Kind() string { return "embeds" }

// written marshals itself, if there is a pointer to it.
type written struct{ id int }

func (written) Kind() string                    { return "written" }
func (w *written) MarshalJSON() ([]byte, error) { return json.Marshal(w.id) }
func (w *written) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &w.id) }

// deep has a field by an embedded type, and one that is left out on purpose.
type (
	shown struct{ ID int }
	deep  struct {
		shown
		note string
		Memo string `json:"-"`
	}
	bare struct {
		Memo string `json:"-"`
	}
)

func (deep) Kind() string { return "deep" }
func (bare) Kind() string { return "bare" }

// Args that would be lost, or read as those of another type, are refused before
// there is a job.
//
//errand:shows types of args | | two types of one kind, a kind that depends on the value, and args of which JSON sees no field are refused
func TestArgs_Types(t *testing.T) {
	q := openQueue(t, nil)
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil })
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[written]) error { return nil })
	const hidden = "must have exported fields, or none, or marshal itself: JSON sees no others"
	for _, c := range []struct {
		name string
		args errand.Args
		want []fault
	}{
		{"hidden", private{1}, []fault{{"args", `"apitest.private"`, hidden}}},
		{"hidden behind a pointer", &private{1}, []fault{{"args", `"*apitest.private"`, hidden}}},
		{"hidden in what is embedded", embeds{inner{1}}, []fault{{"args", `"apitest.embeds"`, hidden}}},
		{"marshalled by a pointer that is not there", written{1}, []fault{{"args", `"apitest.written"`, hidden}}},
		{"marshalled", &written{1}, nil},
		{"seen by its embedded field", deep{shown{1}, "", ""}, nil},
		{"nothing, on purpose", bare{}, nil},
		{"no fields", longest{}, nil},
		{"no struct", ofKind(""), []fault{{"kind", `""`, "must match"}}},
		{"a kind of its value", ofKind("x"), []fault{{"kind", `"x"`, `must be the same for every value of apitest.ofKind, whose zero value has ""`}}},
		{"a kind of its value behind a pointer", &byPointer{"x"}, []fault{{"kind", `"x"`, `must be the same for every value of *apitest.byPointer, whose zero value has ""`}}},
		{"a kind twice", copied{}, []fault{{"kind", `"note"`, "must be of one type: apitest.note has it, and apitest.copied"}}},
		{"the same behind a pointer", &note{}, nil},
	} {
		for range 2 { // also once the type is known
			_, err := q.Enqueue(t.Context(), c.args, nil)
			if c.want != nil {
				wantFaults(t, err, c.want...)
			} else if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}
