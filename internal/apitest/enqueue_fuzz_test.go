package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage/sqlite"
)

// parcel is args of all that JSON can carry.
type parcel struct {
	Text  string            `json:"text"`
	Long  []string          `json:"long,omitempty"`
	Int   int64             `json:"int"`
	Float float64           `json:"float"`
	Bytes []byte            `json:"bytes"`
	Named map[string]string `json:"named"`
	Any   *parcel           `json:"any,omitempty"`
}

func (parcel) Kind() string { return "parcel" }

// rawArgs are args that write themselves, and need not be JSON.
type rawArgs string

func (rawArgs) Kind() string                    { return "raw" }
func (r rawArgs) MarshalJSON() ([]byte, error)  { return []byte(r), nil }
func (r *rawArgs) UnmarshalJSON(b []byte) error { *r = rawArgs(b); return nil }

const (
	fuzzMaxArgs    = 8 << 10
	fuzzMaxHeaders = 1 << 10
)

// received is what a handler got.
type received struct {
	id      errand.ID
	args    any
	headers map[string]string
}

// FuzzArgs enqueues args and headers: what goes in is what a handler gets and a
// look shows, or it is refused as the documentation says.
func FuzzArgs(f *testing.F) {
	quiet := slog.New(slog.DiscardHandler)
	s, err := sqlite.Open(filepath.Join(f.TempDir(), "jobs.db"), &sqlite.Options{Durability: sqlite.Relaxed, SingleProcess: true, Ballast: -1, Logger: quiet})
	if err != nil {
		f.Fatal(err)
	}
	q, err := errand.New(context.Background(), s, &errand.Options{
		MaxArgs: fuzzMaxArgs, MaxHeaders: fuzzMaxHeaders, Logger: quiet,
	})
	if err != nil {
		f.Fatal(err)
	}
	got := make(chan received)
	w := errand.NewWorker(q, &errand.WorkerOptions{Concurrency: 1})
	errand.Handle(w, func(_ context.Context, j *errand.Job[parcel]) error {
		got <- received{j.ID, j.Args, j.Headers}
		return nil
	})
	errand.Handle(w, func(_ context.Context, j *errand.Job[rawArgs]) error {
		got <- received{j.ID, j.Args, j.Headers}
		return nil
	})
	ended := make(chan error)
	go func() { ended <- w.Run(context.Background()) }()
	f.Cleanup(func() {
		_ = w.Shutdown(context.Background())
		if err := errors.Join(<-ended, q.Close()); err != nil {
			f.Error(err)
		}
	})
	f.Add("hello", int64(1), 1.5, []byte("bytes"), uint16(1), "key", "value", `{"a": [1, null]}`, "")
	f.Add("\xff", int64(math.MinInt64), math.NaN(), []byte(nil), uint16(0), "", "\x00", `{`, "0197a0a5-1c80-7fff-bfff-ffffffffffff")
	f.Add("\ufffd<&>\u2028", int64(math.MaxInt64), math.Inf(1), []byte{0}, uint16(500), "\u00e9", "\xed\xa0\x80", `"\ufffd\ud800"`, "x")
	f.Add("a\x00b", int64(0), math.Copysign(0, -1), []byte{}, uint16(3000), "k", strings.Repeat("v", 1025), "\"\xff\"", "")
	f.Fuzz(func(t *testing.T, text string, n int64, x float64, b []byte, times uint16, name, value, raw, id string) {
		args := parcel{Text: text, Int: n, Float: x, Bytes: b, Named: map[string]string{name: text}}
		args.Any = &parcel{Named: map[string]string{}}
		for range times % 4096 {
			args.Long = append(args.Long, text)
		}
		headers := map[string]string{name: value}
		texts := utf8.ValidString(text) && utf8.ValidString(name)
		ok := texts && !math.IsNaN(x) && !math.IsInf(x, 0) && name != "" && utf8.ValidString(value)
		fits := ok && size(t, args) <= fuzzMaxArgs && size(t, headers) <= fuzzMaxHeaders
		if r, sent := roundTrip(t, q, got, args, headers, fits); sent && (!reflect.DeepEqual(r.args, args) || !maps.Equal(r.headers, headers)) {
			t.Errorf("%+v %v became %+v %v", args, headers, r.args, r.headers)
		}
		valid := json.Valid([]byte(raw)) && utf8.ValidString(raw)
		if r, sent := roundTrip(t, q, got, rawArgs(raw), nil, valid && size(t, rawArgs(raw)) <= fuzzMaxArgs); sent {
			var before, after any
			if err := errors.Join(json.Unmarshal([]byte(raw), &before), json.Unmarshal([]byte(r.args.(rawArgs)), &after)); err != nil && !tooLarge(err) || !reflect.DeepEqual(before, after) {
				t.Errorf("%s became %s, %v", raw, r.args, err)
			}
		}
		if parsed, err := errand.ParseID(id); err != nil {
			var field *errand.FieldError
			if !errors.As(err, &field) || field.Field != "id" || !parsed.IsZero() {
				t.Errorf("%q: %v, %v", id, parsed, err)
			}
		} else if parsed.String() != strings.ToLower(id) {
			t.Errorf("%q was read as %v", id, parsed)
		} else if _, err := q.Job(context.Background(), parsed); !errors.Is(err, errand.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", id, err)
		}
	})
}

// tooLarge reports whether JSON is valid, and a number in it fits no float64.
func tooLarge(err error) bool {
	var e *json.UnmarshalTypeError
	return errors.As(err, &e)
}

func size(t *testing.T, v any) int {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// roundTrip enqueues a job, and returns what its handler got.
func roundTrip(t *testing.T, q *errand.Queue, got <-chan received, args errand.Args, headers map[string]string, fits bool) (r received, sent bool) {
	t.Helper()
	e, err := q.Enqueue(context.Background(), args, &errand.JobOptions{Headers: headers})
	if err != nil {
		var field *errand.FieldError
		if fits || !errors.As(err, &field) || !errors.Is(err, errand.ErrInvalid) || !e.ID.IsZero() {
			t.Errorf("%+v %v: %v", args, headers, err)
		}
		return r, false
	}
	if !fits {
		t.Errorf("%+v %v was taken", args, headers)
	}
	r = <-got
	info, err := q.Job(context.Background(), e.ID)
	if err != nil || r.id != e.ID || !maps.Equal(info.Headers, headers) {
		t.Errorf("job %v of %v has headers %v, want %v: %v", r.id, e.ID, info.Headers, headers, err)
	}
	if want, _ := json.Marshal(args); string(info.Args) != string(want) {
		t.Errorf("job %v has args %s, want %s", e.ID, info.Args, want)
	}
	return r, true
}
