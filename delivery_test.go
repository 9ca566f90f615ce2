package errand_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/storagetest"
)

// awkward is a Delivery from elsewhere.
type awkward struct{}

func (awkward) Delivery() policy.Topic { return policy.Topic{} }
func (awkward) Validate() error        { return errors.New("out of order") }

func TestPolicy_AllFormsAreValidated(t *testing.T) {
	bad := policy.Document{
		Retry:    &policy.Policy{Retries: -1},
		Throttle: &policy.Throttle{MaxReceivesPerSecond: -2},
		Request:  &policy.Request{ContentType: "image/png"},
	}
	of := func(prefix string) []fault {
		return []fault{
			{prefix + "retry.retries", "-1", "must be between 0 and 1000000"},
			{prefix + "throttle.max_receives_per_second", "-2", "must be between 0 and 2147483647"},
			{prefix + "request.content_type", `"image/png"`, "must be one of"},
		}
	}
	strict := policy.Topic{DisableSubscriptionOverrides: true}
	for name, o := range map[string]errand.Options{
		"options":          {Policy: &bad},
		"options, a topic": {Policy: policy.Topic{Document: bad}},
		"queue":            {Queues: map[string]errand.QueueOptions{"mail": {Policy: bad}}},
	} {
		_, err := errand.New(t.Context(), nil, &o)
		prefix := "policy."
		if name == "queue" {
			prefix = `queues["mail"].policy.`
		}
		wantFaults(t, err, append([]fault{{"store", "nil", "must not be nil"}}, of(prefix)...)...)
	}
	_, err := errand.New(t.Context(), nil, &errand.Options{
		Policy: awkward{}, Queues: map[string]errand.QueueOptions{"mail": {Rules: policy.Rules{nil}}},
	})
	wantFaults(t, err, fault{"store", "nil", ""}, fault{"policy", `"errand_test.awkward"`, "must be valid: out of order"},
		fault{`queues["mail"].rules[0]`, "nil", "must not be nil"})

	q, _ := memoryQueue(t, errand.Options{Policy: strict, Queues: map[string]errand.QueueOptions{"mail": {Policy: &strict}}})
	_, err = q.EnqueueMany(t.Context(), []errand.NewJob{
		{Args: note{}},
		{Args: note{}, Options: &errand.JobOptions{Policy: bad}},
		{Args: note{}, Options: &errand.JobOptions{Policy: strict}},
		{Args: note{}, Options: &errand.JobOptions{Policy: &policy.Policy{Jitter: 9}}},
	})
	wantFaults(t, err, append(of("jobs[1].policy."),
		fault{"jobs[2].policy.disable_subscription_overrides", "true", "must be false"},
		fault{"jobs[3].policy.jitter", "Jitter(9)", "must be one of"})...)
	wantNothing(t, q)

	defer func() {
		got := fmt.Sprint(recover())
		for _, want := range []string{"retry.retries -1", "max_receives_per_second -2", "content_type", "rules[1] nil"} {
			if !strings.Contains(got, want) {
				t.Errorf("panic with %q, want %q in it", got, want)
			}
		}
	}()
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
		errand.HandlerOptions{Policy: bad, Rules: policy.Rules{policy.ByMark, nil}})
}

// A job's own policy is stored in its normal form, whatever it was given as.
func TestEnqueue_StoresTheDocument(t *testing.T) {
	p := policy.Policy{Retries: 7, MinDelay: time.Second, MaxDelay: time.Minute}
	full, err := policy.Parse([]byte(`{"http": {
		"defaultHealthyRetryPolicy": {"numRetries": 7, "minDelayTarget": 1, "maxDelayTarget": 60}, "sicklyRetryPolicy": null,
		"defaultThrottlePolicy": {"maxReceivesPerSecond": 10}, "defaultRequestPolicy": {"headerContentType": "application/json"}}}`), policy.ProfileSNS)
	if err != nil {
		t.Fatal(err)
	}
	q, store := memoryQueue(t, errand.Options{})
	for _, c := range []struct {
		give policy.Delivery
		want *policy.Document
	}{
		{nil, nil},
		{(*policy.Policy)(nil), nil},
		{(*policy.Document)(nil), nil},
		{(*policy.Topic)(nil), nil},
		{policy.Document{}, nil},
		{p, &policy.Document{Retry: &p}},
		{&p, &policy.Document{Retry: &p}},
		{policy.Policy{}, &policy.Document{Retry: &policy.Policy{}}},
		{full, &full.Document},
		{full.Document, &full.Document},
	} {
		id := enqueue(t, q, note{}, &errand.JobOptions{Policy: c.give})
		if got := lookUp(t, q, id).Policy; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T %+v became %+v", c.give, c.give, got)
		}
		var want []byte
		if c.want != nil {
			if want, err = json.Marshal(c.want); err != nil {
				t.Fatal(err)
			}
		}
		if got := lookUpRaw(t, store, id).Policy; string(got) != string(want) {
			t.Errorf("%+v is stored as %s, want %s", c.give, got, want)
		}
	}
	// As versions before documents did.
	own, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	res, err := store.Enqueue(t.Context(), time.Now(), []storage.NewJob{
		{Queue: "q", Kind: "k", Args: []byte("{}"), Policy: own}, {Queue: "q", Kind: "k", Args: []byte("{}"), Policy: []byte("?")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := lookUp(t, q, res[0].ID).Policy; !reflect.DeepEqual(got, &policy.Document{Retry: &p}) {
		t.Errorf("a retry section alone is read as %+v", got)
	}
	if j, err := q.Job(t.Context(), res[1].ID); err == nil || j.Policy != nil || j.Kind != "k" {
		t.Errorf("what cannot be read gave %+v, %v", j, err)
	}
}

// The document in effect is put together section by section, and goes into the
// dead letter.
func TestWorker_PolicySectionBySection(t *testing.T) {
	retries := func(n int) *policy.Policy { return &policy.Policy{Retries: n, NoDelayRetries: n} }
	content := func(s string) *policy.Request { return &policy.Request{ContentType: s} }
	options := policy.Document{Retry: retries(5), Throttle: &policy.Throttle{MaxReceivesPerSecond: 1000}}
	mail := policy.Document{Retry: retries(4), Request: content("text/plain")}
	kind := policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: &policy.Throttle{MaxReceivesPerSecond: 500}}
	job := policy.Document{Request: content("text/csv")}
	strict := policy.Topic{Document: mail, DisableSubscriptionOverrides: true}
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{Policy: &options, Queues: map[string]errand.QueueOptions{
			"mail": {Policy: &mail}, "strict": {Policy: strict}, "plain": {},
		}})
		// They belong to the caller again.
		options.Retry.Retries, mail.Retry.Retries, mail.Request.ContentType = 0, 0, ""
		mail.Request = content("text/plain")

		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail", "strict", "plain"}})
		errand.Handle(w, func(_ context.Context, j *errand.Job[note]) error {
			return policy.HTTPError(j.Args.N, nil, time.Time{})
		}, errand.HandlerOptions{Policy: kind})
		errand.Handle(w, func(_ context.Context, j *errand.Job[value]) error { return errors.New("down") })
		run(t, w)
		for _, c := range []struct {
			name   string
			args   errand.Args
			o      errand.JobOptions
			want   policy.Document
			reason errand.Reason
			used   int // retries
		}{
			{"kind and options", note{N: 500}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonExhausted, 3},
			{"throttled", note{N: 429}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonExhausted, 2},
			{"permanent", note{N: 400}, errand.JobOptions{},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle}, errand.ReasonPermanent, 0},
			{"all four", note{N: 500}, errand.JobOptions{Queue: "mail", Policy: job},
				policy.Document{Retry: retries(3), ThrottledRetry: retries(2), Throttle: kind.Throttle, Request: job.Request}, errand.ReasonExhausted, 3},
			{"queue", value{}, errand.JobOptions{Queue: "mail"},
				policy.Document{Retry: retries(4), Throttle: options.Throttle, Request: mail.Request}, errand.ReasonExhausted, 4},
			{"overrides disabled", note{N: 500}, errand.JobOptions{Queue: "strict", Policy: job},
				policy.Document{Retry: retries(4), Throttle: options.Throttle, Request: mail.Request}, errand.ReasonExhausted, 4},
			{"options", value{}, errand.JobOptions{Queue: "plain"},
				policy.Document{Retry: retries(5), Throttle: options.Throttle}, errand.ReasonExhausted, 5},
			{"job", value{}, errand.JobOptions{Policy: policy.Policy{}},
				policy.Document{Retry: retries(0), Throttle: options.Throttle}, errand.ReasonExhausted, 0},
		} {
			id := enqueue(t, q, c.args, &c.o)
			time.Sleep(time.Minute)
			synctest.Wait()
			got := lookUp(t, q, id)
			if got.State != errand.Dead || got.Reason != c.reason || got.Retry != c.used {
				t.Errorf("%s: %s %q after %d retries, want %q after %d", c.name, got.State, got.Reason, got.Retry, c.reason, c.used)
			}
			if !reflect.DeepEqual(got.Policy, &c.want) {
				a, _ := json.Marshal(got.Policy)
				b, _ := json.Marshal(c.want)
				t.Errorf("%s: policy %s, want %s", c.name, a, b)
			}
		}
	})
}

// A hint that an error brings along is a floor, as errand.RetryAfter is.
func TestWorker_HintOfTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{})
		w := errand.NewWorker(q, &errand.WorkerOptions{MaxRetryAfter: time.Hour})
		errand.Handle(w, func(_ context.Context, j *errand.Job[note]) error {
			return fmt.Errorf("send: %w", &policy.StatusError{Status: 503, After: time.Duration(j.Args.N) * time.Minute})
		})
		run(t, w)
		for minutes, want := range map[int]time.Duration{10: 10 * time.Minute, 1000: time.Hour} {
			id := enqueue(t, q, note{N: minutes}, nil)
			synctest.Wait()
			if got := time.Until(lookUp(t, q, id).DueAt); got < want || got > want+want/10 {
				t.Errorf("%d minutes: due in %v, want %v or up to a tenth more", minutes, got, want)
			}
		}
	})
}

func TestWorker_RulesOfKindAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := memoryQueue(t, errand.Options{
			Policy: policy.Policy{Retries: 1, NoDelayRetries: 1},
			Queues: map[string]errand.QueueOptions{"mail": {Rules: policy.Rules{policy.Otherwise(policy.Permanent)}}},
		})
		w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"default", "mail"}})
		fail := func() error { return policy.HTTPError(404, nil, time.Time{}) }
		errand.Handle(w, func(context.Context, *errand.Job[note]) error { return fail() },
			errand.HandlerOptions{Rules: policy.Rules{}})
		errand.Handle(w, func(_ context.Context, j *errand.Job[value]) error {
			if j.Queue == "mail" {
				return errors.New("plain")
			}
			return fail()
		})
		run(t, w)
		for _, c := range []struct {
			args  errand.Args
			queue string
			want  errand.Reason
		}{
			{note{}, "default", errand.ReasonExhausted}, {note{}, "mail", errand.ReasonExhausted},
			{value{}, "default", errand.ReasonPermanent}, {value{}, "mail", errand.ReasonPermanent},
		} {
			id := enqueue(t, q, c.args, &errand.JobOptions{Queue: c.queue})
			synctest.Wait()
			if got := lookUp(t, q, id); got.Reason != c.want {
				t.Errorf("%T in %s: %s %q, want %q", c.args, c.queue, got.State, got.Reason, c.want)
			}
		}
	})
}

func TestPolicy_DoubtsAreLogged(t *testing.T) {
	hasty := policy.Policy{Retries: 5}
	handle := func(q *errand.Queue, o ...errand.HandlerOptions) {
		errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil }, o...)
	}
	for name, c := range map[string]struct {
		options errand.Options
		handler []errand.HandlerOptions
		want    string // in each line; nothing: there is none
	}{
		"options":   {errand.Options{Policy: hasty}, nil, "of=options doubt="},
		"queue":     {errand.Options{Queues: map[string]errand.QueueOptions{"mail": {Policy: hasty}}}, nil, `of="queue mail" doubt=`},
		"throttled": {errand.Options{Policy: policy.Document{ThrottledRetry: &hasty}}, nil, `of="options, when throttled" doubt=`},
		"handler":   {errand.Options{}, []errand.HandlerOptions{{Policy: hasty}}, `of="kind note" doubt=`},
		"none":      {errand.Options{}, nil, ""},
		"no retry":  {errand.Options{Policy: policy.Policy{}}, nil, ""},
		"default":   {errand.Options{Policy: policy.Default()}, []errand.HandlerOptions{{Policy: policy.Default()}}, ""},
		"forever":   {errand.Options{Policy: policy.Forever(24 * time.Hour)}, nil, ""},
	} {
		for how, open := range map[string]func(o *errand.Options) (*errand.Queue, error){
			"Open": func(o *errand.Options) (*errand.Queue, error) {
				return errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), o)
			},
			"New": func(o *errand.Options) (*errand.Queue, error) {
				return errand.New(t.Context(), storagetest.NewMemory().Open(), o)
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				var log bytes.Buffer
				c.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
				q, err := open(&c.options)
				if err != nil {
					t.Fatal(err)
				}
				handle(q, c.handler...)
				if err := q.Close(); err != nil {
					t.Error(err)
				}
				lines := slices.Collect(strings.Lines(log.String()))
				if want := len(hasty.Lint()); c.want != "" && len(lines) != want {
					t.Errorf("%d lines, want %d: %q", len(lines), want, lines)
				}
				for _, line := range lines {
					if c.want == "" || !strings.Contains(line, "level=WARN") || !strings.Contains(line, c.want) {
						t.Errorf("the log says %q, want lines with %q", line, c.want)
					}
				}
			})
		}
	}
}
