// Package bulk does something to many jobs, a few of them at a time: to those that a call selects,
// or that a bulk job is about, which is a job of errand itself.
package bulk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand/storage"
)

// Action is what is done to jobs.
type Action string

// The actions.
const (
	Redrive Action = "redrive"
	RunNow  Action = "run-now"
	Change  Action = "change"
	Cancel  Action = "cancel"
	Delete  Action = "delete"
)

// States returns the states of the jobs that a filter selects for the action, nil if there is no
// such action.
func (a Action) States() []storage.State {
	switch a {
	case Redrive:
		return []storage.State{storage.Dead}
	case RunNow:
		return []storage.State{storage.Scheduled}
	case Change:
		return []storage.State{storage.Scheduled, storage.Ready, storage.Blocked}
	case Cancel:
		return []storage.State{storage.Scheduled, storage.Ready, storage.Blocked, storage.Running}
	case Delete:
		return []storage.State{storage.Done, storage.Cancelled, storage.Expired, storage.Dead}
	}
	return nil
}

// Order is a selection and an action: the args of a bulk job, or what a call does at once.
type Order struct {
	Do        Action                     `json:"do"`
	By        string                     `json:"by,omitempty"`
	Rate      int                        `json:"rate,omitempty"`
	IDs       []storage.ID               `json:"ids,omitempty"`
	Filter    storage.Filter             `json:"filter,omitzero"`
	To        string                     `json:"to,omitempty"` // a queue
	Set       map[string]json.RawMessage `json:"set,omitempty"`
	First     bool                       `json:"first_runs,omitempty"`
	FromStart bool                       `json:"from_start,omitempty"`
	Failed    bool                       `json:"failed_only,omitempty"`
	Edit      *storage.Edit              `json:"edit,omitempty"`
	With      *storage.Edit              `json:"with,omitempty"` // of a redrive: what it changes
}

// Read decodes the args of a bulk job. It returns an error for those that this version does not
// know in full: without a condition that another version has set, a filter selects other jobs.
func (o *Order) Read(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(o); err != nil {
		return err
	}
	switch {
	case o.Do.States() == nil:
		return fmt.Errorf("do: %q is not known here", o.Do)
	case len(o.IDs) == 0 && len(o.Filter.States) == 0:
		return errors.New("no jobs are selected")
	case o.Do == Change && o.Edit == nil:
		return errors.New("edit: must be set")
	}
	return nil
}

// passes returns the states of the jobs that are taken, in turns: finished and dead ones
// are apart.
func (o *Order) passes() (all [][]storage.State) {
	if len(o.IDs) > 0 {
		return [][]storage.State{o.Filter.States}
	}
	var others []storage.State
	for _, s := range o.Filter.States {
		if s != storage.Dead && o.Filter.Has(s) {
			others = append(others, s)
		}
	}
	if len(others) > 0 {
		all = append(all, others)
	}
	if slices.Contains(o.Filter.States, storage.Dead) && o.Filter.Has(storage.Dead) {
		all = append(all, []storage.State{storage.Dead})
	}
	return all
}

// Place is where the work on an order has got to, as the checkpoint of a bulk job has it.
type Place struct {
	Pass    int              `json:"pass"`
	IDs     int              `json:"ids,omitempty"` // of those named that were taken
	After   storage.Position `json:"after,omitzero"`
	Page    string           `json:"page,omitempty"` // in a list; in place of After
	Through int64            `json:"through,omitempty"`
	// Before is what the jobs have died before; zero: none was dead.
	Before  time.Time `json:"before,omitzero"`
	Changed int64     `json:"changed"`
	Left    int64     `json:"left"`
	Total   int64     `json:"total"`
	More    bool      `json:"more,omitempty"`
}

// read reads the place of an order from a checkpoint. Builds of one day went over the dead of a group by
// the times of their deaths, and not by keys: after such a place the pass begins anew, and meets only
// those that are still dead.
func (p *Place) read(data []byte, o *Order) error {
	err := json.Unmarshal(data, p)
	if o.Filter.Group != "" && !p.After.At.IsZero() {
		p.After = storage.Position{}
	}
	return err
}

// nextPass returns the place at which the next pass begins.
func (p Place) nextPass() Place {
	return Place{Pass: p.Pass + 1, Before: p.Before, Changed: p.Changed, Left: p.Left, Total: p.Total, More: p.More}
}

// Note is the note of the progress of a bulk job, as JSON: what Done and Total do not say.
type Note struct {
	Left int64 `json:"left,omitempty"`
	More bool  `json:"more,omitempty"`
}

// ReadNote reads a note. That of an earlier version is no JSON, and says nothing.
func ReadNote(text string) (n Note) {
	if json.Unmarshal([]byte(text), &n) != nil {
		return Note{}
	}
	return n
}

// progress returns what the place says for people.
func (p *Place) progress(at time.Time) *storage.Progress {
	out := &storage.Progress{Done: p.Changed, Total: p.Total, At: at}
	if n := (Note{p.Left, p.More}); n != (Note{}) {
		if data, err := json.Marshal(n); err == nil {
			out.Note = string(data)
		}
	}
	return out
}

const (
	mostCounted = 10_000 // jobs are counted up to so many
	mostLooked  = 200_000
	mostSample  = 10
	listPage    = 1000
)

// Count is how many jobs an order would take now, and some of them.
type Count struct {
	N      int64
	More   bool // there are more than N
	Sample []storage.ID
}

// Count counts the jobs that an order would take now. Where it has to look at jobs, it looks at
// one page of look, or at all if that is zero.
func (o *Order) Count(ctx context.Context, store storage.Store, look int) (c Count, err error) {
	if len(o.IDs) > 0 {
		return Count{N: int64(len(o.IDs)), Sample: o.IDs[:min(len(o.IDs), mostSample)]}, nil
	}
	kept := o.Do != RunNow || o.First && !o.Failed
	if kept {
		if kept, c.N, err = countKept(ctx, store, &o.Filter); err != nil {
			return Count{}, err
		}
	}
	total, looked := int64(0), 0
	for after := ""; ; {
		limit := cmp.Or(look, listPage)
		if kept {
			limit = min(limit, mostSample)
		}
		page, err := store.Jobs(ctx, o.Filter, after, limit)
		if err != nil {
			return Count{}, err
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			if o.Do == RunNow && (j.Attempt == 0 && !o.First || j.Attempt > 0 && o.Failed && j.Crashes > 0) {
				continue
			}
			total++
			if len(c.Sample) < mostSample {
				c.Sample = append(c.Sample, j.ID)
			}
		}
		looked += page.Looked
		after = page.Next
		last := after == "" || look > 0 || looked >= mostLooked
		switch {
		case kept && (len(c.Sample) == mostSample || last):
			return c, nil
		case kept:
		case total > mostCounted:
			c.N, c.More = mostCounted, true
			return c, nil
		case last:
			c.N, c.More = total, after != ""
			return c, nil
		}
	}
}

// countKept counts the jobs that a filter of nothing but queue, kind and states selects, or of a
// cause besides, from the numbers that are kept.
func countKept(ctx context.Context, store storage.Store, f *storage.Filter) (ok bool, n int64, err error) {
	for _, at := range []time.Time{f.CreatedFrom, f.CreatedBefore, f.DueFrom, f.DueBefore, f.EndedFrom, f.EndedBefore} {
		if !at.IsZero() {
			return false, 0, nil
		}
	}
	if f.Group != "" || f.Tag != "" || f.Reason != "" || f.Error != "" {
		return false, 0, nil
	}
	if f.Cause != 0 {
		return countCause(ctx, store, f)
	}
	counts, err := store.Counts(ctx)
	for _, c := range counts {
		if (f.Queue == "" || f.Queue == c.Queue) && (f.Kind == "" || f.Kind == c.Kind) && f.Has(c.State) && f.Reaches(c.Queue) {
			n += c.N
		}
	}
	return true, n, err
}

// countCause is countKept for a filter with a cause.
func countCause(ctx context.Context, store storage.Store, f *storage.Filter) (ok bool, n int64, err error) {
	if len(f.States) != 1 || !f.Has(storage.Dead) {
		return false, 0, nil
	}
	all, err := store.Causes(ctx, storage.Lane{Queue: f.Queue, Kind: f.Kind}, listPage)
	for _, c := range all {
		if c.ID == f.Cause {
			return true, c.N, err
		}
	}
	return false, 0, err
}
