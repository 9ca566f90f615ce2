package errand

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

// ConflictMode says what becomes of a job whose unique key is held, see [OnConflict].
type ConflictMode = storage.ConflictMode

// The modes.
const (
	// Keep keeps the job that holds the key, and adds nothing.
	Keep = storage.Keep
	// Replace has a job that waits do what the new one was to do. What comes while a job
	// runs waits behind it.
	Replace = storage.Replace
	// Debounce is Replace, and puts the waiting job off.
	Debounce = storage.Debounce
	// After is Replace, but leaves a job alone of which an attempt has begun: what comes
	// while it runs, or waits for its retry, waits behind it.
	After = storage.After
	// Fail returns a [DuplicateError], and adds nothing.
	Fail = storage.Fail
)

// DuplicateError is the error of [Fail]: the job ID holds the unique key; the zero ID is
// that of another job of the same call. Index is the place of the job in the call. It
// unwraps to [ErrDuplicate].
type DuplicateError = storage.DuplicateError

// OnConflict says what becomes of a job whose unique key another job holds. See
// docs/order.md. The zero value keeps that one.
//
// Replace, Debounce and After change the args, headers and priority of the job that
// waits, and leave all else as it is: its queue and place, its policy, timeout, tags and
// retries. A job that is leased, also ahead of its handler, does not wait. Then the
// new job is added, as [Blocked]: it starts when that one has ended, however often it is
// tried, and further ones change it.
type OnConflict struct {
	// Mode says what becomes of it. If zero, Keep.
	Mode ConflictMode
	// Quiet is how long a job waits with Debounce, at least 100 ms: a new one is due
	// that long after now, and so is one that is changed, unless it is due later.
	Quiet time.Duration
	// MaxWait is how long after its enqueue a job can be put off, at least Quiet. If zero,
	// for as long as others come.
	MaxWait time.Duration
	// Fresh has a job that is changed begin its retries anew; one that waits for its retry
	// is due now. If false, it keeps its retries and waits for as long as it would have.
	Fresh bool
	// Merge makes the args of a job that is changed of those it has and the new ones. old
	// is of the type of new; if new is a pointer so is old. Enqueue calls it without a
	// transaction, EnqueueTx inside that of the caller, where it must not enqueue by
	// another one. It is called again if the job was changed or leased meanwhile; if no job
	// waits it is not called. What it returns is of the same kind, and goes through
	// Options.Middleware as the new args do; old are those that are stored. Merge is not
	// for EnqueueMany. If nil, the new args are taken.
	Merge func(old, new Args) (Args, error)
}

const (
	minQuiet = 100 * time.Millisecond
)

// onConflict checks the parts of a unique key that are about conflicts.
func (f *faults) onConflict(place string, o *JobOptions) {
	u, c := o.Unique, &o.Unique.OnConflict
	replaces := (&storage.Conflict{Mode: c.Mode}).Replaces()
	switch {
	case u.For != 0 && (u.For < minWindow || u.For > maxWindow):
		f.field(place+"for", u.For, "must be zero or "+windowLimit)
	case u.For != 0 && u.Forever:
		f.field(place+"for", u.For, "must be zero if forever is set")
	}
	place += "on_conflict."
	switch {
	case c.Mode > Fail:
		f.field(place+"mode", int(c.Mode), "must be Keep (0), Replace (1), Debounce (2), After (3) or Fail (4)")
	case replaces && u.Forever:
		f.field(place+"mode", int(c.Mode), "must be Keep (0) or Fail (4) if forever is set")
	case replaces && o.Group != "":
		f.field(place+"mode", int(c.Mode), "must be Keep (0) or Fail (4) if group is set")
	}
	if c.Mode == Debounce {
		if c.Quiet < minQuiet || c.Quiet > maxWindow {
			f.field(place+"quiet", c.Quiet, fmt.Sprintf("must be between %v and 100 years", minQuiet))
		}
		if c.MaxWait != 0 && (c.MaxWait < c.Quiet || c.MaxWait > maxWindow) {
			f.field(place+"max_wait", c.MaxWait, fmt.Sprintf("must be zero or between quiet, %v, and 100 years", c.Quiet))
		}
		if o.Delay != 0 || !o.DueAt.IsZero() {
			f.field(place+"quiet", c.Quiet, "must be without delay and due_at, as it says when the job is due")
		}
	} else {
		if c.Quiet != 0 {
			f.field(place+"quiet", c.Quiet, "must be zero unless mode is Debounce (2)")
		}
		if c.MaxWait != 0 {
			f.field(place+"max_wait", c.MaxWait, "must be zero unless mode is Debounce (2)")
		}
	}
	if c.Fresh && !replaces {
		f.field(place+"fresh", true, "must be false unless mode is Replace (1), Debounce (2) or After (3)")
	}
	if c.Merge != nil && !replaces {
		f.field(place+"merge", "a function", "must be nil unless mode is Replace (1), Debounce (2) or After (3)")
	}
}

// noConflict checks that a unique key has nothing that schedules cannot have.
func (f *faults) noConflict(place string, u *Unique) {
	if u == nil {
		return
	}
	if u.For != 0 {
		f.field(place+"for", u.For, "must be zero in a schedule")
	}
	if u.OnConflict.Mode != Keep {
		f.field(place+"on_conflict.mode", int(u.OnConflict.Mode), "must be Keep (0) in a schedule")
	}
}

// unique sets what the options say of the unique key.
func (u *Unique) set(r *storage.NewJob) {
	key := u.Key
	if u.ByArgs {
		key = argsKey(r.Args)
	}
	r.Unique = uniqueKey(r.Kind, key)
	if u.Forever {
		r.UniqueScope = storage.UniqueForever
	}
	r.UniqueFor = u.For
	if c := &u.OnConflict; c.Mode != Keep {
		r.Conflict = &storage.Conflict{Mode: c.Mode, Quiet: c.Quiet, MaxWait: c.MaxWait, Fresh: c.Fresh}
	}
}

// argsKey returns the unique key of args: a hash of their JSON without regard to spaces
// and to the order of names.
func argsKey(args []byte) string {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err == nil {
		if same, err := json.Marshal(v); err == nil {
			args = same
		}
	}
	sum := sha256.Sum256(args)
	return "sha256:" + hex.EncodeToString(sum[:])
}

type writeFunc = func(context.Context, time.Time, []storage.NewJob) ([]Enqueued, error)

// enqueueOne enqueues one job, and merges it with one that waits if the options say so.
func (q *Queue) enqueueOne(ctx context.Context, args Args, o *JobOptions, write writeFunc) (Enqueued, error) {
	if d, ok := args.(JobDefaulter); ok {
		var f faults
		o = q.defaulted(&f, "", d, o)
		if err := f.err(); err != nil {
			return Enqueued{}, err
		}
	}
	if o == nil || o.Unique == nil || o.Unique.OnConflict.Merge == nil {
		return first(q.enqueue(ctx, []NewJob{{args, o}}, only, write))
	}
	next, m := args, &storage.Merge{}
	for {
		e, err := first(q.enqueue(ctx, []NewJob{{next, o}}, only, func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
			jobs[0].Conflict.Merge = m
			return write(ctx, now, jobs)
		}))
		if err != nil || !m.Again {
			return e, err
		}
		if err := ctx.Err(); err != nil {
			return Enqueued{}, err
		}
		m.Old, next = m.Found, args
		if m.Found != nil {
			if next, err = merged(o.Unique.OnConflict.Merge, m.Found, args); err != nil {
				return Enqueued{}, err
			}
		}
	}
}

// merged returns what merge makes of stored args and new ones.
func merged(merge func(old, new Args) (Args, error), stored []byte, args Args) (Args, error) {
	old, err := argsLike(args, stored)
	if err != nil {
		return nil, &FieldError{Field: mergeField, Value: fmt.Sprintf("%T", args), Limit: "must be able to take the stored args", Err: err}
	}
	out, err := merge(old, args)
	switch {
	case err != nil:
		return nil, &FieldError{Field: mergeField, Value: args.Kind(), Limit: "must return no error", Err: err}
	case isNil(out):
		return nil, &FieldError{Field: mergeField, Limit: "must return args"}
	case out.Kind() != args.Kind():
		return nil, &FieldError{Field: mergeField, Value: out.Kind(), Limit: fmt.Sprintf("must return args of kind %q", args.Kind())}
	}
	return out, nil
}

// argsLike decodes stored args into a value of the type of args.
func argsLike(args Args, stored []byte) (Args, error) {
	t := reflect.TypeOf(args)
	if isRaw(t) {
		raw := RawArgs{OfKind: args.Kind(), JSON: stored}
		if t.Kind() == reflect.Pointer {
			return &raw, nil
		}
		return raw, nil
	}
	v := reflect.New(deref(t))
	if err := json.Unmarshal(stored, v.Interface()); err != nil {
		return nil, err
	}
	if t.Kind() != reflect.Pointer {
		v = v.Elem()
	}
	return v.Interface().(Args), nil
}

// ReleaseUnique frees a unique key of a kind when the job that holds it has ended,
// as if [Unique].Forever had not been set. If the job has ended already, the key
// is free at once and the zero ID is returned. Otherwise the ID of the job is
// returned. ReleaseUnique returns [ErrNotFound] if no job holds the key.
func (q *Queue) ReleaseUnique(ctx context.Context, kind, key string) (ID, error) {
	var f faults
	f.add(checkName("kind", kind))
	f.unique("key", key)
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.ReleaseUnique(ctx, uniqueKey(kind, key))
}
