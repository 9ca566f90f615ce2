package errand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/internal/bulk"
	"github.com/errandq/errand/storage"
)

// BulkAction is what a [Bulk] does to the jobs that its filter selects.
type BulkAction string

// The actions.
const (
	BulkRedrive = BulkAction(bulk.Redrive) // "redrive", as [DeadLetters.Redrive]
	BulkRunNow  = BulkAction(bulk.RunNow)  // "run-now", as [Queue.RunNow]
	BulkChange  = BulkAction(bulk.Change)  // "change", as [Queue.Change]
	BulkCancel  = BulkAction(bulk.Cancel)  // "cancel", as [Queue.CancelAll]
	BulkDelete  = BulkAction(bulk.Delete)  // "delete", as [Queue.Delete]
)

// States returns the states of the jobs that a filter selects for the action, and nil for an
// action that there is not. Jobs that JobFilter.IDs names may be in another state: see the
// call that does the same at once.
func (a BulkAction) States() []State { return bulk.Action(a).States() }

// Bulk is an order to change many jobs, see [Queue.StartBulk].
type Bulk struct {
	// Do is what is done to the jobs.
	Do BulkAction
	// Filter selects the jobs, as the filter of the call which does the same at once. A
	// filter without a condition must set All. It must not name the queue or the kind
	// "errand.bulk", nor a job of that queue.
	Filter JobFilter
	// Redrive is for BulkRedrive. If zero, each job goes to the queue it came from. Its Change
	// has no Args if Set is not nil.
	Redrive RedriveOptions
	// Set is for BulkRedrive: values that are put into the args of each job before it is
	// redriven, by the path of the field, such as "address.city". The old args are kept in
	// the history, see [Failure]. A job whose args lack one of the fields stays dead. If nil,
	// the args stay.
	Set map[string]json.RawMessage
	// RunNow is for BulkRunNow.
	RunNow RunNowOptions
	// Change is for BulkChange. A Delay counts from when a job is changed.
	Change JobChange
	// Rate is how many jobs are taken in a second, at most 100,000. If zero, as many as the
	// rest of the work leaves room for.
	Rate int
	// By is who asks for the change, for people: up to 255 bytes of text. If zero, nobody is
	// named.
	By string
	// DryRun has StartBulk only count the jobs, and change nothing.
	DryRun bool
	// Look is how many jobs a dry run looks at, at most 2,000, unless the number is kept, as
	// it is for filters of nothing but queue, kind and state, or a cause of these. If zero, a
	// dry run counts up to 10,000.
	Look int
}

// BulkInfo is what is known of a [Bulk] that was started.
type BulkInfo struct {
	// ID is the ID of the job by which errand does the work. It is zero after a dry run.
	ID    ID         `json:"id,omitzero"`
	Do    BulkAction `json:"do"`
	State State      `json:"state,omitempty"`
	By    string     `json:"by,omitempty"`
	Rate  int        `json:"rate,omitempty"`
	// StartedAt is when StartBulk was called, and EndedAt when the work was done or
	// cancelled.
	StartedAt time.Time `json:"started_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// Changed is how many jobs were changed, and Left how many were taken and stayed as they
	// are: another job holds their unique key, or they were not there. Both are exact, also
	// after the process of a worker has died.
	Changed int64 `json:"changed"`
	Left    int64 `json:"left,omitempty"`
	// Total is how many jobs there were when the work began, and for FailedOnly how many there
	// may be at most. If More is true, there were more. Both are zero before that.
	Total int64 `json:"total,omitempty"`
	More  bool  `json:"more,omitempty"`
	// Sample are some of the jobs that a dry run has counted, at most ten.
	Sample []ID `json:"sample,omitempty"`
	// Paused is true if the bulk job waits for [Queue.Resume] of the queue "errand.bulk", or
	// for the end of another hold of that queue.
	Paused bool `json:"paused,omitempty"`
	// Unserved is true if no worker runs that could do the work.
	Unserved bool `json:"unserved,omitempty"`
	// Error is the last error.
	Error string `json:"error,omitempty"`
}

const (
	mostRate  = 100_000
	mostBulks = 100  // that Bulks returns and that are kept
	mostLook  = 2000 // Bulk.Look: what a store looks at for a page
	mostSet   = 100
	// bulkTag is a tag of all bulk jobs, by which they are found among others.
	bulkTag = "errand.bulk"
	// bulkKept is for how long bulk jobs that have ended are kept, if they are not too many.
	bulkKept = 100 * 365 * 24 * time.Hour
)

// StartBulk has errand change many jobs by a job of its own, in the queue and of the kind
// "errand.bulk". Any worker that runs does that work, whatever its queues and its
// Concurrency, also a worker whose only queue is "errand.bulk". In the whole file one bulk
// job runs at a time, in the order in which they were started. A bulk job goes on after a
// crash, and after a stop of the worker.
//
// A bulk job takes dead letters that were dead when it began, so that a job that dies again
// is not redriven twice, and other jobs that were enqueued before it began. Jobs that
// JobFilter.IDs names are taken as they are then. Each step, of at most 500 jobs, is one
// transaction with the place that it has reached: no crash has a job taken twice, and no
// number of crashes makes the bulk job dead. Between the steps others write.
//
// [Queue.Cancel] ends a bulk job: no further step begins. What was done stays done.
// [Queue.Pause] of "errand.bulk" makes all bulk jobs wait. No cap, policy, middleware or
// setting of an application applies to them. Filters and lists leave them out, unless they
// name that queue or kind. [Queue.Bulks] lists them.
//
// StartBulk returns a [FieldError] for each fault of b, joined, and starts nothing then.
func (q *Queue) StartBulk(ctx context.Context, b Bulk) (BulkInfo, error) {
	o, err := q.bulkOrder(ctx, &b)
	if err != nil {
		return BulkInfo{}, err
	}
	info := BulkInfo{Do: b.Do, By: b.By, Rate: b.Rate}
	if b.DryRun {
		c, err := o.Count(ctx, q.store, b.Look)
		info.Total, info.More, info.Sample = c.N, c.More, c.Sample
		return info, err
	}
	args, err := json.Marshal(o)
	if err != nil {
		return BulkInfo{}, err
	}
	if err := q.prepareBulk(ctx); err != nil {
		return BulkInfo{}, err
	}
	now, believed := q.clock.read(ctx)
	added, err := q.write(ctx, now, []storage.NewJob{{
		Queue: storage.BulkQueue, Kind: storage.BulkQueue, Group: storage.BulkQueue, Args: args, Tags: []string{bulkTag}, Doubtful: !believed,
	}})
	if err != nil {
		return BulkInfo{}, err
	}
	all, err := q.Bulks(ctx, added[0].ID)
	if err != nil || len(all) == 0 { // it runs all the same
		info.ID, info.State, info.StartedAt = added[0].ID, Ready, now
		return info, nil //nolint:nilerr // as above
	}
	return all[0], nil
}

// bulkOrder checks a Bulk.
func (q *Queue) bulkOrder(ctx context.Context, b *Bulk) (*bulk.Order, error) {
	var f faults
	if b.Do.States() == nil {
		f.field("do", string(b.Do), "must be one of redrive, run-now, change, cancel, delete")
		return nil, f.err()
	}
	o := q.order(&f, b.Do, b.Filter)
	o.By, o.Rate = b.By, b.Rate
	f.some(&b.Filter)
	f.within(0, "filter.")
	f.notBulk("filter.queue", b.Filter.Queue)
	f.notBulk("filter.kind", b.Filter.Kind)
	f.between("rate", b.Rate, mostRate)
	f.between("look", b.Look, mostLook)
	f.by(b.By)
	other := func(field string, set bool, of BulkAction) {
		if set && b.Do != of {
			f.field(field, string(b.Do), "must be zero unless do is "+string(of))
		}
	}
	other("redrive", b.Redrive != RedriveOptions{}, BulkRedrive)
	other("set", len(b.Set) > 0, BulkRedrive)
	other("run_now", b.RunNow != RunNowOptions{}, BulkRunNow)
	other("change", !b.Change.isZero(), BulkChange)
	switch b.Do {
	case BulkRedrive:
		q.redrive(&f, "redrive.", o, &b.Redrive)
		if o.Set = f.set(b.Set, q.opts.MaxArgs); len(o.Set) > 0 && o.With != nil && o.With.Args != nil {
			f.field("set", len(o.Set), "must be empty if redrive.change has args")
		}
	case BulkRunNow:
		o.First, o.Failed = b.RunNow.FirstRuns, b.RunNow.FailedOnly
	case BulkChange:
		q.edit(&f, "change.", o, &b.Change)
	}
	place := "change."
	if b.Do == BulkRedrive {
		place = "redrive.change."
	}
	if err := q.checked(ctx, &f, place, o, cmp.Or(b.Redrive.Change, &b.Change)); err != nil {
		return nil, err
	}
	return o, q.noBulks(ctx, o.IDs)
}

// notBulk checks that a name is not that of bulk jobs.
func (f *faults) notBulk(field, name string) {
	if name == storage.BulkQueue {
		f.field(field, name, "must not be that of bulk jobs: name these by their IDs, with another call")
	}
}

// by checks who asks for something.
func (f *faults) by(by string) {
	if len(by) > mostBy || !isText(by) {
		f.field("by", by, fmt.Sprintf("must be at most %d bytes of UTF-8 without NUL", mostBy))
	}
}

// set checks the values that are to be put into args.
func (f *faults) set(values map[string]json.RawMessage, most int) map[string]json.RawMessage {
	if len(values) > mostSet {
		f.field("set", len(values), fmt.Sprintf("must be at most %d", mostSet))
	}
	size := 0
	for _, value := range values {
		size += len(value)
	}
	if size > most {
		f.field("set", size, fmt.Sprintf("must be at most %d bytes of JSON", most))
	}
	for _, path := range slices.Sorted(maps.Keys(values)) {
		if !isText(path) || slices.Contains(strings.Split(path, "."), "") {
			f.field("set", path, "must have paths of names with a dot between them")
		}
		for at, c := range path {
			if c != '.' {
				continue
			}
			if _, ok := values[path[:at]]; ok {
				f.field("set", path, fmt.Sprintf("must not be within %q, which is set too", path[:at]))
			}
		}
		if !json.Valid(values[path]) {
			f.field(fmt.Sprintf("set[%q]", path), string(values[path]), "must be JSON")
		}
		f.depth(fmt.Sprintf("set[%q]", path), values[path], 1+strings.Count(path, "."))
	}
	return values
}

// noBulks checks that no ID is of a bulk job.
func (q *Queue) noBulks(ctx context.Context, ids []ID) error {
	if len(ids) == 0 {
		return nil
	}
	all, err := q.bulkIDs(ctx)
	for _, id := range all {
		if slices.Contains(ids, id) {
			return &FieldError{Field: "filter.ids", Value: id.String(), Limit: "must be of no bulk job"}
		}
	}
	return err
}

// bulkIDs returns the bulk jobs that there are, the one started last first.
func (q *Queue) bulkIDs(ctx context.Context) (ids []ID, err error) {
	f := storage.Filter{Queue: storage.BulkQueue, Tag: bulkTag}
	for after := ""; ; {
		page, err := q.store.Jobs(ctx, f, after, maxPage)
		for i := range page.Jobs {
			ids = append(ids, page.Jobs[i].ID)
		}
		if after = page.Next; err != nil || after == "" {
			return ids, err
		}
	}
}

// prepareBulk sets what bulk jobs need in a file, and deletes those that have ended and
// are too many.
func (q *Queue) prepareBulk(ctx context.Context) error {
	lane := Lane{Queue: storage.BulkQueue}
	want := storage.Settings{storage.SettingDeadHead: int64(PassDead), storage.SettingRetention: bulkKept.Microseconds()}
	all, err := q.store.Settings(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s storage.LaneSettings) bool { return s.Lane == lane })
	if i < 0 || !maps.Equal(all[i].Settings, want) {
		if err := q.store.Configure(storage.WithoutAudit(ctx), lane, want); err != nil {
			return err
		}
	}
	ids, err := q.bulkIDs(ctx)
	if err != nil || len(ids) < mostBulks {
		return err
	}
	ended := []State{Done, Cancelled, Expired, Dead}
	for old := range slices.Chunk(ids[mostBulks-1:], idStep) {
		if _, err := q.store.Delete(ctx, storage.Selection{IDs: old, Filter: storage.Filter{States: ended}}); err != nil {
			return err
		}
	}
	return nil
}

// Bulks returns the last 100 bulk jobs, the one started last first, or those of ids that
// there are.
func (q *Queue) Bulks(ctx context.Context, ids ...ID) ([]BulkInfo, error) {
	out := []BulkInfo{}
	if len(ids) == 0 {
		all, err := q.bulkIDs(ctx)
		if err != nil {
			return nil, err
		}
		ids = all[:min(len(all), mostBulks)]
	}
	live := false
	for _, id := range ids {
		j, err := q.Job(ctx, id)
		if errors.Is(err, ErrNotFound) || err == nil && j.Queue != storage.BulkQueue {
			continue
		}
		if err != nil {
			return nil, err
		}
		live = live || j.EndedAt.IsZero()
		out = append(out, bulkInfo(&j))
	}
	if !live {
		return out, nil
	}
	paused, err := q.bulkPaused(ctx)
	if err != nil {
		return nil, err
	}
	served, err := q.bulkServed(ctx)
	if err != nil {
		return nil, err
	}
	for i := range out {
		if b := &out[i]; b.EndedAt.IsZero() {
			b.Paused, b.Unserved = paused, !served
		}
	}
	return out, nil
}

// bulkPaused reports whether bulk jobs are held.
func (q *Queue) bulkPaused(ctx context.Context) (bool, error) {
	holds, err := q.store.Holds(ctx, q.clock.current(ctx))
	return slices.ContainsFunc(holds, func(h storage.HoldState) bool { return h.Includes(storage.BulkQueue, storage.BulkQueue) }), err
}

// bulkServed reports whether a worker runs, in whatever process, as far as that can be seen.
func (q *Queue) bulkServed(ctx context.Context) (bool, error) {
	workers, err := q.Workers(ctx)
	if errors.Is(err, ErrUnsupportedDB) {
		return true, nil
	}
	return slices.ContainsFunc(workers, func(w WorkerInfo) bool { return !w.Stopping }), err
}

// bulkInfo returns what a bulk job shows of itself.
func bulkInfo(r *JobInfo) BulkInfo {
	b := BulkInfo{ID: r.ID, State: r.State, StartedAt: r.CreatedAt, EndedAt: r.EndedAt, Error: r.Error}
	var o bulk.Order
	if err := json.Unmarshal(r.Args, &o); err != nil { // of another version
		b.Error = cmp.Or(b.Error, "args: "+err.Error())
	}
	b.Do, b.By, b.Rate = BulkAction(o.Do), o.By, o.Rate
	if p := r.Progress; p != nil {
		n := bulk.ReadNote(p.Note)
		b.Changed, b.Total, b.Left, b.More = p.Done, p.Total, n.Left, n.More
	}
	return b
}
