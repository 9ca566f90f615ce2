package errand

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/errandq/errand/internal/argtag"
	"github.com/errandq/errand/storage"
)

// ConflictMode says what becomes of a job whose unique key is held, see [OnConflict].
type ConflictMode = storage.ConflictMode

// The modes.
const (
	// Keep keeps the job that holds the key, and adds nothing.
	Keep = storage.Keep
	// Replace changes the job that waits: it does what the new one was to do. A job that
	// comes while the holder runs waits behind it.
	Replace = storage.Replace
	// Debounce is Replace, and puts off the waiting job.
	Debounce = storage.Debounce
	// After replaces the waiting job as long as no attempt of it has begun. Otherwise the
	// new job waits behind the holder, also behind the holder's retries.
	After = storage.After
	// Fail returns a [DuplicateError], and adds nothing.
	Fail = storage.Fail
)

// DuplicateError is the error of [Fail]. ID is the job that holds the unique key; it is
// zero if that is another job of the same call. Index is the place of the job in the
// call. Key is the unique key, as [Queue.ReleaseUnique] takes it. It unwraps to
// [ErrDuplicate].
type DuplicateError = storage.DuplicateError

// OnConflict says what becomes of a job whose unique key another job holds. See
// docs/order.md. The zero value keeps the holder.
//
// Replace, Debounce and After change the args, headers and priority of the waiting job.
// Its queue, place, policy, timeout, tags and retries stay. A leased job does not wait,
// even if its handler was not called yet. Then the new job is added behind it, as
// [Blocked]. It starts when the leased job has ended, however often that is tried.
// Further jobs change the blocked one.
type OnConflict struct {
	// Mode says what becomes of the second job. If zero, Keep.
	Mode ConflictMode
	// Quiet is how long a job waits with Debounce, at least 100 ms. A job that is added or
	// changed is due that long after now, or later if it was due later.
	Quiet time.Duration
	// MaxWait is how long after its enqueue a job can be put off, at least Quiet. If zero,
	// for as long as others come.
	MaxWait time.Duration
	// Fresh is true if a changed job begins its retries anew. If it waits for a retry, it is
	// due now. If false, it keeps its retries and waits for as long as it would have.
	Fresh bool
	// Merge returns the args of a changed job, made of its stored args and the new ones. old
	// has the type of new, also if that is a pointer. The result must be of the same kind;
	// like the new args it goes through Options.Middleware. Merge is not called if no job
	// waits, and is called again if the job was changed or leased meanwhile. Enqueue calls
	// it outside a transaction, EnqueueTx inside the caller's, where it must not enqueue by
	// another one. EnqueueMany refuses it. If the result is too large, the error is a
	// [MergeError]. If nil, the new args are taken.
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

// merges reports whether a job brings a Merge.
func merges(o *JobOptions) bool {
	return o != nil && o.Unique != nil && o.Unique.OnConflict.Merge != nil
}

// set sets what the options say of the unique key.
func (u *Unique) set(r *storage.NewJob, of *argtag.Key) {
	key := u.Key
	if u.ByArgs {
		key = argsKey(r.Args, of)
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
// and to the order of names, or of the fields of it that make the key.
func argsKey(args []byte, of *argtag.Key) string {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err == nil {
		if of != nil {
			v = of.Of(v)
		}
		if same, err := json.Marshal(v); err == nil {
			args = same
		}
	}
	sum := sha256.Sum256(args)
	return storage.HashedKey + hex.EncodeToString(sum[:])
}

// keyOf returns the fields of args that make their unique key, or nil if all do.
func (a *argsTypes) keyOf(args Args) *argtag.Key {
	if t := reflect.TypeOf(args); t != nil && !isRaw(t) {
		return a.of(t).key
	}
	return nil
}

// ownKey returns the unique key of a job without its kind, from the one that is stored.
func ownKey(kind, stored string) string { return strings.TrimPrefix(stored, uniqueKey(kind, "")) }

// shownKey returns ownKey for those who may not see the args: of a hash that has secret
// fields in it only that it is one.
func (a *argsTypes) shownKey(kind, stored string) string {
	if stored == "" {
		return ""
	}
	key := ownKey(kind, stored)
	if !strings.HasPrefix(key, storage.HashedKey) {
		return key
	}
	a.mu.Lock()
	t := a.kinds[kind]
	a.mu.Unlock()
	if t != nil && a.of(t).secret {
		return storage.HashedKey + "[hidden]"
	}
	return key
}

// tellKeys says in the answers to jobs, and in the error of a duplicate, which keys these have.
func tellKeys(jobs []storage.NewJob, added []Enqueued, err error) {
	for i := range added {
		if j := &jobs[i]; j.Unique != "" {
			added[i].Key = ownKey(j.Kind, j.Unique)
		}
	}
	if err == nil { // before held, which takes memory
		return
	}
	if held := (*DuplicateError)(nil); errors.As(err, &held) && held.Index < len(jobs) {
		j := &jobs[held.Index]
		held.Key = ownKey(j.Kind, j.Unique)
	}
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
	return q.enqueueMerged(ctx, args, o, write)
}

// enqueueMerged enqueues a job that may be merged with one that waits.
func (q *Queue) enqueueMerged(ctx context.Context, args Args, o *JobOptions, write writeFunc) (e Enqueued, err error) {
	next, m := args, &storage.Merge{}
	var all afters // of the last pass
	err = errPanicked
	defer func() { all.tell([]Enqueued{e}, err) }()
	for {
		was := all
		all = nil
		was.tell(nil, ErrDropped)
		added, more, err := q.pass(ctx, []NewJob{{next, o}}, only, func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]Enqueued, error) {
			jobs[0].Conflict.Merge = m
			return write(ctx, now, jobs)
		})
		all = more
		if m.Old != nil {
			err = q.unfit(&NewJob{args, o}, err)
		}
		e, err := first(added, err)
		if err != nil || e.Unmerged == nil {
			return e, err
		}
		if err := ctx.Err(); err != nil {
			return Enqueued{}, err
		}
		found := e.Unmerged.Found
		m.Old, next, e = found, args, Enqueued{}
		if found != nil {
			if next, err = merged(o.Unique.OnConflict.Merge, found, args); err != nil {
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

// MergeError says that the args which a Merge has returned are too large for a job, see
// [Options].MaxArgs. Nothing was written, and the job that waits is as it was. The new args may
// be fit by themselves: enqueue them as a job of their own, with another unique key.
type MergeError struct {
	// Kind and Key are the kind and the unique key of the job that waits.
	Kind, Key string
	// Size is how many bytes of JSON the args are, and Max how many they can be.
	Size, Max int
}

// Error returns the key and the sizes in one line. It leaves out a key that is a hash of args.
func (e *MergeError) Error() string {
	key := ""
	if !strings.HasPrefix(e.Key, storage.HashedKey) {
		key = " for key " + quote(e.Key)
	}
	return fmt.Sprintf("errand: the args that Merge has made%s of kind %s are %d bytes of JSON, more than the %d of Options.MaxArgs: "+
		"the waiting job is as it was; enqueue the new args with another key, or once that job has begun", key, e.Kind, e.Size, e.Max)
}

// unfit returns the error of an enqueue whose args a Merge has made of those of j: it is not the
// caller's args that are at fault.
func (q *Queue) unfit(j *NewJob, err error) error {
	fault := (*FieldError)(nil)
	if !errors.As(err, &fault) {
		return err
	}
	if fault.most == 0 {
		return &FieldError{Field: mergeField, Value: j.Args.Kind(), Limit: "must return args that can be enqueued", Err: err}
	}
	e := &MergeError{Kind: j.Args.Kind(), Key: j.Options.Unique.Key, Max: fault.most}
	e.Size, _ = fault.Value.(int)
	if j.Options.Unique.ByArgs {
		e.Key = storage.HashedKey
	}
	return e
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
// as if [Unique].Forever had not been set. key is the one of the options, or of [Enqueued],
// [DuplicateError] or [JobInfo]. If the job has ended already, the key
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

// ReleaseUniqueArgs is [Queue.ReleaseUnique] for the key that [Unique].ByArgs makes of args.
func (q *Queue) ReleaseUniqueArgs(ctx context.Context, args Args) (ID, error) {
	var f faults
	if isNil(args) {
		f.field("args", nil, "must not be nil")
		return ID{}, f.err()
	}
	kind := f.kind("", args, &q.types)
	b := f.args("args", args, q.opts.MaxArgs)
	if err := f.err(); err != nil {
		return ID{}, err
	}
	return q.store.ReleaseUnique(ctx, uniqueKey(kind, argsKey(b, q.types.keyOf(args))))
}
