package errand

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/errandq/errand/internal/argtag"
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
func (r RawArgs) MarshalJSON() ([]byte, error) {
	if len(r.JSON) == 0 {
		return []byte("null"), nil
	}
	return r.JSON, nil
}

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

const (
	// mostSecrets bounds how many paths a worker shows of a kind, and mostSecretSteps how long
	// they are looked for. A type with more is secret as a whole.
	mostSecrets     = 1000
	mostSecretSteps = 100_000
)

// typeUnknown is the path of args of which no type says what is secret.
const typeUnknown = "**"

// secrets returns where values of a type have fields with the tag `errand:"secret"`, or values of
// any type if there are such fields, as WorkerInfo.Secret shows it.
func secrets(t reflect.Type) []string {
	if isRaw(t) {
		return []string{typeUnknown}
	}
	if !hasSecret(t, false, map[reflect.Type]bool{}) {
		return nil
	}
	s := secretFinder{holds: map[reflect.Type]bool{}, within: map[reflect.Type]bool{}, again: map[reflect.Type]bool{}}
	s.find(t, "")
	if len(s.paths) > mostSecrets || s.steps > mostSecretSteps {
		return []string{""}
	}
	slices.Sort(s.paths)
	return slices.Compact(s.paths)
}

// secretFinder looks for fields with the tag.
type secretFinder struct {
	paths []string
	steps int
	holds map[reflect.Type]bool // what hasSecret has found
	// within are the structs around the value that is looked at. Those that are met again
	// are in again: they contain themselves.
	within, again map[reflect.Type]bool
}

// find adds the paths of a value of type t, which is at a path.
func (s *secretFinder) find(t reflect.Type, at string) {
	s.steps++
	holds, known := s.holds[t]
	if !known {
		holds = hasSecret(t, true, map[reflect.Type]bool{})
		s.holds[t] = holds
	}
	if !holds || s.steps > mostSecretSteps || len(s.paths) > mostSecrets {
		return
	}
	if t.Kind() == reflect.Interface || implements(reflect.PointerTo(deref(t)), slices.Concat(marshalers, unmarshalers)) {
		s.paths = append(s.paths, at) // it alone knows what its fields are
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		s.find(t.Elem(), at)
	case reflect.Slice, reflect.Array:
		s.find(t.Elem(), at+"[]")
	case reflect.Map:
		s.find(t.Elem(), below(at, "*"))
	case reflect.Struct:
		s.fields(t, at, false)
	}
}

// fields adds the paths of the fields of a struct, of all of them if it is secret.
func (s *secretFinder) fields(t reflect.Type, at string, secret bool) {
	if s.within[t] {
		s.again[t] = true
		return
	}
	s.within[t] = true
	defer delete(s.within, t)
	before := len(s.paths)
	for i := range t.NumField() {
		f := t.Field(i)
		name, named := argtag.Name(&f)
		secret := secret || argtag.Of(&f).Secret
		switch inner := deref(f.Type); {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && !named && inner.Kind() == reflect.Struct: // JSON has its fields as those of t
			s.fields(inner, at, secret)
		case !f.IsExported() && (!f.Anonymous || inner.Kind() != reflect.Struct):
		case secret:
			s.paths = append(s.paths, below(at, name))
		default:
			s.find(f.Type, below(at, name))
		}
	}
	for i := before; i < len(s.paths) && s.again[t]; i++ { // the same at any depth
		s.paths[i] = below(below(at, "**"), strings.TrimPrefix(s.paths[i][len(at):], "."))
	}
}

// below returns the path of a name below another path.
func below(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }

// hasSecret reports whether a field with the tag can be reached from a type, or if open a value of
// any type, whose fields may have it. It has seen those that are in seen.
func hasSecret(t reflect.Type, open bool, seen map[reflect.Type]bool) (has bool) {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return open
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return t == reflect.TypeFor[json.RawMessage]() && open || hasSecret(t.Elem(), open, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			has = hasSecret(f.Type, open && (f.IsExported() || f.Anonymous), seen) || has || argtag.Of(&f).Secret
		}
	}
	return has
}

// argsError returns the error of args that are no A. It is kept with the job, and shown to those who
// may not see secrets: of a type that has some, it says only where it failed.
func argsError[A Args](err error) error {
	if secret := secrets(reflect.TypeFor[A]()); len(secret) > 0 && secret[0] != typeUnknown {
		err = &secretError{err}
	}
	return fmt.Errorf("args: %w", err)
}

// secretError is an error whose text may have a secret value in it.
type secretError struct{ err error }

func (e *secretError) Error() string {
	if t := (*json.UnmarshalTypeError)(nil); errors.As(e.err, &t) {
		found, _, _ := strings.Cut(t.Value, " ") // a number follows
		return fmt.Sprintf("json: cannot unmarshal %s into field %s of type %v", found, t.Field, t.Type)
	}
	return fmt.Sprintf("%T: its text is left out, as it may have a value of a secret field", e.err)
}

func (e *secretError) Unwrap() error { return e.err }

// JobDefaulter is implemented by args whose kind has default options, set once beside the
// kind and not at each call that enqueues a job.
type JobDefaulter interface {
	Args
	// JobDefaults returns the options of a job with these args, for each field that the call
	// leaves zero. Enqueue, EnqueueMany and their forms with Tx call it, and [Queue.Schedule] when the
	// schedule is declared: on the value that is enqueued, so that a group can come from a
	// field, and before [Options].Middleware. It must not change anything, and must be safe
	// for concurrent use if the args are.
	//
	// DueAt and Delay are one field here: a call that sets either takes neither. Headers,
	// Tags, Unique and Origin are each taken as a whole. A schedule takes no DueAt, Delay and
	// Origin. A call can choose the queue "default" by its name, but cannot choose zero against any
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
			if o != j.Options && (j.Options == nil || j.Options.Unique == nil) && merges(o) {
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
	c.Origin = cmp.Or(c.Origin, d.Origin)
	if c.Headers == nil {
		c.Headers = d.Headers
	}
	if c.Tags == nil {
		c.Tags = d.Tags
	}
	return c
}
