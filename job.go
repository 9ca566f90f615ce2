package errand

import (
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/errandq/errand/internal/argtag"
	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// Args are the arguments of a job, which its handler gets back: a type of the
// application that encoding/json can write and read.
type Args interface {
	// Kind names the kind of job, and so the handler that runs it. It must return the same
	// name for every value of the type, its zero value included. No other type of the
	// program may return it. [RawArgs] are the exception. Jobs outlive releases: once used,
	// a kind should not change. See [JobDefaulter] for options that all jobs of a kind have.
	//
	// The tag `errand:"secret"` of a field hides its value on a dashboard from all but those
	// who may see args whole. It counts at any depth. What an interface or a json.RawMessage
	// holds may have the tag too: in a type that has it somewhere, all of that is hidden, and
	// the error of args that do not decode says only where. In the file the value is as any
	// other.
	//
	// The tag `errand:"unique"` names the fields that make the key of [Unique].ByArgs, see
	// there. A field has both tags as `errand:"unique,secret"`.
	Kind() string
}

// argsTypes are the types of args that a queue has met in this process.
type argsTypes struct {
	known sync.Map // of *argsType by reflect.Type
	mu    sync.Mutex
	kinds map[string]reflect.Type // that of what a pointer points to
}

// argsType describes a type of args.
type argsType struct {
	kind   string       // the kind of its zero value
	taken  reflect.Type // another type that has this kind, or nil
	hidden bool         // JSON sees none of its fields
	misfit bool         // it has a JobDefaults that does not count
	key    *argtag.Key  // of its fields with the tag unique; nil: none has it
	secret bool         // its unique key is made of secret fields, too
	tags   error        // what is wrong with its tags
}

// of returns the description of a type, which must not be an interface.
func (a *argsTypes) of(t reflect.Type) *argsType {
	if known, ok := a.known.Load(t); ok {
		return known.(*argsType)
	}
	x := &argsType{kind: zeroKind(t), hidden: !implements(t, marshalers) && hidesAll(t)}
	if _, ok := reflect.PointerTo(deref(t)).MethodByName("JobDefaults"); ok {
		x.misfit = !t.Implements(reflect.TypeFor[JobDefaulter]())
	}
	if x.tags = argtag.Check(t); x.tags == nil {
		x.key, x.tags = argtag.KeyOf(t)
	}
	if x.secret = hasSecret(t, false, map[reflect.Type]bool{}); x.key != nil {
		x.secret = x.key.Secret
	}
	if base := deref(t); checkName("kind", x.kind) == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if other, ok := a.kinds[x.kind]; ok && other != base {
			x.taken = other
		} else if !ok {
			if a.kinds == nil {
				a.kinds = map[string]reflect.Type{}
			}
			a.kinds[x.kind] = base
		}
	}
	known, _ := a.known.LoadOrStore(t, x)
	return known.(*argsType)
}

// zeroKind returns the kind of the zero value of a type, or "" if Kind panics. If t
// is a pointer type the pointer is not nil, as Kind may look at what it points to.
func zeroKind(t reflect.Type) (kind string) {
	defer func() {
		if recover() != nil {
			kind = ""
		}
	}()
	v := reflect.New(t).Elem()
	if t.Kind() == reflect.Pointer {
		v = reflect.New(t.Elem())
	}
	return v.Interface().(Args).Kind()
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// Interfaces of types that write and read JSON in their own way.
var (
	marshalers   = []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()}
	unmarshalers = []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}
)

func implements(t reflect.Type, any []reflect.Type) bool {
	return slices.ContainsFunc(any, t.Implements)
}

// hidesAll reports whether a type has fields and JSON sees none of them, so that
// their values would be lost. Fields with the tag "-" are left out on purpose.
func hidesAll(t reflect.Type) bool {
	hidden := false
	for _, f := range reflect.VisibleFields(structOf(t)) {
		switch {
		case f.Name == "_" || f.Tag.Get("json") == "-" || f.Anonymous && deref(f.Type).Kind() == reflect.Struct:
		case f.IsExported():
			return false
		default:
			hidden = true
		}
	}
	return hidden
}

// structOf returns the struct type that t is or points to, else one without fields.
func structOf(t reflect.Type) reflect.Type {
	if t = deref(t); t.Kind() == reflect.Struct {
		return t
	}
	return reflect.TypeFor[struct{}]()
}

const hiddenLimit = "must have exported fields, or none, or marshal itself: JSON sees no others"

// findInvalid looks for a string that is not UTF-8. The value has been
// marshalled, so it has no cycle. Types that marshal themselves answer for
// their own text.
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

// ID identifies a job: a UUID of version 7. The zero ID identifies no job.
type ID = storage.ID

// ParseID reads the form that [ID.String] writes.
func ParseID(s string) (ID, error) {
	var id ID
	if err := id.UnmarshalText([]byte(s)); err != nil {
		return ID{}, &FieldError{Field: "id", Value: s, Limit: "must have the form of a UUID, 36 characters"}
	}
	return id, nil
}

// Enqueued is the result of an enqueue. ID names the job. If Duplicate is true nothing was
// added, and ID names the job that holds the unique key; if Gone is true too, that job
// has been deleted. Key is the unique key, also of ByArgs, as [Queue.ReleaseUnique] takes it. If Duplicate and Replaced are true, that job does now what the new one
// was to do, see [OnConflict].
type Enqueued = storage.Enqueued

// Origin says where a job came from that was passed on from another queue or system, such as from
// the file of a device to that of a server. Device names the device or system, in the form of
// names of queues, and ID is what the job is called there: 1 to 128 visible ASCII characters
// without spaces. The zero value is that of any other job.
type Origin = storage.Origin

// State is where a job is. A job is in exactly one state.
type State = storage.State

// The states of a job. The first three and Blocked are live, the three after them finished.
const (
	Scheduled = storage.Scheduled // due later: delayed, or waiting for its retry
	Ready     = storage.Ready     // due, waiting for a worker
	Running   = storage.Running   // leased
	Done      = storage.Done
	Cancelled = storage.Cancelled
	Expired   = storage.Expired // not started in time, see JobOptions.StartWithin
	Dead      = storage.Dead    // in the dead letters
	Blocked   = storage.Blocked // waiting for another job of its group, or with its unique key
)

// Job is one attempt as its handler sees it.
type Job[A Args] struct {
	ID       ID
	Queue    string
	Kind     string
	Args     A
	Headers  map[string]string // nil if there are none
	Priority int
	// Group is the group of the job, see [JobOptions].
	Group string
	// Origin is where the job came from if it was passed on, see [JobOptions]; zero if not.
	Origin Origin
	// Attempt counts the runs of the handler, this one included. It is 1 in the
	// first run.
	Attempt int
	// Retry counts the failures since the job was enqueued or redriven. It alone
	// decides the delay after the next failure.
	Retry int
	// Crashes counts the processes in a row that died while they ran the job.
	Crashes int
	// Snoozes counts how often the handler returned [Snooze].
	Snoozes int
	// Phase is the phase of the delivery policy that this attempt is in.
	Phase     policy.Phase
	CreatedAt time.Time
	DueAt     time.Time
	// Deadline is when the context of the handler ends because of
	// JobOptions.FinishWithin; zero if the job has none.
	Deadline time.Time

	attempt    *engine.Attempt // nil of a job that no worker runs
	ctx        context.Context // that the last middleware has passed on; nil: none has
	checkpoint []byte          // from before the attempt; nil: none
}

// JobOptions configure a job. Nil and the zero value mean defaults: those of the kind, see
// [JobDefaulter], else those that the fields name.
type JobOptions struct {
	// Queue is the queue in which the job waits. If empty, "default".
	Queue string
	// Priority orders the ready jobs of a worker: higher first, from -100 to 100.
	// If zero, in the middle.
	Priority int
	// DueAt is when the job is due, on the queue's clock; a time in the past
	// means at once. At most one of DueAt and Delay may be set. If zero, at once.
	DueAt time.Time
	// Delay is how long after now the job is due. If zero, at once.
	Delay time.Duration
	// Policy is the delivery policy of this job, and is stored with it: a
	// [policy.Policy], whose zero value allows no retry, or a [policy.Document].
	// Its throttle section has no effect. A queue's policy can disable it. If nil,
	// or for a section that is absent, the policy of the kind, else of the queue,
	// else of Options.
	Policy policy.Delivery
	// Timeout bounds each attempt, at least 1 ms. If zero, the timeout of the
	// kind, else of the worker.
	Timeout time.Duration
	// StartWithin is how long after the job is due its first attempt may begin, at least
	// 1 s. When that time is over the job ends, as OnExpire says. An attempt that has begun
	// goes on, and so do its retries. If zero, that of its lane, see [Settings], else any
	// time.
	StartWithin time.Duration
	// FinishWithin is how long after the job is due an attempt may begin, at least 1 s. An
	// attempt that runs then has this as the deadline of its context. A job whose next
	// attempt would begin later is dead at once, with reason "deadline". A redrive begins
	// the time anew. If zero, that of its lane, else there is none.
	FinishWithin time.Duration
	// OnExpire is what becomes of a job that was not started within StartWithin: with Dead
	// it goes to the dead letters with reason "expired", with Expired it is finished, and
	// kept as other finished jobs. If empty, what is set for its lane, else Expired.
	OnExpire State
	// Unique refuses a second job with the same key, or has it change the first. If nil,
	// the job has no key.
	Unique *Unique
	// Headers are stored with the args, for trace IDs and the like. If nil, none.
	Headers map[string]string
	// Group names the group of the job. The jobs of a group in one queue run one at a time,
	// in the order in which they were enqueued, whatever their kinds. A job that waits for
	// its retry, or is dead, keeps back those behind it. See docs/order.md. Group is at most
	// 256 bytes of UTF-8. If empty, the job waits for no other.
	Group string
	// Tags are what the job is found by, see [Queue.Jobs], besides queue and kind:
	// at most 8, each 1 to 64 bytes of the form of a name of a kind. They stay with the
	// job until it is deleted. Handlers are not given them. If nil, none.
	Tags []string
	// Origin is where the job came from, if it is passed on from another queue or system. It stays
	// with the job until it is deleted, and [JobFilter].Origin finds the job by an index. Nothing
	// is refused because of it: two jobs may have the same. A schedule takes none. If zero, none.
	Origin Origin
}

// Unique asks for at most one job of a kind with this key, in all queues.
type Unique struct {
	// Key must not be empty; at most 1,024 bytes of UTF-8.
	Key string
	// ByArgs is true if the key is a hash of the args, as JSON without regard to spaces and
	// to the order of names. Key is empty then. A new field makes another key of each job. If
	// fields of the type have the tag `errand:"unique"`, at any depth, the hash is of these
	// alone, and other fields can come and go. A field with the tag counts whole. Of lists and
	// maps with such fields all elements and all keys count. To put the tag on all fields that
	// there are changes no key. [RawArgs] have no tags: all of their JSON counts.
	ByArgs bool
	// Forever holds the key until [Queue.ReleaseUnique], also after the job has
	// ended. If false, the key is free again when the job is finished or dead.
	Forever bool
	// For is how long the key is held after the job is enqueued, or first due if that is
	// later; at least 1 s. The key is held whatever becomes of the job, and in any case
	// until the job has ended. A job that is evicted before its first attempt, see [Settings],
	// leaves it free. The time begins with that job, not at midnight or another
	// round time. When only this time holds the key, Replace, Debounce and After add the new
	// job, due when the time is over: at most one starts in each. If zero, the key is free
	// when the job has ended.
	For time.Duration
	// OnConflict says what becomes of a job whose key is held. If zero, it is not added.
	OnConflict OnConflict
}

// NewJob is one job of [Queue.EnqueueMany].
type NewJob struct {
	Args    Args
	Options *JobOptions
}

// Failure is one entry of a job's history: an attempt that failed, or, if Phase is
// [PhaseEdited], args that [Queue.Change] has replaced. Attempt, At, Phase, Error and
// Duration say which attempt it was and how it ended, Instance in which process. Stack is
// that of a panic. RetryAfter is true if the attempt asked for the delay after it. Args
// are those that were replaced.
type Failure = storage.Failure

// PhaseEdited is the phase of an entry of the history that is no failure: Args are those
// that were replaced. At most ten such entries of a job are kept.
const PhaseEdited = storage.PhaseEdited

// Count is a number of jobs in one state, by queue and kind: N of Kind in Queue are in
// State.
type Count = storage.Count

// Permanent is the verdict that no retry can help: the job goes to the dead
// letters at once, with reason "permanent". err says why; it may be nil. It does not count once
// the worker is being stopped.
func Permanent(err error) error { return &engine.PermanentError{Err: err} }

// RetryAfter is the verdict that the attempt failed, and that the next one should
// not start before d has passed. It uses up a retry. The delay is the longer of d
// and the policy's delay, with up to 10 % jitter upwards. d counts for at most
// [WorkerOptions].MaxRetryAfter. err says why; it may be nil.
func RetryAfter(d time.Duration, err error) error {
	return &engine.RetryAfterError{After: d, Err: err}
}

// Unavailable is the verdict that nothing is wrong with the job: the other side cannot be
// reached. It costs the job nothing, as long as no job of the same kind and queue has
// been done since the job's previous attempt. Otherwise it counts as a failure and uses
// up a retry by the policy. A first attempt that ends so never uses one up. An attempt
// that costs nothing has no entry in the history, and its error is the job's last error
// until the next attempt. err says why; it may be nil.
//
// After five such attempts of a kind and queue in a row, with no success between them,
// its jobs are held, in all processes: see [Queue.Holds], where the reason is
// "unavailable". An error about this machine, see [policy.IsLocal], has them held at
// once. After 1 s one job is let through. The hold ends when that job is done. If it
// cannot reach the other side either, the next one is let through later, after five and a
// half minutes at the latest; docs/outages.md says when. Jobs are not held while some of
// the kind and queue reach their hosts and others do not.
//
// An error of class [policy.Unavailable] has the same effect.
func Unavailable(err error) error { return &engine.UnavailableError{Err: err} }

// HoldLane is the verdict that nothing is wrong with the job, and that no job of its kind
// and queue should start before d has passed, for example since the limit of an account
// is used up. It is like [Unavailable], except that the hold begins at once and lasts for
// d plus up to a tenth. d counts for at least 1 s, and at most for
// [WorkerOptions].MaxRetryAfter. err says why; it may be nil.
func HoldLane(d time.Duration, err error) error { return &engine.HoldLaneError{For: d, Err: err} }

// Snooze is the verdict that the job should run again after d, at least 100 ms. It
// is no failure and uses up no retry. A job that has snoozed
// [WorkerOptions].MaxSnoozes times and snoozes again is dead with reason "snoozed".
// err says why; it may be nil. It is kept only if the job dies of it.
func Snooze(d time.Duration, err error) error { return &engine.SnoozeError{For: d, Err: err} }

// Cancel is the verdict that the job is pointless: it is finished as
// cancelled. err says why; it may be nil.
func Cancel(err error) error { return &engine.CancelError{Err: err} }

// UnderPolicy returns err with the delivery policy that decides whether and when the job
// is retried, in place of the policy in effect. It is for a handler that looks the policy
// up when an attempt fails, for example that of the customer whom the job is for.
// Sections that p lacks are those in effect. It is no verdict: err may be one, or is
// classified as any other. The policy in effect still decides about a crash, about a time
// that was over before the handler ran, and about [Job].Phase.
//
// It returns nil if err is nil. If p is nil or not valid, it returns err as it is.
func UnderPolicy(p policy.Delivery, err error) error {
	if err == nil {
		return nil
	}
	d, ok := delivery(p)
	if !ok || p.Validate() != nil {
		return err
	}
	return &engine.PolicyError{Policy: d.Document, Err: err}
}

// Verdict is a verdict of a handler: [Permanent], [RetryAfter], [Unavailable],
// [HoldLane], [Snooze] or [Cancel].
type Verdict struct {
	Kind VerdictKind
	// After is the duration of RetryAfter, HoldLane or Snooze.
	After time.Duration
	// Err is the error that the handler passed, or nil.
	Err error
}

// VerdictKind names the function that made a verdict.
type VerdictKind string

// The kinds of verdicts.
const (
	VerdictPermanent  VerdictKind = "permanent"
	VerdictRetryAfter VerdictKind = "retry after"
	VerdictSnooze     VerdictKind = "snooze"
	VerdictCancel     VerdictKind = "cancel"

	VerdictUnavailable VerdictKind = "unavailable"
	VerdictHoldLane    VerdictKind = "hold lane"
)

// VerdictOf returns the verdict in err that counts for a worker: the outermost, if
// err wraps several. If err has no verdict, ok is false: a nil error means done, and any
// other is classified by rules, see [policy.Classify]. VerdictOf serves tests of handlers,
// and code that wraps handlers.
func VerdictOf(err error) (v Verdict, ok bool) {
	switch e := engine.VerdictOf(err).(type) {
	case *engine.PermanentError:
		return Verdict{Kind: VerdictPermanent, Err: e.Err}, true
	case *engine.RetryAfterError:
		return Verdict{Kind: VerdictRetryAfter, After: e.After, Err: e.Err}, true
	case *engine.SnoozeError:
		return Verdict{Kind: VerdictSnooze, After: e.For, Err: e.Err}, true
	case *engine.CancelError:
		return Verdict{Kind: VerdictCancel, Err: e.Err}, true
	case *engine.UnavailableError:
		return Verdict{Kind: VerdictUnavailable, Err: e.Err}, true
	case *engine.HoldLaneError:
		return Verdict{Kind: VerdictHoldLane, After: e.For, Err: e.Err}, true
	}
	return Verdict{}, false
}

// String returns the verdict in a few words.
func (v Verdict) String() string {
	s := string(v.Kind)
	if v.Kind == VerdictRetryAfter || v.Kind == VerdictSnooze || v.Kind == VerdictHoldLane {
		s += " " + v.After.String()
	}
	if v.Err != nil {
		s += ": " + v.Err.Error()
	}
	return s
}
