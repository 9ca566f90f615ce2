package apitest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// withDefaults are args whose kind has the defaults that their value says.
type withDefaults struct {
	Customer string
	defaults func() errand.JobOptions
}

func (withDefaults) Kind() string { return "with_defaults" }

func (w withDefaults) JobDefaults() errand.JobOptions {
	if w.defaults != nil {
		return w.defaults()
	}
	return errand.JobOptions{
		Queue: "mail", Priority: 7, Delay: time.Hour, Policy: policy.Policy{Retries: 3, NoDelayRetries: 3}, Timeout: time.Minute,
		StartWithin: 2 * time.Hour, FinishWithin: 3 * time.Hour, OnExpire: errand.Dead, Group: w.Customer,
		Unique: &errand.Unique{Key: "key of " + w.Customer}, Headers: map[string]string{"from": "kind"}, Tags: []string{"kind"},
		Origin: errand.Origin{Device: "kind", ID: "1"},
	}
}

// Each field that a call leaves zero is that of the kind, each that it sets is its own.
func TestEnqueue_DefaultsOfAKind(t *testing.T) {
	seen := map[string]string{}
	q := openQueue(t, &errand.Options{Logger: quiet, Middleware: []errand.Middleware{func(next errand.HandlerFunc) errand.HandlerFunc {
		return func(ctx context.Context, j *errand.Job[errand.RawArgs]) error {
			seen[string(j.Args.JSON)] = j.Queue + " " + j.Headers["from"]
			return next(ctx, j)
		}
	}}})
	enqueues := map[string]func(args errand.Args, o *errand.JobOptions) errand.ID{
		"Enqueue": func(args errand.Args, o *errand.JobOptions) errand.ID { return enqueue(t, q, args, o) },
		"EnqueueMany": func(args errand.Args, o *errand.JobOptions) errand.ID {
			jobs := []errand.NewJob{{Args: note{}}, {Args: args, Options: o}}
			e := must(q.EnqueueMany(t.Context(), jobs))
			if jobs[1].Options != o {
				t.Error("EnqueueMany has changed the jobs of its caller")
			}
			return e[1].ID
		},
		"EnqueueTx": func(args errand.Args, o *errand.JobOptions) (id errand.ID) {
			check(q.Tx(t.Context(), func(tx *sql.Tx) error {
				e, err := q.EnqueueTx(t.Context(), tx, args, o)
				id = e.ID
				return err
			}))
			return id
		},
		"a pointer": func(args errand.Args, o *errand.JobOptions) errand.ID {
			w := args.(withDefaults)
			return enqueue(t, q, &w, o)
		},
	}
	for name, add := range enqueues {
		for _, o := range []*errand.JobOptions{nil, {}} {
			customer := fmt.Sprint(name, o == nil)
			j := lookUp(t, q, add(withDefaults{Customer: customer}, o))
			if j.Queue != "mail" || j.Priority != 7 || j.Timeout != time.Minute || j.Group != customer || j.State != errand.Scheduled ||
				j.StartBy.IsZero() || j.Deadline.IsZero() || j.Unique != "key of "+customer || j.Headers["from"] != "kind" || j.Tags[0] != "kind" ||
				j.Policy == nil || j.Policy.Retry.Retries != 3 || j.Origin.Device != "kind" {
				t.Errorf("%s: %+v", name, j)
			}
			if got := seen[fmt.Sprintf(`{"Customer":%q}`, customer)]; got != "mail kind" {
				t.Errorf("%s: the middleware saw %q", name, got)
			}
		}
		own := &errand.JobOptions{
			Queue: "default", Priority: -1, DueAt: time.Now().Add(-time.Hour), Policy: policy.Policy{}, Timeout: time.Second, StartWithin: 24 * time.Hour,
			FinishWithin: 25 * time.Hour, OnExpire: errand.Expired, Group: "own " + name, Unique: &errand.Unique{Key: "own " + name},
			Headers: map[string]string{"own": name}, Tags: []string{}, Origin: errand.Origin{Device: "own", ID: "2"},
		}
		before := *own
		j := lookUp(t, q, add(withDefaults{Customer: "own " + name}, own))
		if j.Queue != "default" || j.Priority != -1 || j.Timeout != time.Second || j.Group != "own "+name || j.State != errand.Ready ||
			time.Until(j.StartBy) < 22*time.Hour || time.Until(j.Deadline) < 23*time.Hour || j.Unique != "own "+name ||
			!reflect.DeepEqual(j.Headers, own.Headers) || len(j.Tags) != 0 || j.Policy.Retry.Retries != 0 || j.Origin != own.Origin {
			t.Errorf("%s: %+v", name, j)
		}
		if !reflect.DeepEqual(*own, before) {
			t.Errorf("%s has changed the options of its caller", name)
		}
	}
	// What knows only the name of the kind knows no defaults.
	if j := lookUp(t, q, enqueue(t, q, errand.RawArgs{OfKind: "with_defaults"}, nil)); j.Queue != "default" || j.Priority != 0 {
		t.Errorf("RawArgs: %+v", j)
	}
}

// No field of JobOptions is forgotten.
func TestEnqueue_DefaultsOfEachField(t *testing.T) {
	all := reflect.ValueOf(withDefaults{Customer: "c"}.JobDefaults())
	for i := range all.NumField() {
		if name := all.Type().Field(i).Name; all.Field(i).IsZero() && name != "DueAt" {
			t.Errorf("the tests have no default of %s", name)
		}
	}
}

// A merge is found in the defaults of a kind too.
func TestEnqueue_DefaultMerges(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	defaults := func() errand.JobOptions {
		return errand.JobOptions{Unique: &errand.Unique{Key: "k", OnConflict: errand.OnConflict{
			Mode: errand.Replace, Merge: func(old, now errand.Args) (errand.Args, error) {
				return withDefaults{Customer: old.(withDefaults).Customer + now.(withDefaults).Customer}, nil
			},
		}}}
	}
	id := enqueue(t, q, withDefaults{"a", defaults}, nil)
	if e := must(q.Enqueue(t.Context(), withDefaults{"b", defaults}, nil)); !e.Replaced || e.ID != id {
		t.Errorf("%+v", e)
	}
	if got := string(lookUp(t, q, id).Args); got != `{"Customer":"ab"}` {
		t.Errorf("args %s", got)
	}
	_, err := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: withDefaults{"c", defaults}}})
	if err == nil || !hasField(err, `jobs[0].job_defaults["with_defaults"].unique.on_conflict.merge`) {
		t.Error(err)
	}
	own := &errand.JobOptions{Unique: &errand.Unique{Key: "own"}}
	must(q.EnqueueMany(t.Context(), []errand.NewJob{{Args: withDefaults{"d", defaults}, Options: own}}))
}

// The jobs of a schedule have the defaults of their kind, but for when they are due.
func TestSchedule_DefaultsOfAKind(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	s := errand.Schedule{Name: "s", Spec: "@daily", Args: withDefaults{Customer: "ada"}}
	for range 2 {
		check(q.Schedule(t.Context(), s))
	}
	o := must(q.Schedules().Get(t.Context(), "s")).Options
	if o.Queue != "mail" || o.Priority != 7 || o.Delay != 0 || o.Group != "ada" || o.Headers["from"] != "kind" ||
		o.StartWithin == 0 || o.FinishWithin == 0 || o.OnExpire == "" || o.Unique.Key != "key of ada" || len(o.Tags) != 1 {
		t.Errorf("%+v", o)
	}
	s.Args = withDefaults{defaults: func() errand.JobOptions {
		return errand.JobOptions{Unique: &errand.Unique{Key: "k", For: time.Hour}}
	}}
	if err := q.Schedule(t.Context(), s); !hasField(err, `job_defaults["with_defaults"].unique.for`) {
		t.Error(err)
	}
	s.Options = &errand.JobOptions{Unique: &errand.Unique{Key: "k", For: time.Hour}}
	if err := q.Schedule(t.Context(), s); !hasField(err, "options.unique.for") {
		t.Error(err)
	}
}

// Defaults without a queue say nothing about queues.
func TestStrict_DefaultsWithoutQueue(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet, Strict: true, Queues: map[string]errand.QueueOptions{"mail": {}}})
	args := withDefaults{defaults: func() errand.JobOptions { return errand.JobOptions{Priority: 3} }}
	in := &errand.JobOptions{Queue: "mail"}
	if j := lookUp(t, q, enqueue(t, q, args, in)); j.Queue != "mail" || j.Priority != 3 {
		t.Errorf("%+v", j)
	}
	must(q.EnqueueMany(t.Context(), []errand.NewJob{{Args: args, Options: in}}))
	check(q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@daily", Args: args, Options: in}))
	if _, err := q.Enqueue(t.Context(), args, nil); !hasField(err, "queue") {
		t.Errorf("a job in no queue that is listed: %v", err)
	}
}

type defaultsOfPointer struct{}

func (defaultsOfPointer) Kind() string                    { return "of_pointer" }
func (*defaultsOfPointer) JobDefaults() errand.JobOptions { return errand.JobOptions{Queue: "mail"} }

type otherDefaults struct{}

func (otherDefaults) Kind() string                    { return "other" }
func (otherDefaults) JobDefaults() *errand.JobOptions { return nil }

// Defaults that are not valid are refused by their kind, also where the call sets the
// field, and nothing is written.
func TestEnqueue_BadDefaults(t *testing.T) {
	q := openQueue(t, &errand.Options{Logger: quiet})
	of := func(o errand.JobOptions) withDefaults {
		return withDefaults{defaults: func() errand.JobOptions { return o }}
	}
	const kind = `job_defaults["with_defaults"]`
	for _, c := range []struct {
		args errand.Args
		want fault
	}{
		{of(errand.JobOptions{Priority: 101}), fault{kind + ".priority", "101", "must be between -100 and 100"}},
		{of(errand.JobOptions{Queue: "no queue"}), fault{kind + ".queue", `"no queue"`, "must match"}},
		{of(errand.JobOptions{DueAt: time.Unix(1e9, 0), Delay: 1}), fault{kind + ".delay", "1ns", "must be zero if due_at is set"}},
		{of(errand.JobOptions{Policy: policy.Policy{Retries: -1}}), fault{kind + ".policy.retries", "-1", "must be between 0 and 1000000"}},
		{of(errand.JobOptions{Tags: []string{"a b"}}), fault{kind + ".tags[0]", `"a b"`, "must"}},
		{of(errand.JobOptions{Unique: &errand.Unique{}}), fault{kind + ".unique.key", `""`, "must not be empty"}},
		{of(errand.JobOptions{Headers: map[string]string{"": "v"}}), fault{kind + ".headers", `""`, "must have names"}},
		{withDefaults{defaults: func() errand.JobOptions { panic("no customer") }}, fault{kind, `"no customer"`, "must not panic"}},
		{defaultsOfPointer{}, fault{`job_defaults["of_pointer"]`, `"apitest.defaultsOfPointer"`, "must have the method JobDefaults() errand.JobOptions"}},
		{otherDefaults{}, fault{`job_defaults["other"]`, `"apitest.otherDefaults"`, "must have the method JobDefaults() errand.JobOptions"}},
	} {
		own := &errand.JobOptions{Queue: "q", Priority: 1, Group: "g", Tags: []string{"t"}, Policy: policy.Policy{}, Headers: map[string]string{"a": "b"}}
		for _, o := range []*errand.JobOptions{nil, own} {
			_, one := q.Enqueue(t.Context(), c.args, o)
			_, many := q.EnqueueMany(t.Context(), []errand.NewJob{{Args: c.args, Options: o}})
			scheduled := q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@daily", Args: c.args, Options: o})
			for i, err := range []error{one, scheduled, many} {
				want := fmt.Sprintf("errand: %s%s %s: %s", []string{"", "", "jobs[0]."}[i], c.want.field, c.want.value, c.want.limit)
				if !errors.Is(err, errand.ErrInvalid) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want %s", err, want)
				}
			}
		}
	}
	if n := must(q.Counts(t.Context())); len(n) != 0 {
		t.Errorf("jobs were added: %v", n)
	}
	if id := enqueue(t, q, &defaultsOfPointer{}, nil); lookUp(t, q, id).Queue != "mail" {
		t.Error("a pointer has the defaults of its method")
	}
}
