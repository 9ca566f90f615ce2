package errand

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

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
	// ReasonUnavailable: see HandlerOptions.MaxUnavailable.
	ReasonUnavailable = storage.ReasonUnavailable
	ReasonDecode      = storage.ReasonDecode // no retry left, and the args did not decode
)

// DeadLetters lists, redrives and purges the dead letters of a queue: jobs that were
// exhausted or refused. They are kept until they are redriven or purged. It is safe
// for concurrent use.
type DeadLetters struct{ q *Queue }

// DeadLetters returns the dead letters of the queue.
func (q *Queue) DeadLetters() *DeadLetters { return &DeadLetters{q} }

// JobFilter selects jobs. A job is selected if it matches all fields that
// are not zero.
type JobFilter struct {
	// IDs names the jobs, at most 10,000; no other field may be set with them.
	IDs    []ID
	Queue  string
	Kind   string
	Reason Reason // of dead letters
	// EndedFrom and EndedBefore bound the time when a job ended, which for a dead
	// letter is its death: EndedFrom is included, EndedBefore is not.
	EndedFrom   time.Time
	EndedBefore time.Time
	// OlderThan is the least time since the death. It excludes EndedBefore.
	OlderThan time.Duration
	// Error must occur in the last error, in any ASCII case; at most 1,024 bytes.
	Error string
	// All selects every job that the call is about, as every dead letter. Purge and
	// [Queue.RunNow] demand it if no other field is set; no other field may be set
	// with it.
	All bool
}

// ListOptions select a page of a list. Nil and the zero value mean defaults.
type ListOptions struct {
	// Limit is how many jobs a page has at most, up to 1,000. If zero, 100.
	Limit int
	// After is DeadPage.Next of the page before. If empty, the first page.
	After string
}

// DeadPage is a part of the list of dead letters.
type DeadPage struct {
	// Jobs come without Args, Headers and History: see [DeadLetters.Get].
	Jobs []JobInfo
	// Next is where the next page begins, for [ListOptions].After. It is empty on
	// the last page.
	Next string
}

// RedriveOptions configure a redrive. Nil and the zero value mean defaults.
type RedriveOptions struct {
	// Queue is where the jobs go. If empty, each job goes to the queue it came
	// from.
	Queue string
}

// RedriveResult is the result of a redrive.
type RedriveResult struct {
	// Redriven is how many jobs were put back.
	Redriven int
	// Duplicates stayed dead because another job holds their unique key.
	Duplicates []ID
	// NotFound are the jobs of JobFilter.IDs that are not dead.
	NotFound []ID
}

const (
	defaultPage = 100
	maxPage     = 1000
	maxIDs      = 10_000
	// idStep is how many jobs named by ID are changed in one transaction. So few
	// hold the writer only for a moment.
	idStep   = 250
	maxMatch = 1024
)

// List returns a page of the dead letters that match, the latest death first. With
// JobFilter.IDs it returns the dead ones of these jobs on one page, in the order
// of IDs.
func (d *DeadLetters) List(ctx context.Context, filter JobFilter, o *ListOptions) (DeadPage, error) {
	o = cmp.Or(o, &ListOptions{})
	var f faults
	sel := d.q.selection(&f, filter)
	if o.Limit < 0 || o.Limit > maxPage {
		f.field("limit", o.Limit, fmt.Sprintf("must be between 0 and %d", maxPage))
	}
	if n := len(filter.IDs); n > maxPage && n <= maxIDs {
		f.field("ids", n, fmt.Sprintf("must be at most %d in a list", maxPage))
	}
	after := readCursor(&f, "after", o.After)
	if err := f.err(); err != nil {
		return DeadPage{}, err
	}
	if len(sel.IDs) > 0 {
		return d.listIDs(ctx, sel.IDs)
	}
	records, last, err := d.q.store.DeadLetters(ctx, sel.Filter, after, cmp.Or(o.Limit, defaultPage))
	if err != nil {
		return DeadPage{}, err
	}
	page := DeadPage{Jobs: make([]JobInfo, len(records)), Next: cursor(last)}
	for i := range records {
		if page.Jobs[i], err = jobInfo(&records[i]); err != nil {
			return DeadPage{}, err
		}
	}
	return page, nil
}

func (d *DeadLetters) listIDs(ctx context.Context, ids []ID) (DeadPage, error) {
	var page DeadPage
	for _, id := range ids {
		j, err := d.Get(ctx, id)
		switch {
		case err == nil:
			j.Args, j.Headers, j.History = nil, nil, nil
			page.Jobs = append(page.Jobs, j)
		case !errors.Is(err, ErrNotFound):
			return DeadPage{}, err
		}
	}
	return page, nil
}

// Get returns all that is known of a dead letter. It returns [ErrNotFound] for a
// job that is not dead.
func (d *DeadLetters) Get(ctx context.Context, id ID) (JobInfo, error) {
	j, err := d.q.Job(ctx, id)
	if err != nil {
		return JobInfo{}, err
	}
	if j.State != Dead {
		return JobInfo{}, fmt.Errorf("%w among the dead letters: job %v is %s", ErrNotFound, id, j.State)
	}
	return j, nil
}

// Redrive makes the dead letters that match ready again, the earliest death first.
// The retry index, crashes and snoozes of a job are reset to zero; attempts and
// history are kept. The zero filter selects all dead letters. Jobs that die while
// Redrive runs are left out, so that a job that fails at once is not redriven for
// ever.
//
// It works in short transactions, between which others write. Beside an error the
// result says what was done before; that stays done.
func (d *DeadLetters) Redrive(ctx context.Context, filter JobFilter, o *RedriveOptions) (RedriveResult, error) {
	o = cmp.Or(o, &RedriveOptions{})
	var f faults
	sel := d.q.selection(&f, filter)
	if o.Queue != "" {
		f.add(checkName("queue", o.Queue))
	}
	if err := f.err(); err != nil {
		return RedriveResult{}, err
	}
	var r RedriveResult
	err := d.each(ctx, sel, func(sel storage.Selection) (storage.Step, error) {
		step, err := d.q.store.Redrive(ctx, d.q.clock.current(ctx), sel, o.Queue)
		r.Redriven += step.N
		r.Duplicates = append(r.Duplicates, step.Duplicates...)
		r.NotFound = append(r.NotFound, step.NotFound...)
		return step, err
	})
	return r, err
}

// Purge deletes the dead letters that match for good, and returns their number. For
// the zero filter it returns [ErrPurgeAll]: set JobFilter.All to delete all of
// them. Like Redrive it works in short transactions. Beside an error it returns how
// many jobs were deleted before.
func (d *DeadLetters) Purge(ctx context.Context, filter JobFilter) (int, error) {
	if !filter.All && !filter.narrows() {
		return 0, ErrPurgeAll
	}
	var f faults
	sel := d.q.selection(&f, filter)
	if err := f.err(); err != nil {
		return 0, err
	}
	n := 0
	err := d.each(ctx, sel, func(sel storage.Selection) (storage.Step, error) {
		step, err := d.q.store.PurgeDead(ctx, sel)
		n += step.N
		return step, err
	})
	return n, err
}

// each calls do for a selection step by step.
func (d *DeadLetters) each(ctx context.Context, sel storage.Selection, do func(storage.Selection) (storage.Step, error)) error {
	if len(sel.IDs) > 0 {
		for ids := range slices.Chunk(sel.IDs, idStep) {
			if _, err := do(storage.Selection{IDs: ids}); err != nil {
				return err
			}
		}
		return nil
	}
	// The latest death among the jobs that match bounds the work. The clock does
	// not: it may have been set back since.
	latest, _, err := d.q.store.DeadLetters(ctx, sel.Filter, storage.Position{}, 1)
	if err != nil || len(latest) == 0 {
		return err
	}
	sel.Filter.EndedBefore = latest[0].EndedAt.Add(time.Microsecond)
	for {
		step, err := do(sel)
		if err != nil || step.Next == (storage.Position{}) {
			return err
		}
		sel.After = step.Next
	}
}

// narrows reports whether a field other than All is set.
func (f *JobFilter) narrows() bool { return len(f.IDs) > 0 || f.matches() }

func (f *JobFilter) matches() bool {
	return f.Queue != "" || f.Kind != "" || f.Reason != "" || !f.EndedFrom.IsZero() || !f.EndedBefore.IsZero() ||
		f.OlderThan != 0 || f.Error != ""
}

// selection checks a filter and returns it as the store takes it.
func (q *Queue) selection(f *faults, filter JobFilter) storage.Selection {
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
	if filter.Queue != "" {
		f.add(checkName("queue", filter.Queue))
	}
	if filter.Kind != "" {
		f.add(checkName("kind", filter.Kind))
	}
	switch filter.Reason {
	case "", ReasonExhausted, ReasonPermanent, ReasonCrashed, ReasonSnoozed, ReasonDecode, ReasonUnavailable:
	default:
		f.field("reason", string(filter.Reason), "must be one of exhausted, permanent, crashed, snoozed, unavailable, decode")
	}
	if len(filter.Error) > maxMatch || !isText(filter.Error) {
		f.field("error", filter.Error, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxMatch))
	}
	before := filter.EndedBefore
	switch {
	case filter.OlderThan < 0:
		f.field("older_than", filter.OlderThan, "must not be negative")
	case filter.OlderThan > 0 && !before.IsZero():
		f.field("older_than", filter.OlderThan, "must be zero if ended_before is set")
	case filter.OlderThan > 0:
		before = q.clock.Now().Add(-filter.OlderThan).Truncate(time.Microsecond).Add(time.Microsecond)
	case !before.IsZero() && before.Before(filter.EndedFrom):
		f.field("ended_before", before, "must not be before ended_from "+filter.EndedFrom.Format(time.RFC3339Nano))
	}
	return storage.Selection{Filter: storage.Filter{
		Queue: filter.Queue, Kind: filter.Kind, Reason: filter.Reason,
		EndedFrom: filter.EndedFrom, EndedBefore: before, Error: filter.Error,
	}}
}

// distinct returns ids without repetitions, in order of first appearance.
func distinct(ids []ID) []ID {
	seen := make(map[ID]bool, len(ids))
	out := make([]ID, 0, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// A cursor is a position as text: version, time, key and a checksum. By the
// checksum a cursor that was cut or made up is refused.
const (
	cursorVersion = 1
	cursorSize    = 1 + 8 + 8
)

func cursor(p storage.Position) string {
	if p == (storage.Position{}) {
		return ""
	}
	b := []byte{cursorVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(p.At.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Key))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(f *faults, field, s string) storage.Position {
	if s == "" {
		return storage.Position{}
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != cursorSize+4 || b[0] != cursorVersion ||
		crc32.ChecksumIEEE(b[:cursorSize]) != binary.BigEndian.Uint32(b[cursorSize:]) {
		f.field(field, s, "must be the Next of a page")
		return storage.Position{}
	}
	return storage.Position{
		At:  time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:]))).UTC(),
		Key: int64(binary.BigEndian.Uint64(b[9:])),
	}
}
