package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/storagetest"
)

// fault is what an error must say about one field.
type fault struct{ field, value, limit string }

// wantFaults checks that err is made of these faults and no others, names each
// with field, value and limit, and is an ErrInvalid.
func wantFaults(t *testing.T, err error, want ...fault) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("%v: want an ErrInvalid", err)
	}
	if !reflect.DeepEqual(fields(err), names(want)) {
		t.Errorf("faults of fields %q: want %q\n%v", fields(err), names(want), err)
	}
	for _, w := range want {
		if text := fmt.Sprintf("errand: %s %s: %s", w.field, w.value, w.limit); !strings.Contains(err.Error(), text) {
			t.Errorf("%v:\nwant it to say %q", err, text)
		}
	}
}

func names(faults []fault) (names []string) {
	for _, f := range faults {
		names = append(names, f.field)
	}
	return names
}

// fields returns the names of all fields that err is about.
func fields(err error) []string {
	if f, ok := err.(*errand.FieldError); ok { //nolint:errorlint // each error of the tree by itself
		return []string{f.Field}
	}
	var all []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, fields(e)...)
		}
	}
	return all
}

// awkward is a Delivery from elsewhere.
type awkward struct{}

func (awkward) Delivery() policy.Topic { return policy.Topic{} }
func (awkward) Validate() error        { return errors.New("out of order") }

func TestPolicy_AllFormsAreValidated(t *testing.T) {
	bad := policy.Document{
		Retry:    &policy.Policy{Retries: -1},
		Throttle: &policy.Throttle{MaxReceivesPerSecond: -2},
		Request:  &policy.Request{ContentType: "image/*"},
	}
	of := func(prefix string) []fault {
		return []fault{
			{prefix + "retry.retries", "-1", "must be between 0 and 1000000"},
			{prefix + "throttle.max_receives_per_second", "-2", "must be between 0 and 2147483647"},
			{prefix + "request.content_type", `"image/*"`, "must be a media type"},
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
	wantFaults(t, err, fault{"store", "nil", ""}, fault{"policy", `"apitest.awkward"`, "must be valid: out of order"},
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

//errand:shows doubtful policies | | a policy that is valid but probably a mistake, such as five retries at once, is logged when the queue is opened or the handler registered
func TestPolicy_DoubtsAreLogged(t *testing.T) {
	hasty := policy.Policy{Retries: 5, NoDelayRetries: 5}
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

func TestBudget_refuses(t *testing.T) {
	bad := &policy.BudgetOptions{Capacity: -1, RetryCost: math.NaN(), TimeoutCost: math.Inf(1), FirstRefund: math.Inf(-1), RetriesPerSecond: -1}
	_, err := errand.New(t.Context(), nil, &errand.Options{Queues: map[string]errand.QueueOptions{"q": {Budget: bad}}})
	field := func(name string) string { return `queues["q"].budget.` + name }
	wantFaults(t, err, fault{"store", "nil", ""}, fault{field("capacity"), "-1", "must be at least 0"},
		fault{field("retry_cost"), "NaN", "must be"}, fault{field("timeout_cost"), "+Inf", "must be"},
		fault{field("first_refund"), "-Inf", "must be"}, fault{field("retries_per_second"), "-1", "must be at least 0"})

	q, _ := memoryQueue(t, errand.Options{})
	defer func() {
		if got, _ := recover().(string); !strings.Contains(got, "budget.capacity -1: must be") {
			t.Errorf("panic with %q", got)
		}
		if got := q.Budgets(); got != nil {
			t.Errorf("budgets %+v", got)
		}
	}()
	errand.Handle(errand.NewWorker(q, nil), func(context.Context, *errand.Job[note]) error { return nil },
		errand.HandlerOptions{Budget: bad})
}
