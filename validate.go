package errand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// faults collects what is wrong with the input of one call.
type faults struct{ list []error }

// maxFaults bounds how many faults the text of an error lists: a call may bring 10,000
// jobs with several faults each.
const maxFaults = 100

// manyFaults are more than the text of an error lists. Package topic looks at each of them.
type manyFaults struct{ list []error }

func (m *manyFaults) Error() string {
	return fmt.Sprintf("%v\nerrand: and %d more faults", errors.Join(m.list[:maxFaults]...), len(m.list)-maxFaults)
}

func (m *manyFaults) Unwrap() []error { return m.list }

func (f *faults) add(err error) {
	if err != nil {
		f.list = append(f.list, err)
	}
}

func (f *faults) field(field string, value any, limit string) {
	f.add(&FieldError{Field: field, Value: value, Limit: limit})
}

// between checks that a number is at least 0 and at most most.
func (f *faults) between(field string, n, most int) {
	if n < 0 || n > most {
		f.field(field, n, fmt.Sprintf("must be between 0 and %d", most))
	}
}

// openJitter checks an OpenJitter.
func (f *faults) openJitter(field string, d time.Duration) {
	if d < 0 || d > mostOpenJitter {
		f.field(field, d, fmt.Sprintf("must be between 0 and %v", mostOpenJitter))
	}
}

// ofJob notes that the faults after the first n are about job i of a call with several, whose fields
// are at a place. It does nothing if place is empty: then the call has one job.
func (f *faults) ofJob(n, i int, place string) {
	if place == "" {
		return
	}
	f.within(n, place)
	for _, err := range f.list[n:] {
		if e, ok := errors.AsType[*FieldError](err); ok {
			e.Job = i + 1
		}
	}
}

// within notes that the faults after the first n are about fields at a place.
func (f *faults) within(n int, place string) {
	for _, err := range f.list[n:] {
		if e, ok := errors.AsType[*FieldError](err); ok {
			e.Field = place + e.Field
		}
	}
}

// n returns the number of faults.
func (f *faults) n() int { return len(f.list) }

func (f *faults) err() error {
	if len(f.list) > maxFaults {
		return &manyFaults{f.list}
	}
	return errors.Join(f.list...)
}

func (o *Options) validate() error {
	var f faults
	f.sqlite("sqlite.", &o.SQLite)
	f.policy("policy", o.Policy)
	f.middleware("middleware", o.Middleware)
	f.settings("settings.", Lane{}, &o.Settings)
	if o.Strict && len(o.Queues) == 0 {
		f.field("strict", true, "must be false unless queues lists those that may be used")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Queues)) {
		f.queueOrPrefix("queues", name)
		field, q := fmt.Sprintf("queues[%q].", name), o.Queues[name]
		f.policy(field+"policy", q.Policy)
		f.rules(field+"rules", q.Rules)
		f.budget(field+"budget", q.Budget)
		f.groupThrottle(field+"group_throttle.", q.GroupThrottle)
		f.between(field+"concurrency", q.Concurrency, mostConcurrency)
		f.openJitter(field+"open_jitter", q.OpenJitter)
		f.onDead(field+"on_dead", q.OnDead, o)
		if set := f.settings(field+"settings.", Lane{Queue: name}, &q.Settings); isPrefix(name) && len(set) > 0 {
			f.field(field+"settings", name, "must be zero for a prefix: set those of each queue with Configure")
		}
	}
	for _, size := range []struct {
		field string
		value int
	}{{"max_args", o.MaxArgs}, {"max_headers", o.MaxHeaders}} {
		if size.value < 0 || size.value > mostBytes {
			f.field(size.field, size.value, fmt.Sprintf("must be between 0 and %d bytes", mostBytes))
		}
	}
	if o.LogEvery < 0 {
		f.field("log_every", o.LogEvery, "must not be negative")
	}
	return f.err()
}

const (
	mostBallast       = 1 << 30
	minBusy, mostBusy = time.Millisecond, time.Hour
)

func (f *faults) sqlite(place string, o *SQLiteOptions) {
	if o.Durability > Relaxed {
		f.field(place+"durability", o.Durability, "must be Full (0) or Relaxed (1)")
	}
	if o.BusyTimeout != 0 && (o.BusyTimeout < minBusy || o.BusyTimeout > mostBusy) {
		f.field(place+"busy_timeout", o.BusyTimeout, fmt.Sprintf("must be zero or between %v and %v", minBusy, mostBusy))
	}
	if o.Ballast > mostBallast {
		f.field(place+"ballast", o.Ballast, fmt.Sprintf("must be at most %d bytes", mostBallast))
	}
}

// noSQLite checks that no field is set of the options of a store that is open.
func (f *faults) noSQLite(place string, o *SQLiteOptions) {
	const limit = "must be zero with New: set it where the store is opened"
	for _, s := range []struct {
		field string
		value any
	}{
		{"durability", o.Durability}, {"single_process", o.SingleProcess}, {"busy_timeout", o.BusyTimeout},
		{"ballast", o.Ballast}, {"any_file_system", o.AnyFileSystem}, {"read_only", o.ReadOnly}, {"existing", o.Existing}, {"own", o.Own},
	} {
		if !reflect.ValueOf(s.value).IsZero() {
			f.field(place+s.field, s.value, limit)
		}
	}
	if o.Logger != nil {
		f.field(place+"logger", fmt.Sprintf("%T", o.Logger), limit)
	}
}

func (o *WorkerOptions) validate() error {
	var f faults
	for i, name := range o.Queues {
		f.queueOrPrefix(fmt.Sprintf("queues[%d]", i), name)
		if slices.Contains(o.Queues[:i], name) {
			f.field(fmt.Sprintf("queues[%d]", i), name, "must not be listed twice")
		}
	}
	for _, n := range []struct {
		field string
		value int
		most  int
	}{
		{"concurrency", o.Concurrency, mostConcurrency},
		{"max_crashes", o.MaxCrashes, math.MaxInt32},
		{"max_snoozes", o.MaxSnoozes, math.MaxInt32},
	} {
		f.between(n.field, n.value, n.most)
	}
	f.middleware("middleware", o.Middleware)
	if o.LeaseDuration != 0 && o.LeaseDuration < minLease {
		f.field("lease_duration", o.LeaseDuration, fmt.Sprintf("must be at least %v", minLease))
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"timeout", o.Timeout}, {"stuck_after", o.StuckAfter}, {"max_retry_after", o.MaxRetryAfter}} {
		if d.value < 0 {
			f.field(d.field, d.value, "must not be negative")
		}
	}
	return f.err()
}

// checkName checks the name of a kind, a queue or a schedule.
func checkName(field, value string) error {
	if !isName(value, maxName) {
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

// isText reports whether s can be kept as TEXT and shown by any tool.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// isNil reports whether v is nil or a nil pointer.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// jobOptions checks the priority, the times and the unique key of a job; place goes
// before the names of the fields.
func (f *faults) jobOptions(place string, o *JobOptions) {
	if o.Priority < minPriority || o.Priority > maxPriority {
		f.field(place+"priority", o.Priority, fmt.Sprintf("must be between %d and %d", minPriority, maxPriority))
	}
	if y := o.DueAt.UTC().Year(); !o.DueAt.IsZero() && (y < 1970 || y > 9999) {
		f.field(place+"due_at", o.DueAt, "must be in the years 1970 to 9999")
	}
	switch {
	case o.Delay < 0:
		f.field(place+"delay", o.Delay, "must not be negative")
	case o.Delay > 0 && !o.DueAt.IsZero():
		f.field(place+"delay", o.Delay, "must be zero if due_at is set")
	}
	// The store keeps microseconds: less would silently become no timeout.
	if o.Timeout < 0 || o.Timeout > 0 && o.Timeout < minTimeout {
		f.field(place+"timeout", o.Timeout, fmt.Sprintf("must be zero or at least %v", minTimeout))
	}
	for _, w := range []struct {
		field  string
		length time.Duration
	}{{"start_within", o.StartWithin}, {"finish_within", o.FinishWithin}} {
		if w.length != 0 && (w.length < minWindow || w.length > maxWindow) {
			f.field(place+w.field, w.length, "must be zero or "+windowLimit)
		}
	}
	if o.OnExpire != "" && o.OnExpire != Expired && o.OnExpire != Dead {
		f.field(place+"on_expire", string(o.OnExpire), "must be empty, expired or dead")
	}
	if o.Unique != nil {
		if o.Unique.ByArgs && o.Unique.Key != "" {
			f.field(place+"unique.key", o.Unique.Key, "must be empty if by_args is set")
		} else if !o.Unique.ByArgs {
			f.unique(place+"unique.key", o.Unique.Key)
		}
		f.onConflict(place+"unique.", o)
	}
	if o.Group != "" {
		f.group(place+"group", o.Group)
	}
}

func (f *faults) unique(field, key string) {
	switch {
	case key == "":
		f.field(field, key, "must not be empty")
	case len(key) > maxUnique:
		f.field(field, key, fmt.Sprintf("must be at most %d bytes", maxUnique))
	case !isText(key):
		f.field(field, key, "must be valid UTF-8 without NUL")
	}
}

// kind checks the kind of args and their type, and returns the kind.
func (f *faults) kind(place string, args Args, types *argsTypes) string {
	kind := args.Kind()
	if err := checkName(place+"kind", kind); err != nil {
		f.add(err)
		return kind
	}
	if isReservedKind(kind) {
		f.field(place+"kind", kind, reservedKind)
		return kind
	}
	t := reflect.TypeOf(args)
	if isRaw(t) {
		return kind
	}
	switch x := types.of(t); {
	case kind != x.kind:
		f.field(place+"kind", kind, fmt.Sprintf("must be the same for every value of %v, whose zero value has %q", t, x.kind))
	case x.taken != nil:
		f.field(place+"kind", kind, fmt.Sprintf("must be of one type: %v has it, and %v", x.taken, deref(t)))
	case x.hidden:
		f.field(place+"args", t.String(), hiddenLimit)
	case x.tags != nil:
		f.field(place+"args", t.String(), x.tags.Error())
	case x.misfit:
		f.field(fmt.Sprintf("%sjob_defaults[%q]", place, kind), t.String(), "must have the method JobDefaults() errand.JobOptions, and not on its pointer alone")
	}
	return kind
}

// args returns args as JSON, checked.
func (f *faults) args(field string, args Args, limit int) []byte {
	b := f.json(field, args)
	switch {
	case len(b) > limit:
		f.add(&FieldError{Field: field, Value: len(b), Limit: fmt.Sprintf("must be at most %d bytes of JSON", limit), most: limit})
	case !utf8.Valid(b):
		f.field(field, fmt.Sprintf("%T", args), "must marshal to valid UTF-8")
	case bytes.Contains(b, []byte(`\ufffd`)):
		// encoding/json writes this for invalid bytes. The handler would get
		// other args than those that were enqueued.
		if path, s, ok := findInvalid(reflect.ValueOf(args), field); ok {
			f.field(path, s, "must be valid UTF-8")
		}
	}
	return b
}

// headers returns h as JSON, checked.
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
	f.depth(field, b, 0)
	return b
}

// maxDepth is how deep arrays and objects of JSON may be in each other. encoding/json reads JSON
// up to a depth of 10,000, and so would not read a document around what is nearly as deep.
const maxDepth = 1000

// depth checks how deep JSON is that will be within others.
func (f *faults) depth(field string, b []byte, within int) {
	if len(b) <= 2*(maxDepth-within) { // each array and object has two brackets
		return
	}
	depth, deepest, text := within, within, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	if deepest > maxDepth {
		f.field(field, fmt.Sprintf("nested %d deep", deepest), fmt.Sprintf("must be nested at most %d deep", maxDepth))
	}
}

// policy checks a policy of a queue, or of Options.
func (f *faults) policy(field string, d policy.Delivery) {
	if isNil(d) {
		return
	}
	err := d.Validate()
	all := policy.Faults(err)
	if err != nil && len(all) == 0 {
		f.add(&FieldError{Field: field, Value: fmt.Sprintf("%T", d), Limit: "must be valid", Err: err})
	}
	for _, fault := range all {
		f.field(field+"."+snake(fault.Path), fieldValue(d, fault), fault.Want)
	}
}

// override checks a policy of a kind or a job, and returns its document if it
// has no fault.
func (f *faults) override(field string, d policy.Delivery) policy.Document {
	before := f.n()
	f.policy(field, d)
	t, _ := delivery(d)
	if t.DisableSubscriptionOverrides {
		f.field(field+".disable_subscription_overrides", true, "must be false: only a queue's policy disables those of kinds and jobs")
	}
	if f.n() > before {
		return policy.Document{}
	}
	return t.Document
}

// delivery returns the topic that d stands for. It is not ok if d is nil or a
// nil pointer.
func delivery(d policy.Delivery) (t policy.Topic, ok bool) {
	if isNil(d) {
		return policy.Topic{}, false
	}
	return d.Delivery(), true
}

// fieldValue returns the value that a fault is about, or else its text.
func fieldValue(d policy.Delivery, fault *policy.Fault) any {
	v := reflect.Indirect(reflect.ValueOf(d))
	for name := range strings.SplitSeq(fault.Path, ".") {
		if v.Kind() != reflect.Struct {
			return fault.Value
		}
		v = reflect.Indirect(v.FieldByName(name))
	}
	if !v.IsValid() {
		return fault.Value
	}
	return v.Interface()
}

// snake returns the name of a Go field in the form that paths of fields have.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && name[i-1] != '.' {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func (f *faults) rules(field string, rules policy.Rules) {
	for i, r := range rules {
		if r == nil {
			f.field(fmt.Sprintf("%s[%d]", field, i), nil, "must not be nil")
		}
	}
}

func (f *faults) budget(field string, o *policy.BudgetOptions) {
	if o == nil {
		return
	}
	for _, n := range []struct {
		name  string
		value float64
		least float64
		limit string
	}{
		{"capacity", o.Capacity, 0, "must be at least 0"},
		{"retry_cost", o.RetryCost, 0, "must be at least 0"},
		{"timeout_cost", o.TimeoutCost, 0, "must be at least 0"},
		{"first_refund", o.FirstRefund, -math.MaxFloat64, "must be a number"},
		// Where every job may be a retry, nothing else would pay in again.
		{"retries_per_second", o.RetriesPerSecond, 0, "must be at least 0"},
	} {
		if !(n.value >= n.least && n.value <= math.MaxFloat64) {
			f.field(field+"."+n.name, n.value, n.limit)
		}
	}
}

// logDoubts logs what policy.Lint says of a valid policy.
func logDoubts(log *slog.Logger, of string, d policy.Delivery) {
	t, _ := delivery(d)
	for _, p := range []struct {
		of     string
		policy *policy.Policy
	}{{of, t.Retry}, {of + ", when throttled", t.ThrottledRetry}} {
		if p.policy == nil {
			continue
		}
		for _, doubt := range p.policy.Lint() {
			log.Warn("errand: doubtful policy", "of", p.of, "doubt", doubt)
		}
	}
}

// checkOptions checks the options of a job, whose queue r has if it is known, and sets in r
// what is not stored as it is: policy, tags and headers.
func (q *Queue) checkOptions(f *faults, place string, o *JobOptions, r *storage.NewJob) {
	if r.Queue != "" {
		f.queue(place+"queue", r.Queue, &q.opts)
	}
	f.jobOptions(place, o)
	if !isNil(o.Policy) {
		// A document without sections sets nothing and is not stored.
		if d := f.override(place+"policy", o.Policy); d != (policy.Document{}) {
			r.Policy = f.json(place+"policy", d)
		}
	}
	f.origin(place+"origin", o.Origin, true)
	r.Tags = append(f.tags(place, o.Tags), storage.FromTags(o.Origin)...)
	if len(o.Headers) > 0 {
		r.Headers = f.headers(place+"headers", o.Headers, q.opts.MaxHeaders)
	}
}
