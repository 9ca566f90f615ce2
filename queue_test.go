package errand_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage/storagetest"
)

// note is the kind most tests enqueue.
type note struct {
	Text string
	N    int
}

func (note) Kind() string { return "note" }

// ofKind is a job of any kind.
type ofKind string

func (k ofKind) Kind() string { return string(k) }

// longest has the longest kind.
type longest struct{}

func (longest) Kind() string { return strings.Repeat("x", 128) }

// any JSON value, or none that is.
type value struct{ V any }

func (value) Kind() string { return "value" }

// byPointer has no kind without a value behind the pointer.
type byPointer struct{ kind string }

func (p *byPointer) Kind() string { return p.kind }

func openQueue(t *testing.T, o *errand.Options) *errand.Queue {
	t.Helper()
	q, err := errand.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// enqueue adds a job that must be fine.
func enqueue(t *testing.T, q *errand.Queue, args errand.Args, o *errand.JobOptions) errand.ID {
	t.Helper()
	e, err := q.Enqueue(t.Context(), args, o)
	if err != nil || e.Duplicate {
		t.Fatalf("Enqueue gave %v, %v", e, err)
	}
	return e.ID
}

func lookUp(t *testing.T, q *errand.Queue, id errand.ID) errand.JobInfo {
	t.Helper()
	j, err := q.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// wantNothing checks that the queue has no job.
func wantNothing(t *testing.T, q *errand.Queue) {
	t.Helper()
	counts, err := q.Counts(t.Context())
	if err != nil || len(counts) > 0 {
		t.Errorf("Counts gave %v, %v: want none", counts, err)
	}
}

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

// fields gives the names of all fields that err is about.
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

var badJobs = []struct {
	name string
	args errand.Args
	o    *errand.JobOptions
	want []fault
}{
	{"empty kind", ofKind(""), nil, []fault{{"kind", `""`, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}"}}},
	{"kind with a space", ofKind("send mail"), nil, []fault{{"kind", `"send mail"`, "must match"}}},
	{"kind with a bad start", ofKind(".x"), nil, []fault{{"kind", `".x"`, "must match"}}},
	{"kind not ASCII", ofKind("naïve"), nil, []fault{{"kind", `"naïve"`, "must match"}}},
	{"kind too long", ofKind(strings.Repeat("k", 129)), nil, []fault{
		{"kind", `"` + strings.Repeat("k", 100) + `"... (129 bytes)`, "must match"}}},
	{"malformed queue", note{}, &errand.JobOptions{Queue: "-a"}, []fault{{"queue", `"-a"`, "must match"}}},
	{"queue with a line break", note{}, &errand.JobOptions{Queue: "a\n"}, []fault{{"queue", `"a\n"`, "must match"}}},
	{"priority too high", note{}, &errand.JobOptions{Priority: 101}, []fault{{"priority", "101", "must be between -100 and 100"}}},
	{"priority too low", note{}, &errand.JobOptions{Priority: -101}, []fault{{"priority", "-101", "must be between -100 and 100"}}},
	{"nil args", nil, nil, []fault{{"args", "nil", "must not be nil"}}},
	{"nil pointer", (*byPointer)(nil), nil, []fault{{"args", "nil", "must not be nil"}}},
	{"nil pointer to a value type", (*note)(nil), nil, []fault{{"args", "nil", "must not be nil"}}},
	{"args that do not marshal", value{func() {}}, nil, []fault{
		{"args", `"errand_test.value"`, "must marshal to JSON: json: unsupported type: func()"}}},
	{"args with a cycle", value{cycle()}, nil, []fault{{"args", `"errand_test.value"`, "must marshal to JSON: json: unsupported value"}}},
	{"args that are not UTF-8", note{Text: "a\xffb"}, nil, []fault{{"args.Text", `"a\xffb"`, "must be valid UTF-8"}}},
	{"args that are not UTF-8 deep inside", value{map[string][]*note{"k": {{Text: "ok"}, {Text: "\xff"}}}}, nil, []fault{
		{"args.V[k][1].Text", `"\xff"`, "must be valid UTF-8"}}},
	{"args over the limit", note{Text: strings.Repeat("a", 256<<10)}, nil, []fault{{"args", "262161", "must be at most 262144 bytes of JSON"}}},
	{"headers over the limit", note{}, &errand.JobOptions{Headers: map[string]string{"k": strings.Repeat("a", 16<<10)}}, []fault{
		{"headers", "16392", "must be at most 16384 bytes of JSON"}}},
	{"header without a name", note{}, &errand.JobOptions{Headers: map[string]string{"": "v"}}, []fault{{"headers", `""`, "must have names"}}},
	{"header that is not UTF-8", note{}, &errand.JobOptions{Headers: map[string]string{"k": "\xff"}}, []fault{
		{`headers["k"]`, `"\xff"`, "must be valid UTF-8"}}},
	{"DueAt and Delay", note{}, &errand.JobOptions{DueAt: time.Unix(1e9, 0), Delay: time.Second}, []fault{
		{"delay", "1s", "must be zero if due_at is set"}}},
	{"DueAt before time", note{}, &errand.JobOptions{DueAt: time.Unix(-1, 0).UTC()}, []fault{
		{"due_at", "1969-12-31T23:59:59Z", "must be in the years 1970 to 9999"}}},
	{"DueAt after all", note{}, &errand.JobOptions{DueAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, []fault{
		{"due_at", "10000-01-01T00:00:00Z", "must be in the years 1970 to 9999"}}},
	{"negative delay", note{}, &errand.JobOptions{Delay: -time.Second}, []fault{{"delay", "-1s", "must not be negative"}}},
	{"negative timeout", note{}, &errand.JobOptions{Timeout: -time.Second}, []fault{{"timeout", "-1s", "must be zero or at least 1ms"}}},
	{"timeout too short to keep", note{}, &errand.JobOptions{Timeout: time.Nanosecond}, []fault{{"timeout", "1ns", "must be zero or at least 1ms"}}},
	{"invalid policy", note{}, &errand.JobOptions{Policy: &policy.Policy{Retries: -1, MinDelay: 2, MaxDelay: 1}}, []fault{
		{"policy.max_delay", "1ns", "must be at least 2ns"}, {"policy.retries", "-1", "must be between 0 and 1000000"}}},
	{"empty unique key", note{}, &errand.JobOptions{Unique: &errand.Unique{}}, []fault{{"unique.key", `""`, "must not be empty"}}},
	{"unique key too long", note{}, &errand.JobOptions{Unique: &errand.Unique{Key: strings.Repeat("u", 1025)}}, []fault{
		{"unique.key", `"` + strings.Repeat("u", 100) + `"... (1025 bytes)`, "must be at most 1024 bytes"}}},
	{"unique key that is not text", note{}, &errand.JobOptions{Unique: &errand.Unique{Key: "a\x00"}}, []fault{
		{"unique.key", `"a\x00"`, "must be valid UTF-8 without NUL"}}},
	{"everything at once", ofKind(""), &errand.JobOptions{Queue: " ", Priority: 500, Delay: -1}, []fault{
		{"kind", `""`, "must match"}, {"queue", `" "`, "must match"}, {"priority", "500", "must be"}, {"delay", "-1ns", "must"}}},
}

func cycle() any {
	m := map[string]any{}
	m["m"] = m
	return m
}

func TestEnqueue_refusesBadInput(t *testing.T) {
	q := openQueue(t, nil)
	for _, c := range badJobs {
		t.Run(c.name, func(t *testing.T) {
			e, err := q.Enqueue(t.Context(), c.args, c.o)
			wantFaults(t, err, c.want...)
			if e != (errand.Enqueued{}) {
				t.Errorf("Enqueue gave %v with its error", e)
			}
			wantNothing(t, q)

			// The same among good ones: all or nothing, and the place is named.
			_, err = q.EnqueueMany(t.Context(), []errand.NewJob{{Args: note{}}, {Args: c.args, Options: c.o}, {Args: note{}}})
			placed := make([]fault, len(c.want))
			for i, f := range c.want {
				placed[i] = fault{"jobs[1]." + f.field, f.value, f.limit}
			}
			wantFaults(t, err, placed...)
			wantNothing(t, q)

			err = q.Tx(t.Context(), func(tx *sql.Tx) error {
				_, err := q.EnqueueTx(t.Context(), tx, c.args, c.o)
				wantFaults(t, err, c.want...)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			wantNothing(t, q)
		})
	}
}

func TestEnqueue_takesWhatIsJustInside(t *testing.T) {
	q := openQueue(t, nil)
	long := strings.Repeat("x", 128)
	id := enqueue(t, q, longest{}, &errand.JobOptions{
		Queue: "A.b_c:d/e-1", Priority: -100, DueAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		Timeout: time.Millisecond, Unique: &errand.Unique{Key: strings.Repeat("u", 1024)},
		Headers: map[string]string{"h": strings.Repeat("v", 16<<10-8)},
	})
	j := lookUp(t, q, id)
	if j.Kind != long || j.Queue != "A.b_c:d/e-1" || j.Priority != -100 || len(j.Headers["h"]) != 16<<10-8 ||
		j.Timeout != time.Millisecond || len(j.Unique) != 1024 || j.State != errand.Scheduled {
		t.Errorf("Job gave %+v", j)
	}
	enqueue(t, q, note{Text: strings.Repeat("a", 256<<10-17)}, nil)
	// U+FFFD itself is text like any other.
	id = enqueue(t, q, note{Text: "\ufffd"}, nil)
	if got := string(lookUp(t, q, id).Args); got != `{"Text":"`+"\ufffd"+`","N":0}` {
		t.Errorf("args %s", got)
	}
}

func TestEnqueue_limitsAreOptions(t *testing.T) {
	q := openQueue(t, &errand.Options{MaxArgs: 20, MaxHeaders: 10})
	_, err := q.Enqueue(t.Context(), note{Text: "long"}, &errand.JobOptions{Headers: map[string]string{"k": "vvvv"}})
	wantFaults(t, err, fault{"args", "21", "must be at most 20 bytes"}, fault{"headers", "12", "must be at most 10 bytes"})
	wantNothing(t, q)
}

func TestEnqueueMany_bounds(t *testing.T) {
	q := openQueue(t, nil)
	if e, err := q.EnqueueMany(t.Context(), nil); e != nil || err != nil {
		t.Errorf("no jobs: %v, %v", e, err)
	}
	_, err := q.EnqueueMany(t.Context(), make([]errand.NewJob, 10_001))
	wantFaults(t, err, fault{"jobs", "10001", "must be at most 10000 in one call"})
	// A fault in each of many does not make an error of a million bytes.
	_, err = q.EnqueueMany(t.Context(), make([]errand.NewJob, 1000))
	if n := len(fields(err)); n != 100 {
		t.Errorf("%d faults listed: want 100", n)
	}
	if !strings.HasSuffix(err.Error(), "errand: and 900 more faults") || !errors.Is(err, errand.ErrInvalid) {
		t.Errorf("error ends %q", err.Error()[len(err.Error())-40:])
	}
	wantNothing(t, q)
}

func TestEnqueueMany_answersInOrder(t *testing.T) {
	q := openQueue(t, nil)
	unique := &errand.JobOptions{Unique: &errand.Unique{Key: "k"}}
	got, err := q.EnqueueMany(t.Context(), []errand.NewJob{
		{Args: note{N: 1}, Options: unique}, {Args: note{N: 2}}, {Args: note{N: 3}, Options: unique},
		{Args: value{4}, Options: unique},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0].Duplicate || got[1].Duplicate || !got[2].Duplicate || got[2].ID != got[0].ID || got[3].Duplicate {
		t.Errorf("EnqueueMany gave %+v: want the third a duplicate of the first, and the fourth, of another kind, not", got)
	}
	if j := lookUp(t, q, got[1].ID); string(j.Args) != `{"Text":"","N":2}` {
		t.Errorf("second job has args %s", j.Args)
	}
}

func TestQueue_Job(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	q := openQueue(t, &errand.Options{Clock: func() time.Time { return now }})
	own := policy.Policy{Retries: 1, MinDelay: time.Second, MaxDelay: time.Second}
	id := enqueue(t, q, note{"hi", 1}, &errand.JobOptions{
		Queue: "mail", Priority: 7, Delay: time.Minute, Policy: &own, Timeout: time.Hour,
		Unique: &errand.Unique{Key: "a b"}, Headers: map[string]string{"trace": "x"},
	})
	want := errand.JobInfo{
		ID: id, Queue: "mail", Kind: "note", State: errand.Scheduled, Priority: 7,
		CreatedAt: now, DueAt: now.Add(time.Minute), Timeout: time.Hour, Unique: "a b", Policy: &policy.Document{Retry: &own},
		Args: []byte(`{"Text":"hi","N":1}`), Headers: map[string]string{"trace": "x"},
	}
	if got := lookUp(t, q, id); !reflect.DeepEqual(got, want) {
		t.Errorf("Job gave\n%+v, want\n%+v", got, want)
	}
	if _, err := q.Job(t.Context(), errand.ID{}); !errors.Is(err, errand.ErrNotFound) {
		t.Errorf("the zero ID: %v", err)
	}
	if back, err := errand.ParseID(id.String()); back != id || err != nil {
		t.Errorf("ParseID gave %v, %v", back, err)
	}
	_, err := errand.ParseID("0190")
	wantFaults(t, err, fault{"id", `"0190"`, "must have the form of a UUID"})
}

func TestQueue_Cancel(t *testing.T) {
	for _, c := range []struct {
		retention time.Duration
		kept      bool
	}{{0, true}, {time.Hour, true}, {-time.Hour, false}} {
		q := openQueue(t, &errand.Options{Retention: c.retention})
		id := enqueue(t, q, note{}, nil)
		if s, err := q.Cancel(t.Context(), id); s != errand.Cancelled || err != nil {
			t.Errorf("Cancel gave %v, %v", s, err)
		}
		if _, err := q.Job(t.Context(), id); (err == nil) != c.kept {
			t.Errorf("retention %v: Job gave %v", c.retention, err)
		}
		if _, err := q.Cancel(t.Context(), errand.ID{1}); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("Cancel of nothing: %v", err)
		}
	}
}

func TestQueue_Pause(t *testing.T) {
	q := openQueue(t, nil)
	for _, name := range []string{"b", "a", "a"} {
		if err := q.Pause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := q.Paused(t.Context()); !reflect.DeepEqual(got, []string{"a", "b"}) || err != nil {
		t.Errorf("Paused gave %v, %v", got, err)
	}
	if err := q.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := q.Paused(t.Context()); !reflect.DeepEqual(got, []string{"b"}) || err != nil {
		t.Errorf("Paused gave %v, %v", got, err)
	}
	wantFaults(t, q.Pause(t.Context(), ""), fault{"queue", `""`, "must match"})
	wantFaults(t, q.Resume(t.Context(), "a b"), fault{"queue", `"a b"`, "must match"})
}

func TestQueue_closed(t *testing.T) {
	q := openQueue(t, nil)
	id := enqueue(t, q, note{}, nil)
	for range 2 {
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	dead := q.DeadLetters()
	for name, call := range map[string]func(context.Context) error{
		"Enqueue": func(ctx context.Context) error { _, err := q.Enqueue(ctx, note{}, nil); return err },
		"EnqueueMany": func(ctx context.Context) error {
			_, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}})
			return err
		},
		"Tx":      func(ctx context.Context) error { return q.Tx(ctx, func(*sql.Tx) error { return nil }) },
		"Job":     func(ctx context.Context) error { _, err := q.Job(ctx, id); return err },
		"Cancel":  func(ctx context.Context) error { _, err := q.Cancel(ctx, id); return err },
		"Pause":   func(ctx context.Context) error { return q.Pause(ctx, "a") },
		"Paused":  func(ctx context.Context) error { _, err := q.Paused(ctx); return err },
		"Counts":  func(ctx context.Context) error { _, err := q.Counts(ctx); return err },
		"List":    func(ctx context.Context) error { _, err := dead.List(ctx, errand.DeadFilter{}, nil); return err },
		"Get":     func(ctx context.Context) error { _, err := dead.Get(ctx, id); return err },
		"Redrive": func(ctx context.Context) error { _, err := dead.Redrive(ctx, errand.DeadFilter{}, nil); return err },
		"Purge":   func(ctx context.Context) error { _, err := dead.Purge(ctx, errand.DeadFilter{All: true}); return err },
	} {
		if err := call(t.Context()); !errors.Is(err, errand.ErrClosed) {
			t.Errorf("%s after Close: %v: want ErrClosed", name, err)
		}
	}
}

func TestQueue_cancelledContext(t *testing.T) {
	q := openQueue(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Enqueue(ctx, note{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Enqueue: %v", err)
	}
	if _, err := q.EnqueueMany(ctx, []errand.NewJob{{Args: note{}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("EnqueueMany: %v", err)
	}
	if err := q.Tx(ctx, func(*sql.Tx) error { t.Error("fn was called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Tx: %v", err)
	}
	path := filepath.Join(t.TempDir(), "new.db")
	if _, err := errand.Open(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open left a file: %v", err)
	}
	if _, err := errand.New(ctx, storagetest.NewMemory().Open(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("New: %v", err)
	}
	wantNothing(t, q)
}
