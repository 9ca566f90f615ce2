package errand

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand/storage"
)

// ListOptions select a page of a list. Nil and the zero value mean defaults.
type ListOptions struct {
	// Limit is how many jobs a page has at most, up to 1,000. If zero, 100.
	Limit int
	// After is JobPage.Next of the page before, of a list with the same filter. If
	// empty, the first page.
	After string
	// Args has the jobs come with their Args, which may be large. If zero, they come without.
	Args bool
	// MaxArgs is how many bytes the Args of a job may have to be in the page. Larger Args are
	// left out unread, and JobInfo.ArgsBytes says how many bytes they have. If zero, all Args
	// are in the page.
	MaxArgs int
}

// JobPage is a part of a list of jobs.
type JobPage struct {
	// Jobs come without Headers, History, checkpoint and result: see [Queue.Job]. Without
	// ListOptions.Args they come without Args too.
	Jobs []JobInfo `json:"jobs"`
	// Next is where the next page begins, for [ListOptions].After. It is empty on
	// the last page.
	Next string `json:"next,omitempty"`
	// Partial is true if the page has fewer jobs than its limit, or none, because many jobs
	// were looked at that do not match. The list goes on at Next.
	Partial bool `json:"partial,omitempty"`
	// Looked is how many jobs were looked at.
	Looked int `json:"looked,omitempty"`
}

// Jobs returns a page of the jobs that match, live, finished and dead. The zero filter
// matches all. With JobFilter.IDs it returns those of the jobs that there are, on one
// page, in the order of IDs. A list by Group, Tag, CreatedFrom or CreatedBefore has the job
// that was enqueued last first, as has one by Parent or Origin, which are kept as tags. Any other
// list goes state by state:
//
//	running          enqueued last first
//	ready            by queue and kind; those of one queue and kind by priority and due time
//	scheduled        the earliest due first
//	blocked          by queue and group; those of a group as they were enqueued
//	                 then those behind a unique key
//	dead             the latest death first
//	done, cancelled, expired  enqueued last first, of these states together
//
// An index finds these, which cost the same however many other jobs there are:
//
//   - States, Group, Tag, Parent, Origin, CreatedFrom and CreatedBefore
//   - DueFrom and DueBefore of scheduled jobs
//   - Queue and Kind of ready jobs
//   - EndedFrom and EndedBefore of dead jobs
//
// For other conditions, for a second one with Group or Tag, and for done or cancelled jobs
// alone, jobs are looked at one by one in the order of the list. After 2,000 the page
// ends, and is Partial. Jobs that were enqueued while the clock was set back may be
// missing in a list by CreatedFrom or CreatedBefore.
//
// While pages are read, a job that changes its state may be on two of them, or on none.
// In a list by Group, Tag, CreatedFrom or CreatedBefore it is on one. Nothing waits for a list.
func (q *Queue) Jobs(ctx context.Context, filter JobFilter, o *ListOptions) (JobPage, error) {
	return q.list(ctx, filter, o, allStates)
}

// List returns a page of the dead letters that match, the latest death first; see
// [Queue.Jobs]. With JobFilter.IDs it returns the dead ones of these jobs on one page,
// in the order of IDs.
func (d *DeadLetters) List(ctx context.Context, filter JobFilter, o *ListOptions) (JobPage, error) {
	return d.q.list(ctx, filter, o, []State{Dead})
}

func (q *Queue) list(ctx context.Context, filter JobFilter, o *ListOptions, about []State) (JobPage, error) {
	o = cmp.Or(o, &ListOptions{})
	var f faults
	sel := q.selection(&f, filter, about...)
	if o.Limit < 0 || o.Limit > maxPage {
		f.field("limit", o.Limit, fmt.Sprintf("must be between 0 and %d", maxPage))
	}
	if o.MaxArgs < 0 {
		f.field("max_args", o.MaxArgs, "must not be negative")
	}
	if n := len(filter.IDs); n > maxPage && n <= maxIDs {
		f.field("ids", n, fmt.Sprintf("must be at most %d in a list", maxPage))
	}
	if len(about) < len(allStates) && len(sel.Filter.States) == 0 {
		sel.Filter.States = about
	}
	of := filter.hash(sel.Filter.States)
	after := readCursor(&f, "after", o.After, of)
	if err := f.err(); err != nil {
		return JobPage{}, err
	}
	if len(sel.IDs) > 0 {
		return q.listIDs(ctx, sel.IDs, o, about)
	}
	sel.Filter.Args, sel.Filter.MaxArgs = o.Args, int64(o.MaxArgs)
	limit := cmp.Or(o.Limit, defaultPage)
	got, err := q.store.Jobs(ctx, sel.Filter, after, limit)
	if err != nil {
		return JobPage{}, err
	}
	page := JobPage{Jobs: make([]JobInfo, len(got.Jobs)), Next: cursor(got.Next, of), Looked: got.Looked}
	page.Partial = page.Next != "" && len(page.Jobs) < limit
	for i := range got.Jobs {
		if page.Jobs[i], err = jobInfo(&got.Jobs[i]); err != nil {
			return JobPage{}, err
		}
	}
	return page, nil
}

func (q *Queue) listIDs(ctx context.Context, ids []ID, o *ListOptions, about []State) (page JobPage, err error) {
	page.Jobs = []JobInfo{}
	for _, id := range ids {
		r, err := q.store.Job(ctx, id)
		j, err := jobInfoOf(&r, err)
		switch {
		case err == nil:
			page.Looked++
			if slices.Contains(about, j.State) {
				j.Headers, j.History, j.Checkpoint, j.Result, j.Progress = nil, nil, nil, nil, nil
				switch n := len(j.Args); {
				case !o.Args:
					j.Args = nil
				case o.MaxArgs > 0 && n > o.MaxArgs:
					j.Args, j.ArgsBytes = nil, int64(n)
				}
				page.Jobs = append(page.Jobs, j)
			}
		case !errors.Is(err, ErrNotFound):
			return JobPage{}, err
		}
	}
	return page, nil
}

// Jobs returns the jobs of a kind as a transaction of the application sees them, for
// [door.JobsTx].
func (in *inside) Jobs(ctx context.Context, kind string) ([]JobInfo, error) {
	s, ok := in.store.(interface {
		JobsTx(ctx context.Context, tx any, f storage.Filter) ([]storage.Record, error)
	})
	if !ok {
		return nil, fmt.Errorf("%w: store %T does not read jobs in a transaction", ErrUnsupportedDB, in.store)
	}
	records, err := s.JobsTx(ctx, in.tx, storage.Filter{Kind: kind})
	all := make([]JobInfo, len(records))
	for i := range records {
		j, e := jobInfo(&records[i])
		all[i], err = j, errors.Join(err, e)
	}
	return all, err
}

// list returns states as text.
func list(states []State) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(states), "[]"), " ", ", ")
}

// distinct returns all without repetitions, in order of first appearance, and nil
// for none.
func distinct[E comparable](all []E) []E {
	seen := make(map[E]bool, len(all))
	var out []E
	for _, e := range all {
		if !seen[e] {
			seen[e] = true
			out = append(out, e)
		}
	}
	return out
}

// hash returns a number that tells filters of lists apart, given their states.
func (f JobFilter) hash(states []State) uint64 {
	f.All, f.States = false, slices.Sorted(slices.Values(states))
	for _, t := range []*time.Time{&f.CreatedFrom, &f.CreatedBefore, &f.DueFrom, &f.DueBefore, &f.EndedFrom, &f.EndedBefore} {
		*t = t.UTC().Round(0)
	}
	h := fnv.New64a()
	if err := json.NewEncoder(h).Encode(f); err != nil {
		// A year that JSON does not take: only such filters are not told apart.
		return 0
	}
	return h.Sum64()
}

// A cursor is a place in a list as text: version, hash of the filter, place and a
// checksum. By the checksum a cursor that was cut or made up is refused.
const (
	cursorVersion = 2
	cursorHead    = 1 + 8
)

func cursor(place string, of uint64) string {
	if place == "" {
		return ""
	}
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, of)
	b = append(b, place...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(f *faults, field, s string, of uint64) (place string) {
	if s == "" {
		return ""
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	end := len(b) - 4
	if err != nil || end <= cursorHead || b[0] != cursorVersion || crc32.ChecksumIEEE(b[:end]) != binary.BigEndian.Uint32(b[end:]) {
		f.field(field, s, "must be the Next of a page")
		return ""
	}
	if binary.BigEndian.Uint64(b[1:]) != of {
		f.field(field, s, "must be the Next of a page of the same filter")
		return ""
	}
	return string(b[cursorHead:end])
}
