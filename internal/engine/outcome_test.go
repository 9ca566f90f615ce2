package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Outcomes are decided without a loop, so the table needs none either.

var (
	t0     = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	steady = policy.Policy{
		MinDelay: 10 * time.Second, MaxDelay: 100 * time.Second, Retries: 5,
		NoDelayRetries: 1, MinDelayRetries: 1, MaxDelayRetries: 1,
	}
)

func testConfig() *Config {
	return &Config{
		Policy: steady.Delivery(), MaxCrashes: 3, MaxSnoozes: 2, MaxRetryAfter: time.Hour,
		Rand: func() float64 { return 0.5 }, Logger: slog.New(slog.DiscardHandler),
	}
}

// documentJSON is how a document with this retry section alone is stored.
func documentJSON(t *testing.T, p policy.Policy) []byte {
	t.Helper()
	b, err := json.Marshal(p.Delivery().Document)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Outcomes may wait for long: while the store fails, for one.
func TestOutcomes_FreeTheLargeFieldsOfJobs(t *testing.T) {
	var o outcomes
	job := &storage.Leased{Kind: "k", Args: []byte("{}"), Headers: []byte("{}"), Policy: []byte("{}")}
	o.add(job, storage.Finish{})
	if !reflect.DeepEqual(job, &storage.Leased{Kind: "k"}) {
		t.Errorf("%+v is kept", job)
	}
}

func TestOutcome(t *testing.T) {
	policyJSON := documentJSON(t, steady)
	took := 3 * time.Second
	failed := func(phase string) *storage.NewFailure {
		return &storage.NewFailure{Phase: phase, Error: "oops", Duration: took}
	}
	asked := func(phase string) *storage.NewFailure {
		f := failed(phase)
		f.RetryAfter = true
		return f
	}
	for name, c := range map[string]struct {
		before  storage.Counters
		verdict verdict
		want    storage.Finish
	}{
		"done": {
			verdict: verdict{kind: verdictDone},
			want:    storage.Finish{Outcome: storage.OutcomeDone},
		},
		"cancelled": {
			verdict: verdict{kind: verdictCancelled, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeCancelled, Error: "oops"},
		},
		"interrupted": {
			verdict: verdict{kind: verdictInterrupted, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeInterrupted},
		},
		"not started": {
			verdict: verdict{kind: verdictUnstarted, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeReturned, DueAt: t0.Add(time.Second)},
		},
		"first failure": {
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0, Failure: failed("first")},
		},
		"failure in the immediate phase": {
			before:  storage.Counters{Retry: 1},
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(7500 * time.Millisecond), Failure: failed("immediate")},
		},
		"failure in the pre-backoff phase": {
			before:  storage.Counters{Retry: 2},
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(7500 * time.Millisecond), Failure: failed("pre-backoff")},
		},
		"failure in the backoff phase": {
			before:  storage.Counters{Retry: 3},
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(75 * time.Second), Failure: failed("backoff")},
		},
		"last failure": {
			before:  storage.Counters{Retry: 5},
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonExhausted, Error: "oops",
				Policy: policyJSON, Failure: failed("post-backoff"),
			},
		},
		"failure beyond a policy that was made shorter": {
			before:  storage.Counters{Retry: 77},
			verdict: verdict{kind: verdictFailed, text: "oops"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonExhausted, Error: "oops",
				Policy: policyJSON, Failure: failed("post-backoff"),
			},
		},
		"permanent": {
			verdict: verdict{kind: verdictFailed, class: policy.Permanent, text: "oops"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Error: "oops",
				Policy: policyJSON, Failure: failed("first"),
			},
		},
		"decode, retried": {
			verdict: verdict{kind: verdictDecode, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0, Failure: failed("first")},
		},
		"decode, the last time": {
			before:  storage.Counters{Retry: 5},
			verdict: verdict{kind: verdictDecode, text: "oops"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonDecode, Error: "oops",
				Policy: policyJSON, Failure: failed("post-backoff"),
			},
		},
		"throttled, without a policy of its own": {
			before:  storage.Counters{Retry: 1},
			verdict: verdict{kind: verdictFailed, class: policy.Throttled, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(7500 * time.Millisecond), Failure: failed("immediate")},
		},
		"retry after, longer than the policy says": {
			before:  storage.Counters{Retry: 1},
			verdict: verdict{kind: verdictFailed, after: 20 * time.Minute, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(21 * time.Minute), Failure: asked("immediate")},
		},
		"retry after, shorter than the policy says": {
			before:  storage.Counters{Retry: 3},
			verdict: verdict{kind: verdictFailed, after: time.Second, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(75 * time.Second), Failure: asked("backoff")},
		},
		"retry after, capped": {
			verdict: verdict{kind: verdictFailed, after: 100 * time.Hour, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0.Add(63 * time.Minute), Failure: asked("first")},
		},
		"retry after a negative time": {
			verdict: verdict{kind: verdictFailed, after: -time.Hour, text: "oops"},
			want:    storage.Finish{Outcome: storage.OutcomeRetry, DueAt: t0, Failure: failed("first")},
		},
		"retry after uses up a retry": {
			before:  storage.Counters{Retry: 5},
			verdict: verdict{kind: verdictFailed, after: time.Second, text: "oops"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonExhausted, Error: "oops",
				Policy: policyJSON, Failure: asked("post-backoff"),
			},
		},
		"snooze": {
			before:  storage.Counters{Retry: 5, Snoozes: 1},
			verdict: verdict{kind: verdictSnoozed, after: time.Minute},
			want:    storage.Finish{Outcome: storage.OutcomeSnooze, DueAt: t0.Add(time.Minute)},
		},
		"snooze, too short": {
			verdict: verdict{kind: verdictSnoozed, after: -time.Minute},
			want:    storage.Finish{Outcome: storage.OutcomeSnooze, DueAt: t0.Add(100 * time.Millisecond)},
		},
		"snooze, too often": {
			before:  storage.Counters{Snoozes: 2},
			verdict: verdict{kind: verdictSnoozed, after: time.Minute, text: "not yet"},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonSnoozed, Policy: policyJSON,
				Error: "snoozed more than 2 times, the last time: not yet",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := &storage.Leased{Lease: storage.Lease{Key: 7, Token: 9}, Counters: c.before}
			c.want.Lease = job.Lease
			if c.want.Outcome == storage.OutcomeDead {
				c.want.Cause = causeOf(c.want.Error)
			}
			if c.want.Failure != nil {
				c.want.Failure.RetryAfter = c.verdict.after > 0
			}
			c.want.Cause = deathCause(&c.want)
			got := testConfig().outcome(job, c.verdict, took, t0)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestReclaimed(t *testing.T) {
	policyJSON := documentJSON(t, steady)
	died := func(n int, phase string) *storage.NewFailure {
		return &storage.NewFailure{
			Phase: phase, Instance: "other",
			Error: fmt.Sprintf("the process died while the handler ran (crash %d in a row)", n),
		}
	}
	zero := policy.Policy{}
	zeroJSON := documentJSON(t, zero)
	for name, c := range map[string]struct {
		job  storage.Reclaimed
		want storage.Finish
	}{
		"unstarted": {
			job:  storage.Reclaimed{Fate: storage.Unstarted},
			want: storage.Finish{Outcome: storage.OutcomeReturned},
		},
		"cut": {
			job:  storage.Reclaimed{Fate: storage.Cut},
			want: storage.Finish{Outcome: storage.OutcomeInterrupted},
		},
		"cancelling": {
			job:  storage.Reclaimed{Fate: storage.Crashed, Cancelling: true},
			want: storage.Finish{Outcome: storage.OutcomeCancelled, Error: ErrCancelled.Error()},
		},
		"cancelling, and unstarted": {
			job:  storage.Reclaimed{Fate: storage.Unstarted, Cancelling: true},
			want: storage.Finish{Outcome: storage.OutcomeReturned, Error: ErrCancelled.Error()},
		},
		"first crash": {
			job:  storage.Reclaimed{Fate: storage.Crashed},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(time.Second), Failure: died(1, "first")},
		},
		"crash of an attempt that had run for a while": {
			job:  storage.Reclaimed{Fate: storage.Crashed, StartedAt: t0.Add(-time.Minute)},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(-59 * time.Second), Failure: died(1, "first")},
		},
		"crash of an attempt that starts tomorrow": {
			job:  storage.Reclaimed{Fate: storage.Crashed, StartedAt: t0.Add(24 * time.Hour)},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(time.Second), Failure: died(1, "first")},
		},
		"second crash": {
			job: storage.Reclaimed{Fate: storage.Crashed, Leased: storage.Leased{
				Counters: storage.Counters{Crashes: 1, Retry: 1},
			}},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(time.Second), Failure: died(2, "immediate")},
		},
		"third crash of a kind of somebody else, who knows how many it may have": {
			job: storage.Reclaimed{Fate: storage.Crashed, Leased: storage.Leased{
				Counters: storage.Counters{Crashes: 2},
			}},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(time.Second), Failure: died(3, "first")},
		},
		"third crash": {
			job: storage.Reclaimed{Fate: storage.Crashed, Leased: storage.Leased{
				Kind: "own", Counters: storage.Counters{Crashes: 2},
			}},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonCrashed, Error: died(3, "").Error,
				Policy: policyJSON, Failure: died(3, "first"),
			},
		},
		"first crash without retries, of a kind of somebody else, who knows what follows its death": {
			job:  storage.Reclaimed{Fate: storage.Crashed, Leased: storage.Leased{Policy: zeroJSON}},
			want: storage.Finish{Outcome: storage.OutcomeCrashed, DueAt: t0.Add(time.Second), Failure: died(1, "first")},
		},
		"first crash without retries": {
			job: storage.Reclaimed{Fate: storage.Crashed, Leased: storage.Leased{Kind: "own", Policy: zeroJSON}},
			want: storage.Finish{
				Outcome: storage.OutcomeDead, Reason: storage.ReasonCrashed, Error: died(1, "").Error,
				Policy: zeroJSON, Failure: died(1, "first"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.job.Holder = "other"
			if c.want.Outcome == storage.OutcomeDead {
				c.want.Cause = causeOf(c.want.Error)
			}
			config := testConfig()
			config.Queues, config.Handlers = []string{"q"}, map[string]Handler{"own": {}}
			c.job.Queue = "q"
			c.want.Cause = deathCause(&c.want)
			if got := config.reclaimed(&c.job, t0); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"short", "short"},
		{strings.Repeat("a", maxError+1), strings.Repeat("a", maxError)},
		{strings.Repeat("a", maxError-1) + "é", strings.Repeat("a", maxError-1)},
		{"nul\x00 bad\xff", "nul� bad�"},
		{strings.Repeat("\xff", maxError), "�"},
	} {
		got := cut(c.in, maxError)
		if got != c.want {
			t.Errorf("cut(%.20q...) = %.20q... of %d bytes", c.in, got, len(got))
		}
		if len(got) > maxError || !utf8.ValidString(got) {
			t.Errorf("cut(%.20q...) has %d bytes, valid %v", c.in, len(got), utf8.ValidString(got))
		}
	}
}

func TestVerdicts_HaveTextAndReason(t *testing.T) {
	reason := errors.New("reason")
	for _, v := range []Verdict{
		&PermanentError{reason}, &RetryAfterError{time.Second, reason}, &CancelError{reason}, &DecodeError{reason},
	} {
		if !errors.Is(v, reason) || !strings.Contains(v.Error(), "reason") {
			t.Errorf("%T: %q, reason found: %v", v, v, errors.Is(v, reason))
		}
	}
	for _, v := range []Verdict{
		&PermanentError{}, &RetryAfterError{}, &SnoozeError{}, &CancelError{}, &DecodeError{},
	} {
		if v.Error() == "" || errors.Is(v, reason) {
			t.Errorf("%T without a reason: %q", v, v)
		}
	}
}

// deathCause returns the cause that goes with the death of an outcome, empty if it is none.
func deathCause(f *storage.Finish) string {
	if f.Outcome != storage.OutcomeDead {
		return ""
	}
	return causeOf(f.Error)
}
