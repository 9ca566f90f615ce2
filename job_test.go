package errand_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
)

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
