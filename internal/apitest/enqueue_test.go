package apitest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

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
		{"args", `"apitest.value"`, "must marshal to JSON: json: unsupported type: func()"}}},
	{"args with a cycle", value{cycle()}, nil, []fault{{"args", `"apitest.value"`, "must marshal to JSON: json: unsupported value"}}},
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
	{"windows too short", note{}, &errand.JobOptions{StartWithin: time.Second - 1, FinishWithin: -time.Hour}, []fault{
		{"start_within", "999.999999ms", "must be zero or between 1s and 876000h (100 years)"},
		{"finish_within", "-1h0m0s", "must be zero or between 1s and 876000h (100 years)"}}},
	{"windows too long", note{}, &errand.JobOptions{StartWithin: math.MaxInt64, FinishWithin: 876000*time.Hour + 1}, []fault{
		{"start_within", "2562047h47m16.854775807s", "must be zero or between"}, {"finish_within", "876000h0m0.000000001s", "must be zero or between"}}},
	{"unknown end of windows", note{}, &errand.JobOptions{StartWithin: time.Second, FinishWithin: 876000 * time.Hour, OnExpire: errand.Done}, []fault{
		{"on_expire", `"done"`, "must be empty, expired or dead"}}},
	{"timeout too short to keep", note{}, &errand.JobOptions{Timeout: time.Nanosecond}, []fault{{"timeout", "1ns", "must be zero or at least 1ms"}}},
	{"invalid policy", note{}, &errand.JobOptions{Policy: &policy.Policy{Retries: -1, MinDelay: 2, MaxDelay: 1}}, []fault{
		{"policy.max_delay", "1ns", "must be at least 2ns"}, {"policy.retries", "-1", "must be between 0 and 1000000"}}},
	{"empty unique key", note{}, &errand.JobOptions{Unique: &errand.Unique{}}, []fault{{"unique.key", `""`, "must not be empty"}}},
	{"unique key too long", note{}, &errand.JobOptions{Unique: &errand.Unique{Key: strings.Repeat("u", 1025)}}, []fault{
		{"unique.key", `"` + strings.Repeat("u", 100) + `"... (1025 bytes)`, "must be at most 1024 bytes"}}},
	{"unique key that is not text", note{}, &errand.JobOptions{Unique: &errand.Unique{Key: "a\x00"}}, []fault{
		{"unique.key", `"a\x00"`, "must be valid UTF-8 without NUL"}}},
	{"raw args without a kind", errand.RawArgs{JSON: []byte(`{}`)}, nil, []fault{{"kind", `""`, "must match"}}},
	{"raw args that are not JSON", errand.RawArgs{OfKind: "raw", JSON: []byte(`{"n":`)}, nil, []fault{
		{"args", `"errand.RawArgs"`, "must marshal to JSON: json: error calling MarshalJSON for type errand.RawArgs: unexpected end of JSON input"}}},
	{"raw args of two values", errand.RawArgs{OfKind: "raw", JSON: []byte(`1 2`)}, nil, []fault{{"args", `"errand.RawArgs"`, "must marshal to JSON"}}},
	{"raw args that are not UTF-8", errand.RawArgs{OfKind: "raw", JSON: []byte("\"\xff\"")}, nil, []fault{
		{"args", `"errand.RawArgs"`, "must marshal to valid UTF-8"}}},
	{"raw args over the limit", &errand.RawArgs{OfKind: "raw", JSON: []byte(`"` + strings.Repeat("a", 256<<10) + `"`)}, nil, []fault{
		{"args", "262146", "must be at most 262144 bytes of JSON"}}},
	{"raw args nested too deep", errand.RawArgs{OfKind: "raw", JSON: []byte(strings.Repeat(`{"[":[`, 500) + `[]` + strings.Repeat(`]}`, 500))}, nil, []fault{
		{"args", `"nested 1001 deep"`, "must be nested at most 1000 deep"}}},
	{"nil pointer to raw args", (*errand.RawArgs)(nil), nil, []fault{{"args", "nil", "must not be nil"}}},
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
	if n, lines := len(fields(err)), strings.Count(err.Error(), "\n"); n != 1000 || lines != 100 {
		t.Errorf("%d faults, %d listed: want 1000, 100", n, lines)
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

// blob is a job with large args.
type blob struct{ Data string }

func (blob) Kind() string { return "blob" }

func TestEnqueueMany_TooManyBytes(t *testing.T) {
	q := openQueue(t, nil)
	jobs := make([]errand.NewJob, 300)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: blob{strings.Repeat("x", 250<<10)}}
	}
	_, err := q.EnqueueMany(t.Context(), jobs)
	if !errors.Is(err, errand.ErrInvalid) || !strings.Contains(err.Error(), `bytes of args and headers": must be at most 67108864`) {
		t.Errorf("error %v: want one that names the limit", err)
	}
	if _, err := q.EnqueueMany(t.Context(), jobs[:100]); err != nil {
		t.Error(err)
	}
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
