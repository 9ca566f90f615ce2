package errand

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/errandq/errand/storage"
)

// RawArgs are args that the program knows only as JSON, of a kind that it knows only when
// it runs: those of an importer, a proxy, or a worker for programs in other languages. It
// is the one type of args whose values may be of different kinds. A job enqueued as
// RawArgs is the same as one enqueued as the type of its kind, except that RawArgs have
// no defaults, see [JobDefaulter]. [HandleRaw] takes both.
type RawArgs struct {
	// OfKind is the kind of the job. It must be a name, as that of every kind.
	OfKind string
	// JSON is one value of JSON. Space around its tokens is not kept. If empty, null.
	JSON json.RawMessage
}

// Kind returns OfKind.
func (r RawArgs) Kind() string { return r.OfKind }

// MarshalJSON returns JSON, or null if it is empty.
func (r RawArgs) MarshalJSON() ([]byte, error) { return r.JSON.MarshalJSON() }

// UnmarshalJSON keeps a copy of b as JSON.
func (r *RawArgs) UnmarshalJSON(b []byte) error {
	r.JSON = bytes.Clone(b)
	return nil
}

// HandleRaw registers fn as the handler of the jobs of a kind, as [Handle] does, but
// with args that are not decoded. OfKind of the args is the job's kind.
//
// HandleRaw panics on misuse: a nil fn, a malformed kind or one that has a handler
// already, bad options, or a call after Run.
func HandleRaw(w *Worker, kind string, fn func(ctx context.Context, job *Job[RawArgs]) error, o ...HandlerOptions) {
	if fn == nil {
		panic(fmt.Sprintf("errand: HandleRaw %q: nil handler", kind))
	}
	w.register(kind, o, handler(w, fn))
}

// isRaw reports whether t is RawArgs or a pointer to it.
func isRaw(t reflect.Type) bool { return deref(t) == reflect.TypeFor[RawArgs]() }

// JobDefaulter is implemented by args whose kind has default options, set once beside the
// kind and not at each call that enqueues a job.
type JobDefaulter interface {
	Args
	// JobDefaults returns the options of a job with these args, for each field that the call
	// leaves zero. Enqueue, EnqueueMany and EnqueueTx call it, and [Queue.Schedule] when the
	// schedule is declared: on the value that is enqueued, so that a group can come from a
	// field, and before [Options].Middleware. It must not change anything, and must be safe
	// for concurrent use if the args are.
	//
	// DueAt and Delay are one field here: a call that sets either takes neither. Headers,
	// Tags and Unique are each taken as a whole. A schedule takes neither DueAt nor Delay. A
	// call can choose the queue "default" by its name, but cannot choose zero against any
	// other default: for that, leave the field zero here too, or let a field of the args
	// decide. With a Merge in Unique, EnqueueMany refuses each job that has no Unique of its
	// own.
	//
	// There are no defaults where only the name of a kind is known: for [RawArgs], the
	// command errand, [OnDead] and messages of topics. Jobs that are there already stay as
	// they are.
	//
	// The call fails with a [FieldError] that names the kind if the defaults are not valid,
	// if JobDefaults panics, if the type has another method of that name, or if only its
	// pointer has the method.
	JobDefaults() JobOptions
}

// withDefaults returns the jobs of a call with the defaults of their kinds. They are the
// same slice if no kind has any.
func (q *Queue) withDefaults(jobs []NewJob) ([]NewJob, error) {
	var f faults
	all, own := jobs, false
	for i, j := range jobs {
		o := j.Options
		if d, ok := j.Args.(JobDefaulter); ok {
			o = q.defaulted(&f, indexed(i), d, o)
			if o != j.Options && (j.Options == nil || j.Options.Unique == nil) && o.Unique != nil && o.Unique.OnConflict.Merge != nil {
				f.field(defaultsPlace(indexed(i), d)+mergeField, "a function", notMany)
			}
		}
		if o == j.Options {
			continue
		}
		if !own { // jobs are the caller's
			all, own = slices.Clone(jobs), true
		}
		all[i].Options = o
	}
	return all, f.err()
}

// defaulted returns o with the defaults of the kind of args, in a copy. With faults, or
// for a pointer that is nil, it returns o itself.
func (q *Queue) defaulted(f *faults, place string, args JobDefaulter, o *JobOptions) *JobOptions {
	if isNil(args) {
		return o
	}
	before := f.n()
	place = defaultsPlace(place, args)
	d := f.jobDefaults(place, args)
	q.checkOptions(f, place, &d, &storage.NewJob{Queue: d.Queue})
	if f.n() > before {
		return o
	}
	if o != nil {
		d = o.or(&d)
	}
	return &d
}

// defaultsPlace returns what goes before the names of fields of the defaults of args.
func defaultsPlace(place string, args JobDefaulter) string {
	return fmt.Sprintf("%sjob_defaults[%q].", place, cut(args.Kind()))
}

// jobDefaults calls JobDefaults, which is code of the application.
func (f *faults) jobDefaults(place string, args JobDefaulter) (o JobOptions) {
	defer func() {
		if v := recover(); v != nil {
			f.field(strings.TrimSuffix(place, "."), fmt.Sprint(v), "must not panic")
		}
	}()
	return args.JobDefaults()
}

// or returns o with each field that is zero taken from d.
func (o *JobOptions) or(d *JobOptions) JobOptions {
	c := *o
	c.Queue, c.Priority, c.Timeout = cmp.Or(c.Queue, d.Queue), cmp.Or(c.Priority, d.Priority), cmp.Or(c.Timeout, d.Timeout)
	if c.DueAt.IsZero() && c.Delay == 0 {
		c.DueAt, c.Delay = d.DueAt, d.Delay
	}
	if isNil(c.Policy) {
		c.Policy = d.Policy
	}
	c.StartWithin, c.FinishWithin = cmp.Or(c.StartWithin, d.StartWithin), cmp.Or(c.FinishWithin, d.FinishWithin)
	c.OnExpire, c.Group, c.Unique = cmp.Or(c.OnExpire, d.OnExpire), cmp.Or(c.Group, d.Group), cmp.Or(c.Unique, d.Unique)
	if c.Headers == nil {
		c.Headers = d.Headers
	}
	if c.Tags == nil {
		c.Tags = d.Tags
	}
	return c
}
