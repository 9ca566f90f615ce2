package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// document returns one whose sections can be told apart by n, those named.
func document(n int, sections string) (d policy.Document) {
	for _, s := range sections {
		switch s {
		case 'r':
			d.Retry = &policy.Policy{Retries: n, NoDelayRetries: n}
		case 'l':
			d.ThrottledRetry = &policy.Policy{Retries: 10 * n, NoDelayRetries: 10 * n}
		case 't':
			d.Throttle = &policy.Throttle{MaxReceivesPerSecond: n}
		case 'q':
			d.Request = &policy.Request{ContentType: fmt.Sprintf("text/plain; charset=%d", n)}
		}
	}
	return d
}

func join(docs ...policy.Document) (d policy.Document) {
	for _, s := range docs {
		d = d.Or(s)
	}
	return d
}

func TestPolicyOf_SectionBySection(t *testing.T) {
	c := testConfig()
	c.Policy = document(4, "rltq").Delivery()
	c.Settings = map[string]QueueSettings{
		"q":      {Policy: new(document(3, "rt").Delivery())},
		"strict": {Policy: &policy.Topic{Document: document(3, "rt"), DisableSubscriptionOverrides: true}},
	}
	c.Handlers = map[string]Handler{"k": {Policy: document(2, "rq")}, "throttled": {Policy: document(2, "lt")}, "plain": {}}
	own := func(d any) []byte {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, test := range []struct {
		name string
		job  storage.Leased
		want policy.Document
		bad  bool
	}{
		{"its own", storage.Leased{Policy: own(document(1, "rltq")), Kind: "k", Queue: "q"}, document(1, "rltq"), false},
		{"a retry section of its own, as old rows have", storage.Leased{Policy: own(policy.Policy{Retries: 1, NoDelayRetries: 1}), Kind: "k", Queue: "q"},
			join(document(1, "r"), document(2, "q"), document(3, "t")), false},
		{"one section of its own", storage.Leased{Policy: own(document(1, "q")), Kind: "k", Queue: "q"},
			join(document(1, "q"), document(2, "r"), document(3, "t")), false},
		{"of its kind", storage.Leased{Kind: "k", Queue: "q"}, join(document(2, "rq"), document(3, "t")), false},
		{"of its kind for throttling", storage.Leased{Kind: "throttled", Queue: "q"}, join(document(2, "lt"), document(3, "r"), document(4, "q")), false},
		{"of its queue", storage.Leased{Kind: "plain", Queue: "q"}, join(document(3, "rt"), document(4, "q")), false},
		{"of its queue, kind unknown", storage.Leased{Kind: "unknown", Queue: "q"}, join(document(3, "rt"), document(4, "q")), false},
		{"of its queue alone", storage.Leased{Policy: own(document(1, "rltq")), Kind: "k", Queue: "strict"}, join(document(3, "rt"), document(4, "q")), false},
		{"default", storage.Leased{Kind: "plain", Queue: "other"}, document(4, "rltq"), false},
		{"its own does not decode", storage.Leased{Policy: []byte("{"), Kind: "k", Queue: "q"}, join(document(2, "rq"), document(3, "t")), true},
	} {
		got, err := c.policyOf(&test.job)
		if !reflect.DeepEqual(got, test.want) || (err != nil) != test.bad {
			t.Errorf("%s: %s, %v; want %s", test.name, own(got), err, own(test.want))
		}
	}
}

// The retry index is one: a throttled error is looked up at the same index in
// the other policy.
func TestOutcome_ThrottledPolicy(t *testing.T) {
	c := testConfig()
	c.Policy.ThrottledRetry = &policy.Policy{MinDelay: time.Minute, MaxDelay: time.Hour, Retries: 7, MinDelayRetries: 2, MaxDelayRetries: 5}
	v := verdict{kind: verdictFailed, class: policy.Throttled, text: "slow down"}
	for _, test := range []struct {
		retry int
		want  time.Duration
		phase string
	}{{0, 45 * time.Second, "first"}, {1, 45 * time.Second, "immediate"}, {2, 45 * time.Minute, "pre-backoff"}, {6, 45 * time.Minute, "post-backoff"}} {
		f := c.outcome(&storage.Leased{Counters: storage.Counters{Retry: test.retry}}, v, 0, t0)
		if f.Outcome != storage.OutcomeRetry || f.DueAt.Sub(t0) != test.want || f.Failure.Phase != test.phase {
			t.Errorf("retry %d: outcome %d in %v, phase %q; want %v, %q",
				test.retry, f.Outcome, f.DueAt.Sub(t0), f.Failure.Phase, test.want, test.phase)
		}
	}
	f := c.outcome(&storage.Leased{Counters: storage.Counters{Retry: 7}}, v, 0, t0)
	back, err := policy.Parse(f.Policy, policy.ProfileQueue)
	if f.Outcome != storage.OutcomeDead || f.Reason != storage.ReasonExhausted || err != nil || !reflect.DeepEqual(back.Document, c.Policy.Document) {
		t.Errorf("outcome %d %q with policy %s %v", f.Outcome, f.Reason, f.Policy, err)
	}
	v.class = policy.Retryable
	if f := c.outcome(&storage.Leased{Counters: storage.Counters{Retry: 6}}, v, 0, t0); f.Outcome != storage.OutcomeDead {
		t.Errorf("outcome %d of the sixth failure that is not throttled", f.Outcome)
	}
}

// judged returns an attempt of a worker that works, unless its context says otherwise.
func judged(c *Config, job *storage.Leased, ctx context.Context) *attempt { //nolint:revive // the context is that of the attempt
	a := &attempt{cfg: c, job: job, ctx: ctx}
	a.loop = &loop{runners: newRunners(context.Background(), nil, 1, 1)}
	return a
}

// The policy that a handler names goes before the one in effect, section by section,
// also within a verdict.
func TestOutcome_PolicyOfTheHandler(t *testing.T) {
	c := testConfig()
	a := judged(c, &storage.Leased{Counters: storage.Counters{Retry: 1}}, t.Context())
	own := policy.Document{Retry: &policy.Policy{MinDelay: time.Minute, MaxDelay: time.Minute, Retries: 2, Jitter: policy.NoJitter}}
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"its own":     {&PolicyError{own, errors.New("no")}, time.Minute},
		"in effect":   {&PolicyError{policy.Document{Throttle: &policy.Throttle{}}, errors.New("no")}, 0},
		"a verdict":   {&PolicyError{own, &RetryAfterError{time.Second, nil}}, time.Minute},
		"and wrapped": {fmt.Errorf("send: %w", &RetryAfterError{time.Second, &PolicyError{own, errors.New("no")}}), time.Minute},
	} {
		f := c.outcome(a.job, a.judge(test.err), 0, t0)
		if plain := c.outcome(a.job, a.judge(errors.New("no")), 0, t0); test.want == 0 {
			test.want = plain.DueAt.Sub(t0)
		}
		if f.Outcome != storage.OutcomeRetry || f.DueAt.Sub(t0) != test.want {
			t.Errorf("%s: outcome %d in %v, want a retry in %v", name, f.Outcome, f.DueAt.Sub(t0), test.want)
		}
	}
	a.job.Retry = 2
	f := c.outcome(a.job, a.judge(&PolicyError{own, errors.New("no")}), 0, t0)
	back, err := policy.Parse(f.Policy, policy.ProfileQueue)
	if f.Reason != storage.ReasonExhausted || err != nil || !reflect.DeepEqual(back.Retry, own.Retry) {
		t.Errorf("reason %q with policy %s %v, want it exhausted by its own", f.Reason, f.Policy, err)
	}
	a.verdict = a.judge(&PolicyError{own, errors.New("no")})
	if got := c.used(a, &storage.Finish{Outcome: storage.OutcomeRetry}); got != 0 {
		t.Errorf("retry 3 of 2 reached the mark %d", got)
	}
	own.Retry.Retries = 10
	a.job.Retry = 4
	if got := c.used(a, &storage.Finish{Outcome: storage.OutcomeRetry}); got != 50 {
		t.Errorf("retry 5 of 10 reached the mark %d, want 50", got)
	}
}

type statusCode int // as errors of HTTP clients have it

func (c statusCode) Error() string   { return fmt.Sprint("status ", int(c)) }
func (c statusCode) StatusCode() int { return int(c) }

func TestJudge_Classes(t *testing.T) {
	timeout, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), nil)
	defer cancel()
	stopping, stop := context.WithCancelCause(t.Context())
	stop(ErrShutdown)
	plain := errors.New("plain")
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want verdict // but for the text
	}{
		{t.Context(), plain, verdict{kind: verdictFailed}},
		{t.Context(), statusCode(500), verdict{kind: verdictFailed}},
		{t.Context(), statusCode(429), verdict{kind: verdictFailed, class: policy.Throttled}},
		{t.Context(), fmt.Errorf("send: %w", statusCode(400)), verdict{kind: verdictFailed, class: policy.Permanent}},
		{t.Context(), policy.Mark(plain, policy.Permanent), verdict{kind: verdictFailed, class: policy.Permanent}},
		{t.Context(), &PermanentError{}, verdict{kind: verdictFailed, class: policy.Permanent}},
		{t.Context(), &policy.StatusError{Status: 429, After: time.Minute}, verdict{kind: verdictFailed, class: policy.Throttled, after: time.Minute}},
		{t.Context(), &RetryAfterError{time.Second, &policy.StatusError{Status: 429, After: time.Minute}},
			verdict{kind: verdictFailed, class: policy.Throttled, after: time.Second}},
		// The handler knows better.
		{t.Context(), &RetryAfterError{time.Second, statusCode(404)}, verdict{kind: verdictFailed, after: time.Second}},
		{t.Context(), context.DeadlineExceeded, verdict{kind: verdictFailed, late: true}},
		{timeout, context.DeadlineExceeded, verdict{kind: verdictFailed, late: true}},
		{timeout, errors.Join(statusCode(499), context.DeadlineExceeded), verdict{kind: verdictFailed, late: true}},
		{timeout, statusCode(400), verdict{kind: verdictFailed, late: true, class: policy.Permanent}},
		{timeout, policy.Mark(context.DeadlineExceeded, policy.Permanent), verdict{kind: verdictFailed, late: true}},
		{timeout, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, verdict{kind: verdictFailed, late: true}},
		// It knows that there was no connection.
		{timeout, policy.Mark(context.DeadlineExceeded, policy.Unavailable), verdict{kind: verdictFailed, class: policy.Unavailable}},
		{timeout, &RetryAfterError{time.Second, policy.Mark(context.DeadlineExceeded, policy.Unavailable)},
			verdict{kind: verdictFailed, late: true, after: time.Second}},
		// A stop is nobody's failure.
		{stopping, statusCode(400), verdict{kind: verdictInterrupted, ownError: true}},
		{stopping, &PermanentError{}, verdict{kind: verdictInterrupted, ownError: true}},
		{stopping, &policy.StatusError{Status: 429, After: time.Minute}, verdict{kind: verdictInterrupted, after: time.Minute, ownError: true}},
		{t.Context(), &DecodeError{statusCode(400)}, verdict{kind: verdictDecode}},
		{t.Context(), &SnoozeError{For: time.Hour}, verdict{kind: verdictSnoozed, after: time.Hour}},
	} {
		a := judged(testConfig(), &storage.Leased{}, c.ctx)
		got := a.judge(c.err)
		got.text = ""
		if got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
	}
}

func TestJudge_RulesOfKindAndQueue(t *testing.T) {
	cfg := testConfig()
	cfg.Settings = map[string]QueueSettings{"q": {Rules: policy.Rules{policy.Otherwise(policy.Throttled)}}}
	cfg.Handlers = map[string]Handler{"k": {Rules: policy.Rules{}}, "plain": {}}
	for _, c := range []struct {
		queue, kind string
		want        policy.Class
	}{{"q", "k", policy.Retryable}, {"q", "plain", policy.Throttled}, {"other", "plain", policy.Permanent}} {
		a := judged(cfg, &storage.Leased{Queue: c.queue, Kind: c.kind}, t.Context())
		if got := a.judge(statusCode(400)); got.class != c.want {
			t.Errorf("%s in %s: %v, want %v", c.kind, c.queue, got.class, c.want)
		}
	}
}

// A verdict that comes out of policy.Do ends that too.
func TestVerdicts_AreUnderstoodByPolicy(t *testing.T) {
	for _, v := range []Verdict{&PermanentError{}, &SnoozeError{}, &CancelError{}} {
		if got := policy.Classify(fmt.Errorf("call: %w", v)); got != policy.Permanent {
			t.Errorf("%T is %v", v, got)
		}
	}
	err := error(&RetryAfterError{time.Minute, statusCode(503)})
	if d, ok := policy.RetryAfter(err); d != time.Minute || !ok || policy.Classify(err) != policy.Retryable {
		t.Errorf("hint %v %v, class %v", d, ok, policy.Classify(err))
	}
}
