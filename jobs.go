package errand

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
)

// JobInfo is all that is known of a job. Fields that do not apply to its state
// are zero.
type JobInfo struct {
	ID       ID     `json:"id"`
	Queue    string `json:"queue"`
	Kind     string `json:"kind"`
	State    State  `json:"state"`
	Priority int    `json:"priority"`
	// Attempt, Retry, Crashes and Snoozes are the four counters, see [Job].
	Attempt int `json:"attempt"`
	Retry   int `json:"retry"`
	Crashes int `json:"crashes,omitempty"`
	Snoozes int `json:"snoozes,omitempty"`

	CreatedAt time.Time     `json:"created_at"`
	DueAt     time.Time     `json:"due_at,omitzero"`
	EndedAt   time.Time     `json:"ended_at,omitzero"`   // when it was finished or died
	Timeout   time.Duration `json:"timeout_s,omitempty"` // the job's own
	// StartedAt is when the handler of a running job was called. It is zero for a job that
	// waits for a free place of its worker, or if the time is not known.
	StartedAt time.Time `json:"started_at,omitzero"`
	// StartBy is the time before which the first attempt has to begin, and Deadline that for
	// any attempt, see [JobOptions].StartWithin. They are zero if there is none, or if it no
	// longer matters. They may move later if the clock was not believed at the enqueue.
	StartBy  time.Time `json:"start_by,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	OnExpire State     `json:"on_expire,omitempty"`
	Unique   string    `json:"unique,omitempty"` // the key, without the kind
	Group    string    `json:"group,omitempty"`
	// Cancelling is true if the job is running and has been cancelled.
	Cancelling bool `json:"cancelling,omitempty"`
	// Reason is why the job is dead.
	Reason Reason `json:"reason,omitempty"`
	// Error is the last error.
	Error string `json:"error,omitempty"`
	// Unreached is true if the job waits, and its last attempt could not reach the other
	// side and cost it no retry, see [Unavailable].
	Unreached bool `json:"unreached,omitempty"`
	// Policy is the job's own policy, or nil. For a dead job it is the policy that
	// was in effect at its end.
	Policy *policy.Document `json:"policy,omitempty"`
	// Args are as they were enqueued, or as [Queue.Change] has left them.
	Args json.RawMessage `json:"args,omitempty"`
	// ArgsBytes is how many bytes Args have if [ListOptions].MaxArgs has left them out; else zero.
	ArgsBytes int64             `json:"args_bytes,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	// Origin is where the job came from if it was passed on, see [JobOptions].Origin; zero if not.
	Origin Origin `json:"origin,omitzero"`
	// Tags are sorted; nil if there are none. A job that was imported from another queue has one
	// more, "errand.origin:" and its ID there.
	Tags []string `json:"tags,omitempty"`
	// Parent is the job with whose end this one was enqueued, see [Job.Then]. It is zero if
	// there is none.
	Parent ID `json:"parent,omitzero"`
	// Checkpoint is the last checkpoint of a job that has not ended, or is dead, and Result
	// the result of a job that is done: see [Job.Checkpoint] and [Job.SetResult].
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	// Progress is how far the job has got, see [Job.Progress]; nil if that is not known.
	Progress *Progress `json:"progress,omitempty"`
	// History has the last failures and changes of args, the oldest first, at most 20.
	History []Failure `json:"history,omitempty"`
}

// MarshalJSON writes durations in seconds.
func (j JobInfo) MarshalJSON() ([]byte, error) { return seconds.Marshal(j) }

// UnmarshalJSON reads what MarshalJSON writes.
func (j *JobInfo) UnmarshalJSON(data []byte) error { return seconds.Unmarshal(data, j) }

// JobFilter selects jobs. A job is selected if it matches all fields that are not zero. A
// call refuses a field that none of the jobs it is about can match. Bulk jobs, see
// [Queue.StartBulk], are selected only if IDs, Queue or Kind is set.
type JobFilter struct {
	// IDs names the jobs, at most 10,000; no other field may be set with them.
	IDs    []ID
	States []State // one of these
	Queue  string
	Kind   string
	Group  string // JobOptions.Group, of Queue, which must be set too
	Tag    string // one of JobOptions.Tags
	// Parent is the job with whose end these were enqueued, see [Job.Then]. It excludes Tag.
	Parent ID
	// Origin is where the jobs came from: with an empty ID all of the device, else those with this
	// ID there. It excludes Tag and Parent.
	Origin Origin
	// CreatedFrom and CreatedBefore bound the time when a job was enqueued, DueFrom
	// and DueBefore the time when a scheduled, ready or blocked job is due. CreatedFrom and
	// DueFrom are included, CreatedBefore and DueBefore are not.
	CreatedFrom   time.Time
	CreatedBefore time.Time
	DueFrom       time.Time
	DueBefore     time.Time
	Reason        Reason // of dead letters
	Cause         int64  // the ID of a [Cause] of dead letters
	// EndedFrom and EndedBefore bound the time when a job ended, which for a dead
	// letter is its death: EndedFrom is included, EndedBefore is not.
	EndedFrom   time.Time
	EndedBefore time.Time
	// OlderThan is the least time since the end. It excludes EndedBefore.
	OlderThan time.Duration
	// Error must occur in the last error, in any ASCII case; at most 1,024 bytes.
	Error string
	// All selects every job that the call is about, such as every dead letter. Purge,
	// Delete, RunNow, Change and CancelAll demand it if no other field is set. No other
	// field may be set with it.
	All bool
}

const (
	defaultPage = 100
	maxPage     = 1000
	maxIDs      = 10_000
	// idStep is how many jobs named by ID are changed in one transaction. So few
	// hold the writer only for a moment.
	idStep   = 250
	maxMatch = 1024
	maxTag   = 64
	maxTags  = 8
)

// allStates are the states of jobs, those that end last.
var allStates = []State{Scheduled, Ready, Blocked, Running, Done, Cancelled, Expired, Dead}

// narrows reports whether a field other than All is set.
func (f *JobFilter) narrows() bool { return len(f.IDs) > 0 || f.matches() }

func (f *JobFilter) matches() bool {
	return len(f.States) > 0 || f.Queue != "" || f.Kind != "" || f.Group != "" || f.Tag != "" || !f.Parent.IsZero() || f.Origin != (Origin{}) || f.Reason != "" || f.Cause != 0 || f.Error != "" || f.OlderThan != 0 ||
		!f.CreatedFrom.IsZero() || !f.CreatedBefore.IsZero() || !f.DueFrom.IsZero() || !f.DueBefore.IsZero() ||
		!f.EndedFrom.IsZero() || !f.EndedBefore.IsZero()
}

// selection checks a filter of a call that is about jobs in some states, and returns it as
// the store takes it. Its States are among these, or empty for all of them.
func (q *Queue) selection(f *faults, filter JobFilter, about ...State) storage.Selection {
	if filter.All && filter.narrows() {
		f.field("all", true, "must be the only condition")
	}
	if filter.IDs != nil && len(filter.IDs) == 0 {
		// Most likely a list that has turned out empty, which is not everything.
		f.field("ids", 0, "must not be empty: nil does not select by ID")
	}
	if len(filter.IDs) > 0 {
		if filter.matches() {
			f.field("ids", len(filter.IDs), "must be the only condition")
		}
		if len(filter.IDs) > maxIDs {
			f.field("ids", len(filter.IDs), fmt.Sprintf("must be at most %d in one call", maxIDs))
		}
		return storage.Selection{IDs: distinct(filter.IDs)}
	}
	f.filter(&filter, about)
	tag := filter.Tag
	if !filter.Parent.IsZero() {
		tag = storage.ParentTag(filter.Parent)
	}
	if tags := storage.FromTags(filter.Origin); len(tags) > 0 {
		tag = tags[len(tags)-1]
	}
	before := filter.EndedBefore
	if filter.OlderThan > 0 {
		before = q.clock.Now().Add(-filter.OlderThan).Truncate(time.Microsecond).Add(time.Microsecond)
	}
	return storage.Selection{Filter: storage.Filter{
		States: distinct(filter.States), Queue: filter.Queue, Kind: filter.Kind, Group: filter.Group, Tag: tag, Reason: filter.Reason, Cause: filter.Cause,
		CreatedFrom: filter.CreatedFrom, CreatedBefore: filter.CreatedBefore, DueFrom: filter.DueFrom, DueBefore: filter.DueBefore,
		EndedFrom: filter.EndedFrom, EndedBefore: before, Error: filter.Error,
	}}
}

// filter checks the conditions of a filter for jobs in some states.
func (f *faults) filter(filter *JobFilter, about []State) {
	for i, s := range filter.States {
		if !slices.Contains(about, s) {
			f.field(fmt.Sprintf("states[%d]", i), string(s), "must be one of "+list(about))
		}
	}
	if filter.Queue != "" {
		f.add(checkName("queue", filter.Queue))
	}
	if filter.Kind != "" {
		f.add(checkName("kind", filter.Kind))
	}
	if f.group("group", filter.Group); filter.Group != "" && filter.Queue == "" {
		f.field("queue", "", "must be set with group: a group is one of its queue")
	}
	if filter.Tag != "" {
		if f.tag("tag", filter.Tag); !filter.Parent.IsZero() {
			f.field("tag", filter.Tag, "must be empty if parent is set")
		}
	}
	if f.origin("origin", filter.Origin, false); filter.Origin != (Origin{}) && (filter.Tag != "" || !filter.Parent.IsZero()) {
		f.field("origin.device", filter.Origin.Device, "must be empty if tag or parent is set")
	}
	switch filter.Reason {
	case "", ReasonExhausted, ReasonPermanent, ReasonCrashed, ReasonSnoozed, ReasonDecode, ReasonUnavailable, ReasonExpired, ReasonDeadline:
	default:
		f.field("reason", string(filter.Reason), "must be one of exhausted, permanent, crashed, snoozed, unavailable, decode, expired, deadline")
	}
	if filter.Cause < 0 {
		f.field("cause", filter.Cause, "must be the ID of a cause")
	}
	if len(filter.Error) > maxMatch || !isText(filter.Error) {
		f.field("error", filter.Error, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxMatch))
	}
	f.period("created", filter.CreatedFrom, filter.CreatedBefore)
	f.period("due", filter.DueFrom, filter.DueBefore)
	f.period("ended", filter.EndedFrom, filter.EndedBefore)
	switch {
	case filter.OlderThan < 0:
		f.field("older_than", filter.OlderThan, "must not be negative")
	case filter.OlderThan > 0 && !filter.EndedBefore.IsZero():
		f.field("older_than", filter.OlderThan, "must be zero if ended_before is set")
	}
	if len(filter.States) > 0 {
		about = filter.States
	}
	f.pointless(filter, about)
}

// pointless checks what no job in one of the states can match.
func (f *faults) pointless(filter *JobFilter, states []State) {
	has := func(of ...State) bool {
		return slices.ContainsFunc(of, func(s State) bool { return slices.Contains(states, s) })
	}
	zero := func(field string, value any, is bool, limit string) {
		if !is {
			f.field(field, value, limit)
		}
	}
	const ended, waits = "must be zero: only jobs that have ended match", "must be zero: only scheduled, ready and blocked jobs match"
	if !has(Dead) {
		zero("reason", string(filter.Reason), filter.Reason == "", ended)
		zero("cause", filter.Cause, filter.Cause == 0, ended)
	}
	if !has(Done, Cancelled, Expired, Dead) {
		zero("ended_from", filter.EndedFrom, filter.EndedFrom.IsZero(), ended)
		zero("ended_before", filter.EndedBefore, filter.EndedBefore.IsZero(), ended)
		zero("older_than", filter.OlderThan, filter.OlderThan == 0, ended)
	}
	if !has(Scheduled, Ready, Blocked) {
		zero("due_from", filter.DueFrom, filter.DueFrom.IsZero(), waits)
		zero("due_before", filter.DueBefore, filter.DueBefore.IsZero(), waits)
	}
}

// some checks that a filter has a condition, or says that it has none.
func (f *faults) some(filter *JobFilter) {
	if !filter.All && !filter.narrows() {
		f.field("all", false, "must be true if there is no other condition")
	}
}

// tag checks the form of a tag.
func (f *faults) tag(field, tag string) {
	if id, ok := strings.CutPrefix(tag, messageTag); ok && isMessageID(id) {
		return // of the jobs of a message
	}
	if from, ok := strings.CutPrefix(tag, fromTag); ok {
		device, id, whole := strings.Cut(from, ",")
		f.origin(field, Origin{Device: device, ID: id}, whole)
		return
	}
	if !isName(tag, maxTag) {
		f.field(field, tag, "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
	}
}

// isName reports whether s has the form of a name of at most n bytes.
func isName(s string, n int) bool {
	ok := s != "" && len(s) <= n && isAlnum(s[0])
	for i := 0; ok && i < len(s); i++ {
		ok = isAlnum(s[i]) || strings.IndexByte("._:/-", s[i]) >= 0
	}
	return ok
}

// tags checks tags and returns them sorted, once each, and nil for none. place goes before
// the name of the field.
func (f *faults) tags(place string, tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	field := place + "tags"
	for i, tag := range tags {
		place := fmt.Sprintf("%s[%d]", field, i)
		f.tag(place, tag)
		for _, own := range []struct{ tag, of string }{
			{parentTag, "those of Job.Then do"}, {messageTag, "those of Topics.Publish do"}, {importTag, "those of jobs that were imported do"},
			{fromTag, "those of JobOptions.Origin do"},
		} {
			if strings.HasPrefix(tag, own.tag) {
				f.field(place, tag, fmt.Sprintf("must not begin with %q, as %s", own.tag, own.of))
			}
		}
	}
	tags = slices.Compact(slices.Sorted(slices.Values(tags)))
	if len(tags) > maxTags {
		f.field(field, len(tags), fmt.Sprintf("must be at most %d", maxTags))
	}
	return tags
}

// origin checks where a job came from, which may be zero. Unless it is whole, its ID may be missing.
func (f *faults) origin(field string, o Origin, whole bool) {
	if o == (Origin{}) {
		return
	}
	f.add(checkName(field+".device", o.Device))
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(o.ID) > maxName || o.ID == "" && whole || strings.ContainsFunc(o.ID, hidden) {
		f.field(field+".id", o.ID, fmt.Sprintf("must be 1 to %d visible ASCII characters without spaces", maxName))
	}
}

// period checks the bounds of a time.
func (f *faults) period(name string, from, before time.Time) {
	if !before.IsZero() && before.Before(from) {
		f.field(name+"_before", before, "must not be before "+name+"_from "+from.Format(time.RFC3339Nano))
	}
}

// jobInfo returns a record as the public API shows it. If a field does not decode,
// which this package did not write then, it returns an error beside the rest.
func jobInfo(r *storage.Record) (JobInfo, error) {
	j := JobInfo{
		ID: r.ID, Queue: r.Queue, Kind: r.Kind, State: r.State, Priority: r.Priority,
		Attempt: r.Attempt, Retry: r.Retry, Crashes: r.Crashes, Snoozes: r.Snoozes,
		CreatedAt: r.CreatedAt, DueAt: r.DueAt, EndedAt: r.EndedAt, StartedAt: r.StartedAt, Timeout: r.Timeout,
		StartBy: r.StartBy, Deadline: r.Deadline, OnExpire: r.OnExpire,
		Unique: ownKey(r.Kind, r.Unique), Cancelling: r.Cancelling,
		Group: r.Group, Reason: r.Reason, Error: r.Error, Unreached: r.Unreached, Args: r.Args, ArgsBytes: r.ArgsBytes, Tags: r.Tags, History: r.History,
		Checkpoint: r.Checkpoint, Result: r.Result, Progress: r.Progress,
	}
	j.Origin, j.Tags = storage.OriginOf(r.Tags)
	j.Parent, j.Tags = parentOf(j.Tags)
	var f faults
	of := fmt.Sprintf("job %v", r.ID)
	j.Policy, j.Headers = f.storedPolicy(of, r.Policy), f.storedHeaders(of, r.Headers)
	return j, f.err()
}

// jobInfoOf is jobInfo for what the store has returned.
func jobInfoOf(r *storage.Record, err error) (JobInfo, error) {
	if err != nil {
		return JobInfo{}, err
	}
	return jobInfo(r)
}

// parentTag begins the tags that name a parent, importTag those that say where jobs were
// imported from, and fromTag those of an [Origin].
var (
	parentTag, _, _ = strings.Cut(storage.ParentTag(ID{}), ID{}.String())
	importTag, _, _ = strings.Cut(storage.ImportTag(ID{}), ID{}.String())
	fromTag, _, _   = strings.Cut(storage.FromTags(Origin{Device: "?"})[0], "?")
)

// parentOf returns the parent that one of the tags names, and the other tags.
func parentOf(tags []string) (parent ID, others []string) {
	i := slices.IndexFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, parentTag) })
	if i < 0 || parent.UnmarshalText([]byte(tags[i][len(parentTag):])) != nil {
		return ID{}, tags
	}
	if len(tags) == 1 {
		return parent, nil
	}
	return parent, slices.Delete(slices.Clone(tags), i, i+1)
}

// storedHeaders reads the headers that are stored with a job or a schedule.
func (f *faults) storedHeaders(of string, b []byte) (h map[string]string) {
	if b != nil {
		if err := json.Unmarshal(b, &h); err != nil {
			f.add(fmt.Errorf("errand: headers of %s: %w", of, err))
		}
	}
	return h
}

// storedPolicy reads the policy that is stored with a job or a schedule.
func (f *faults) storedPolicy(of string, b []byte) *policy.Document {
	if b == nil {
		return nil
	}
	var t policy.Topic
	if err := json.Unmarshal(b, &t); err != nil {
		f.add(fmt.Errorf("errand: policy of %s: %w", of, err))
		return nil
	}
	return &t.Document
}
