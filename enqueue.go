package errand

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

const (
	minPriority, maxPriority = -100, 100
	maxName                  = 128
	maxUnique                = 1024
	minTimeout               = time.Millisecond
	// maxEnqueue and maxEnqueueBytes bound how long one call holds the writer.
	maxEnqueue      = 10_000
	maxEnqueueBytes = 64 << 20
)

// Enqueue adds a job. When it returns nil the job is durable, see
// [Options].Durability. If the options ask for a unique key that another job
// holds, nothing is added and the answer is a duplicate with that job's ID, which
// is said to be gone if the job was deleted since.
//
// Bad input gives a [FieldError] for each fault, joined, and nothing is
// written.
func (q *Queue) Enqueue(ctx context.Context, args Args, o *JobOptions) (Enqueued, error) {
	return first(q.enqueue(ctx, []NewJob{{args, o}}, only, q.store.Enqueue))
}

// EnqueueTx is [Queue.Enqueue] inside a transaction of the application on the
// queue's file: the job exists if tx commits. Transactions begun by [Queue.Tx]
// are best; for others, workers see the job within 50 ms of the commit, and its
// durability is that of the transaction's connection.
//
// It gives [ErrWrongDatabase] for a transaction on another database.
func (q *Queue) EnqueueTx(ctx context.Context, tx *sql.Tx, args Args, o *JobOptions) (Enqueued, error) {
	if tx == nil {
		return Enqueued{}, &FieldError{Field: "tx", Limit: "must not be nil"}
	}
	s, err := q.txStore()
	if err != nil {
		return Enqueued{}, err
	}
	write := func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
		return s.EnqueueTx(ctx, tx, now, jobs)
	}
	return first(q.enqueue(ctx, []NewJob{{args, o}}, only, write))
}

// ReleaseUnique ends the hold of a unique key of a kind with the life of the job
// that holds it, as if [Unique].Forever had not been set. If that job has ended,
// the key is free at once, and the zero ID is returned; if not, its ID is, and the key is free once it
// has ended. It returns [ErrNotFound] if no job holds the key.
func (q *Queue) ReleaseUnique(ctx context.Context, kind, key string) (ID, error) {
	var f faults
	f.add(checkName("kind", kind))
	checkUnique(&f, "key", key)
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.ReleaseUnique(ctx, uniqueKey(kind, key))
}

// EnqueueMany adds jobs, at most 10,000 with at most 64 MiB of args and headers,
// all or none of them, in one transaction, and answers for each in the same
// order. Duplicates do not count
// as a fault; see [Queue.Enqueue].
func (q *Queue) EnqueueMany(ctx context.Context, jobs []NewJob) ([]Enqueued, error) {
	if len(jobs) == 0 {
		return nil, ctx.Err()
	}
	if len(jobs) > maxEnqueue {
		return nil, &FieldError{Field: "jobs", Value: len(jobs), Limit: fmt.Sprintf("must be at most %d in one call", maxEnqueue)}
	}
	return q.enqueue(ctx, jobs, indexed, q.store.Enqueue)
}

// only and indexed put the place of a job before the names of its fields.
func only(int) string      { return "" }
func indexed(i int) string { return fmt.Sprintf("jobs[%d].", i) }

func first(e []Enqueued, err error) (Enqueued, error) {
	if err != nil {
		return Enqueued{}, err
	}
	return e[0], nil
}

func (q *Queue) enqueue(ctx context.Context, jobs []NewJob, place func(int) string,
	write func(context.Context, time.Time, []storage.NewJob) ([]Enqueued, error),
) ([]Enqueued, error) {
	records := make([]storage.NewJob, len(jobs))
	var f faults
	size := 0
	for i, j := range jobs {
		records[i] = q.newJob(&f, place(i), place(i), j)
		size += len(records[i].Args) + len(records[i].Headers)
	}
	if len(jobs) > 1 && size > maxEnqueueBytes {
		f.field("jobs", fmt.Sprintf("%d bytes of args and headers", size), fmt.Sprintf("must be at most %d in one call", maxEnqueueBytes))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return write(ctx, q.clock.current(ctx), records)
}

// newJob checks a job at the door and puts it into the words of the store. Its
// faults are named after the place of the job and that of its options.
func (q *Queue) newJob(f *faults, place, options string, j NewJob) storage.NewJob {
	o := cmp.Or(j.Options, &JobOptions{})
	r := storage.NewJob{
		Queue: cmp.Or(o.Queue, defaultQueue), Priority: o.Priority, DueAt: o.RunAt, Timeout: o.Timeout,
	}
	if isNil(j.Args) {
		f.field(place+"args", nil, "must not be nil")
	} else {
		r.Kind = f.kind(place, j.Args, &q.types)
		r.Args = f.args(place+"args", j.Args, q.opts.MaxArgs)
	}
	f.add(checkName(options+"queue", r.Queue))
	if o.Priority < minPriority || o.Priority > maxPriority {
		f.field(options+"priority", o.Priority, fmt.Sprintf("must be between %d and %d", minPriority, maxPriority))
	}
	if y := o.RunAt.UTC().Year(); !o.RunAt.IsZero() && (y < 1970 || y > 9999) {
		f.field(options+"run_at", o.RunAt, "must be in the years 1970 to 9999")
	}
	switch {
	case o.Delay < 0:
		f.field(options+"delay", o.Delay, "must not be negative")
	case o.Delay > 0 && !o.RunAt.IsZero():
		f.field(options+"delay", o.Delay, "must be zero if run_at is set")
	case o.Delay > 0:
		r.Delay = o.Delay
	}
	// The store keeps microseconds: less would silently become no timeout.
	if o.Timeout < 0 || o.Timeout > 0 && o.Timeout < minTimeout {
		f.field(options+"timeout", o.Timeout, fmt.Sprintf("must be zero or at least %v", minTimeout))
	}
	if !isNil(o.Policy) {
		// A document without sections says nothing and is not kept.
		if d := f.override(options+"policy", o.Policy); d != (policy.Document{}) {
			r.Policy = f.json(options+"policy", d)
		}
	}
	if o.Unique != nil {
		checkUnique(f, options+"unique.key", o.Unique.Key)
		r.Unique = uniqueKey(r.Kind, o.Unique.Key)
		if o.Unique.Forever {
			r.UniqueScope = storage.UniqueForever
		}
	}
	if len(o.Headers) > 0 {
		r.Headers = f.headers(options+"headers", o.Headers, q.opts.MaxHeaders)
	}
	return r
}

// uniqueKey makes keys of different kinds differ: no kind contains a space.
func uniqueKey(kind, key string) string { return kind + " " + key }

func checkUnique(f *faults, field, key string) {
	switch {
	case key == "":
		f.field(field, key, "must not be empty")
	case len(key) > maxUnique:
		f.field(field, key, fmt.Sprintf("must be at most %d bytes", maxUnique))
	case !isText(key):
		f.field(field, key, "must be valid UTF-8 without NUL")
	}
}

// isText tells what can be kept as TEXT and shown by any tool.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// checkName checks the name of a kind or a queue.
func checkName(field, value string) error {
	ok := value != "" && len(value) <= maxName && isAlnum(value[0])
	for i := 0; ok && i < len(value); i++ {
		ok = isAlnum(value[i]) || strings.IndexByte("._:/-", value[i]) >= 0
	}
	if !ok {
		return &FieldError{
			Field: field, Value: value,
			Limit: "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,127}",
		}
	}
	return nil
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// isNil tells whether v is nil or a pointer that is.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

func (f *faults) args(field string, args Args, limit int) []byte {
	b := f.json(field, args)
	switch {
	case len(b) > limit:
		f.field(field, len(b), fmt.Sprintf("must be at most %d bytes of JSON", limit))
	case !utf8.Valid(b):
		f.field(field, fmt.Sprintf("%T", args), "must marshal to valid UTF-8")
	case bytes.Contains(b, []byte(`\ufffd`)):
		// encoding/json writes that instead of invalid bytes, and the handler
		// would get other args than those that were enqueued.
		if path, s, ok := findInvalid(reflect.ValueOf(args), field); ok {
			f.field(path, s, "must be valid UTF-8")
		}
	}
	return b
}

func (f *faults) headers(field string, h map[string]string, limit int) []byte {
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if k == "" || !utf8.ValidString(k) {
			f.field(field, k, "must have names that are not empty and valid UTF-8")
		} else if v := h[k]; !utf8.ValidString(v) {
			f.field(fmt.Sprintf("%s[%q]", field, cut(k)), v, "must be valid UTF-8")
		}
	}
	b := f.json(field, h)
	if len(b) > limit {
		f.field(field, len(b), fmt.Sprintf("must be at most %d bytes of JSON", limit))
	}
	return b
}

func (f *faults) json(field string, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		f.add(&FieldError{Field: field, Value: fmt.Sprintf("%T", v), Limit: "must marshal to JSON", Err: err})
	}
	return b
}

// findInvalid looks for a string that is not UTF-8. The value has been
// marshalled, so what it walks has no cycle; types that marshal themselves
// answer for their own text.
func findInvalid(v reflect.Value, path string) (string, string, bool) {
	if v.CanInterface() {
		switch v.Interface().(type) {
		case json.Marshaler, encoding.TextMarshaler:
			return "", "", false
		}
	}
	switch v.Kind() {
	case reflect.String:
		return path, v.String(), !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return findInvalid(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			sf := v.Type().Field(i)
			if sf.Tag.Get("json") == "-" || !sf.IsExported() && !sf.Anonymous {
				continue // JSON leaves it out: it may hold anything
			}
			if p, s, ok := findInvalid(v.Field(i), path+"."+sf.Name); ok {
				return p, s, ok
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if p, s, ok := findInvalid(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); ok {
				return p, s, ok
			}
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			if p, s, ok := findInvalid(k, path+" key"); ok {
				return p, s, ok
			}
			if p, s, ok := findInvalid(e, fmt.Sprintf("%s[%v]", path, k)); ok {
				return p, s, ok
			}
		}
	}
	return "", "", false
}
