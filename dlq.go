package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/errandq/errand/internal/bulk"
	"github.com/errandq/errand/storage"
)

// Reason is why a job is dead.
type Reason = storage.Reason

// The reasons.
const (
	ReasonExhausted = storage.ReasonExhausted // no retry left
	ReasonPermanent = storage.ReasonPermanent // the handler said so
	ReasonCrashed   = storage.ReasonCrashed   // its process died too often
	ReasonSnoozed   = storage.ReasonSnoozed   // snoozed too often
	// ReasonExpired: see JobOptions.OnExpire.
	ReasonExpired = storage.ReasonExpired
	// ReasonDeadline: see JobOptions.FinishWithin.
	ReasonDeadline = storage.ReasonDeadline
	// ReasonUnavailable: see HandlerOptions.MaxUnavailable.
	ReasonUnavailable = storage.ReasonUnavailable
	ReasonDecode      = storage.ReasonDecode // no retry left, and the args did not decode
)

// DeadLetters lists, redrives and purges the dead letters of a queue: jobs that were
// exhausted or refused. They are kept until they are redriven or purged, or evicted by a
// cap, see [Settings].MaxDead. It is safe for concurrent use.
type DeadLetters struct{ q *Queue }

// DeadLetters returns the dead letters of the queue.
func (q *Queue) DeadLetters() *DeadLetters { return &DeadLetters{q} }

// Cause is what dead letters have in common: the queue and the kind in which they died, the
// reason, and the text of their last error without what differs from job to job. In Text a #
// stands for each number, hash, UUID or address, and … for what was quoted. N is how many of
// these letters are dead, Last is when the last of them died, and Job is the ID of that last
// one. [JobFilter].Cause takes the ID, which is given only once.
//
// First is when the first job died of the cause, even if that job was redriven, purged or
// evicted since. Once no job is dead of a cause, the cause is gone. If the error comes again,
// that is another cause, with another ID and First.
//
// Errors are counted as jobs die. A queue has at most 1,000 causes of one kind; all
// further ones are counted as one for each reason, with the text "other".
type Cause = storage.Cause

// CauseOptions select causes. Nil and the zero value mean defaults.
type CauseOptions struct {
	// Lane is where the jobs died. If a name is empty, in any queue, or of any kind.
	Lane Lane
	// Limit is how many causes are returned at most, up to 10,000. If zero, 100.
	Limit int
	// Hours also counts when the dead letters died, in the current hour and the 23 before it,
	// for the first 20 causes: see [Cause].Hours, which is nil for the other causes. At most
	// 200 deaths of each hour are counted. If false, nothing is counted.
	Hours bool
}

const (
	defaultCauses = 100
	maxCauses     = 10_000
	// What Hours counts is read by an index, for each viewer of a page anew.
	hoursCauses  = 20
	hoursCounted = 24
	hoursMost    = 200
)

// Causes returns what the dead letters died of, the most frequent cause first. It takes
// as long for ten thousand dead letters of a cause as for one; with Hours, a little longer.
func (d *DeadLetters) Causes(ctx context.Context, o *CauseOptions) ([]Cause, error) {
	o = cmp.Or(o, &CauseOptions{})
	var f faults
	if o.Lane.Queue != "" {
		f.add(checkName("lane.queue", o.Lane.Queue))
	}
	if o.Lane.Kind != "" {
		f.add(checkName("lane.kind", o.Lane.Kind))
	}
	if o.Limit < 0 || o.Limit > maxCauses {
		f.field("limit", o.Limit, fmt.Sprintf("must be between 0 and %d", maxCauses))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	all, err := d.q.store.Causes(ctx, o.Lane, cmp.Or(o.Limit, defaultCauses))
	if err != nil || !o.Hours {
		return all, err
	}
	from := d.q.clock.Now().UTC().Truncate(time.Hour).Add(-(hoursCounted - 1) * time.Hour)
	var ids []int64
	for i := range all[:min(len(all), hoursCauses)] {
		ids = append(ids, all[i].ID)
	}
	if len(ids) == 0 {
		return all, nil
	}
	died, err := d.q.store.Deaths(ctx, ids, from, time.Hour, hoursCounted, hoursMost)
	if err != nil {
		return nil, err
	}
	for i := range died {
		all[i].Hours = &storage.CauseHours{From: from, Died: died[i], Most: hoursMost}
	}
	return all, nil
}

// RedriveOptions configure a redrive. Nil and the zero value mean defaults.
type RedriveOptions struct {
	// Queue is where the jobs go. If empty, each job goes to the queue it came
	// from.
	Queue string
	// FromStart drops the checkpoints of the jobs, see [Job.Checkpoint]. If false, the jobs
	// go on where they had got to.
	FromStart bool
	// Change changes each job in the transaction that puts it back, as [Queue.Change] does. A
	// job that stays dead is not changed. DueAt, Delay and Queue must be zero. If nil, the jobs
	// stay as they are.
	Change *JobChange
}

// RedriveResult is the result of a redrive.
type RedriveResult struct {
	// Redriven is how many jobs were put back.
	Redriven int `json:"redriven"`
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID `json:"duplicates,omitempty"`
	// NotFound are the jobs of JobFilter.IDs that are not dead.
	NotFound []ID `json:"not_found,omitempty"`
}

// Get returns all that is known of a dead letter. It returns [ErrNotFound] for a
// job that is not dead.
func (d *DeadLetters) Get(ctx context.Context, id ID) (JobInfo, error) {
	r, err := d.q.store.Job(ctx, id)
	j, err := jobInfoOf(&r, err)
	if err != nil {
		return JobInfo{}, err
	}
	if j.State != Dead {
		return JobInfo{}, fmt.Errorf("%w among the dead letters: job %v is %s", ErrNotFound, id, j.State)
	}
	return j, nil
}

// Redrive makes the dead letters that match ready again, the earliest death first; those of
// a group in the order in which they were enqueued.
// The retry index, crashes and snoozes of a job are reset to zero; attempts and
// history are kept. The zero filter selects all dead letters. Jobs that die while
// Redrive runs are left out, so that a job that fails at once is not redriven for
// ever.
//
// It works in short transactions, between which others write. With an error the
// result says what was done before; that stays done.
func (d *DeadLetters) Redrive(ctx context.Context, filter JobFilter, o *RedriveOptions) (RedriveResult, error) {
	o = cmp.Or(o, &RedriveOptions{})
	var f faults
	order := d.q.order(&f, BulkRedrive, filter)
	d.q.redrive(&f, "", order, o)
	if err := d.q.checked(ctx, &f, "change.", order, o.Change); err != nil {
		return RedriveResult{}, err
	}
	var r RedriveResult
	err := d.q.perform(ctx, order, func(step *storage.Step) {
		r.Redriven += step.N
		r.Duplicates = append(r.Duplicates, step.Duplicates...)
		r.NotFound = append(r.NotFound, step.NotFound...)
	})
	return r, err
}

// redrive checks the options of a redrive, which are at place in what the caller wrote, and puts them
// into an order.
func (q *Queue) redrive(f *faults, place string, order *bulk.Order, o *RedriveOptions) {
	if order.To, order.FromStart = o.Queue, o.FromStart; o.Queue != "" {
		f.queue(place+"queue", o.Queue, &q.opts)
	}
	if o.Change == nil {
		return
	}
	c := *o.Change
	place += "change."
	if !c.DueAt.IsZero() {
		f.field(place+"due_at", c.DueAt, "must be zero: a job that is redriven is due at once")
	}
	if c.Delay != 0 {
		f.field(place+"delay", c.Delay, "must be zero: a job that is redriven is due at once")
	}
	if c.Queue != "" {
		f.field(place+"queue", c.Queue, "must be empty: set the queue of the redrive")
	}
	if c.DueAt, c.Delay, c.Queue = (time.Time{}), 0, ""; !c.isZero() {
		q.edit(f, place, order, &c)
		order.With, order.Edit = order.Edit, nil
	}
}

// Purge deletes the dead letters that match for good, and returns their number. For
// the zero filter it returns [ErrPurgeAll]: set JobFilter.All to delete all of
// them. Like Redrive it works in short transactions. With an error it returns how
// many jobs were deleted before. [Queue.Delete] also deletes finished jobs.
func (d *DeadLetters) Purge(ctx context.Context, filter JobFilter) (int, error) {
	if !filter.All && !filter.narrows() {
		return 0, ErrPurgeAll
	}
	var f faults
	o := d.q.order(&f, BulkRedrive, filter)
	o.Do, o.Filter.States = bulk.Delete, []State{Dead} // also of those named by ID
	if err := f.err(); err != nil {
		return 0, err
	}
	n := 0
	err := d.q.perform(ctx, o, func(step *storage.Step) { n += step.N })
	return n, err
}

// OnDead enqueues a job when another one dies, in the transaction of that death: for each
// death there is exactly one, whatever happens to the process. Its args are a
// [DeadNotice], and it is a job as any other, with a policy of its kind.
//
// The OnDead of a kind goes before that of a queue. Jobs of the kinds that an OnDead of
// this process names have no notice when they die, so that no chain is endless. The job
// does not go through [Options].Middleware. Of the headers of the dead job it has those that a
// trace is known by: traceparent, tracestate and baggage. It has none if the dead job was
// too late to run, with reason expired or deadline.
type OnDead struct {
	// Kind is the kind of the job. If empty, "errand.dead", the kind of [DeadNotice].
	Kind string
	// Queue is the queue of the job. If empty, "default".
	Queue string
}

const kindDead = "errand.dead"

// DeadNotice says which job has died; see [OnDead]. A type that embeds DeadNotice and has
// a Kind of its own is for notices of that kind.
type DeadNotice struct {
	ID     ID     `json:"id"`
	Queue  string `json:"queue"`
	OfKind string `json:"kind"`
	Reason Reason `json:"reason"`
	// Error is the last error, as that of the dead letter.
	Error string `json:"error,omitempty"`
	// Attempt counts the runs of the handler.
	Attempt   int       `json:"attempt"`
	CreatedAt time.Time `json:"created_at"`
	DiedAt    time.Time `json:"died_at"`
}

// Kind returns "errand.dead".
func (DeadNotice) Kind() string { return kindDead }

// kind and queue return the names with their defaults.
func (o *OnDead) kind() string  { return cmp.Or(o.Kind, kindDead) }
func (o *OnDead) queue() string { return cmp.Or(o.Queue, defaultQueue) }

func (f *faults) onDead(field string, o *OnDead, options *Options, kinds ...string) {
	if o == nil {
		return
	}
	if f.add(checkName(field+".kind", o.kind())); isReservedKind(o.kind()) {
		f.field(field+".kind", o.kind(), reservedKind)
	}
	f.queue(field+".queue", o.queue(), options)
	if slices.Contains(kinds, o.kind()) {
		f.field(field+".kind", o.kind(), "must be another kind than that of the handler")
	}
}

// onDeath returns what makes the job that follows a death, or nil if none does. No handler
// is registered any more.
func (w *Worker) onDeath() func(*storage.Leased, *storage.Finish, time.Time) *storage.NewJob {
	kinds, options, follows := w.onDead, &w.queue.opts, len(w.onDead) > 0
	for _, o := range options.Queues {
		follows = follows || o.OnDead != nil
	}
	if !follows {
		return nil
	}
	return func(job *storage.Leased, f *storage.Finish, at time.Time) *storage.NewJob {
		o := options.optionsOf(job.Queue).OnDead
		if !w.takesAll(job.Queue) {
			o = cmp.Or(kinds[job.Kind], o)
		}
		if _, notice := w.queue.notices.Load(job.Kind); notice || o == nil {
			return nil
		}
		c := f.Effect(false).Counters(job.Counters)
		args, err := json.Marshal(DeadNotice{
			ID: job.ID, Queue: job.Queue, OfKind: job.Kind, Reason: f.Reason, Error: f.Error, Attempt: c.Attempt,
			CreatedAt: job.CreatedAt.UTC(), DiedAt: at.UTC().Truncate(time.Microsecond),
		})
		if err != nil { // a year that JSON does not have
			args = []byte("{}")
		}
		return &storage.NewJob{Queue: o.queue(), Kind: o.kind(), Args: args, Headers: traceOf(job.Headers)}
	}
}

// traceOf returns of stored headers those of W3C Trace Context and W3C Baggage, or nil.
func traceOf(stored []byte) []byte {
	var all map[string]string
	if len(stored) == 0 || json.Unmarshal(stored, &all) != nil {
		return nil
	}
	maps.DeleteFunc(all, func(name, _ string) bool { return name != "traceparent" && name != "tracestate" && name != "baggage" })
	kept, err := json.Marshal(all)
	if err != nil || len(all) == 0 {
		return nil
	}
	return kept
}

// Import is [door.Import]. It looks and writes in one transaction, so that two imports of the
// same jobs at a time are as one after the other.
func (t *topics) Import(ctx context.Context, jobs []NewJob, from []ID) (added []Enqueued, before []bool, err error) {
	q := t.queue
	if len(jobs) > maxEnqueue {
		return nil, nil, tooMany(len(jobs))
	}
	s, ok := q.store.(tagged)
	if !ok {
		return nil, nil, fmt.Errorf("%w: store %T does not find tags in a transaction", ErrUnsupportedDB, q.store)
	}
	defer q.awaits.changed()
	added, err = q.enqueue(ctx, jobs, indexed, func(ctx context.Context, now time.Time, records []storage.NewJob) (all []Enqueued, err error) {
		err = s.Tx(ctx, func(tx any) (err error) {
			all, before, err = importTx(ctx, s, tx, now, records, from)
			return err
		})
		if err == nil {
			q.events.tellEnqueued(now, records, all)
		}
		return all, err
	})
	if err != nil {
		return nil, nil, err
	}
	return added, before, nil
}

// tagged is a store that finds tags in a transaction.
type tagged interface {
	storage.TxEnqueuer
	TaggedTx(ctx context.Context, tx any, tags []string) ([]bool, error)
}

// tooMany is the error of a call with more than maxEnqueue jobs.
func tooMany(n int) error {
	return &FieldError{Field: "jobs", Value: n, Limit: fmt.Sprintf("must be at most %d in one call", maxEnqueue)}
}

// importTx enqueues the jobs that did not come in before. Of two from one job the second did, unless
// the first is a duplicate by its unique key: then both are.
func importTx(ctx context.Context, s tagged, tx any, now time.Time, records []storage.NewJob, from []ID) (all []Enqueued, before []bool, err error) {
	tags := make([]string, len(from))
	for i, id := range from {
		tags[i] = storage.ImportTag(id)
	}
	there, err := s.TaggedTx(ctx, tx, tags)
	if err != nil {
		return nil, nil, err
	}
	all, before = make([]Enqueued, len(records)), make([]bool, len(records))
	var left []storage.NewJob
	var at []int          // in records, of those left
	first := map[ID]int{} // in records
	for i := range records {
		if _, seen := first[from[i]]; there[i] || seen {
			all[i].Duplicate, before[i] = true, true
			continue
		}
		if !from[i].IsZero() {
			first[from[i]], records[i].Tags = i, append(slices.Clone(records[i].Tags), tags[i])
		}
		left, at = append(left, records[i]), append(at, i)
	}
	if len(left) == 0 {
		return all, before, nil
	}
	added, err := s.EnqueueTx(ctx, tx, now, left)
	if err != nil {
		return nil, nil, err
	}
	for i, e := range added {
		all[at[i]] = e
	}
	for i := range before {
		if f, seen := first[from[i]]; seen && before[i] && all[f].Duplicate {
			all[i], before[i] = all[f], false
		}
	}
	return all, before, nil
}
