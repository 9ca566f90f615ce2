package bulk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/errandq/errand/internal/engine"
	"github.com/errandq/errand/storage"
)

// idStep is how many jobs named by ID are changed in one transaction. So few hold the writer
// only for a moment.
const idStep = 250

// Stepper does what an order says, step after step: in memory, or as a bulk job, whose place is
// kept in the transaction of each step and whose steps are done only under its lease.
type Stepper struct {
	Store storage.Store
	Order *Order
	// Now returns the time of a step on the queue's clock, and whether that is believed.
	Now func(context.Context) (time.Time, bool)
	// Keep is how long jobs are kept that are cancelled.
	Keep storage.Retention
	// MaxArgs bounds args in which values are set.
	MaxArgs int
	// Lease is that of the bulk job; nil: the work is done in memory.
	Lease *storage.Lease
	// At is where the work has got to. The zero place is before Begin.
	At Place
}

// Begin finds out what was dead before: what dies again is not met twice. The clock does not
// bound that, as it may have been set back since.
func (s *Stepper) Begin(ctx context.Context) error {
	if len(s.Order.IDs) == 0 && s.Order.Filter.Has(storage.Dead) {
		latest, err := s.Store.Jobs(ctx, storage.Filter{States: []storage.State{storage.Dead}}, "", 1)
		if err != nil {
			return err
		}
		if len(latest.Jobs) > 0 {
			s.At.Before = latest.Jobs[0].EndedAt.Add(time.Microsecond)
		}
	}
	return s.save(ctx)
}

// Over reports whether nothing is left to do.
func (s *Stepper) Over() bool { return s.At.Pass >= len(s.Order.passes()) }

// Step takes at most limit jobs, or as many as the store takes in a step if that is zero, and says
// what was done, also beside an error. The bulk job of a lease that is lost or was cancelled does
// nothing, and Step returns the error of that.
func (s *Stepper) Step(ctx context.Context, limit int) (storage.Step, error) {
	o, at := s.Order, &s.At
	states := o.passes()[at.Pass]
	if len(o.IDs) > 0 {
		n := idStep
		if limit > 0 {
			n = min(n, limit)
		}
		sel := storage.Selection{IDs: o.IDs[at.IDs:min(at.IDs+n, len(o.IDs))], Filter: storage.Filter{States: states}}
		if len(o.Set) > 0 {
			return s.set(ctx, sel.IDs, "")
		}
		return s.take(ctx, sel, nil)
	}
	sel := storage.Selection{Filter: o.Filter, After: at.After, Through: at.Through, Limit: limit}
	sel.Filter.States = states
	if states[0] == storage.Dead {
		if at.Before.IsZero() {
			*at = at.nextPass()
			return storage.Step{}, nil
		}
		if before := sel.Filter.EndedBefore; before.IsZero() || at.Before.Before(before) {
			sel.Filter.EndedBefore = at.Before
		}
	}
	if len(o.Set) > 0 {
		return s.setPage(ctx, &sel)
	}
	return s.take(ctx, sel, nil)
}

// take does a step. page, if not nil, is the list that its jobs are from.
func (s *Stepper) take(ctx context.Context, sel storage.Selection, page *page) (storage.Step, error) {
	now, believed := s.Now(ctx)
	sel.Doubtful, sel.FromStart, sel.Edit = !believed, s.Order.FromStart, s.Order.With
	sel.Under = s.under(func(step *storage.Step) storage.Checkpoint { return s.kept(s.after(&sel, step, step.Taken, page), now) })
	step, err := s.do(ctx, now, sel)
	if err == nil {
		err = engine.Refused(step.Refused)
	}
	if err == nil {
		s.At = s.after(&sel, &step, len(sel.IDs), page)
	} else if step.Taken > 0 { // of a step in parts, what was done before
		s.At = s.after(&sel, &step, step.Taken, page)
	}
	return step, err
}

// save keeps the place without a step.
func (s *Stepper) save(ctx context.Context) error {
	if s.Lease == nil {
		return nil
	}
	now, _ := s.Now(ctx)
	c := s.kept(s.At, now)
	c.Lease = *s.Lease
	r, err := s.Store.Checkpoint(ctx, c)
	return cmp.Or(err, engine.Refused(r))
}

// do has the store do what the order says.
func (s *Stepper) do(ctx context.Context, now time.Time, sel storage.Selection) (storage.Step, error) {
	switch o := s.Order; o.Do {
	case Redrive:
		return s.Store.Redrive(ctx, now, sel, o.To)
	case RunNow:
		return s.Store.RunNow(ctx, now, sel, storage.Waiting{First: o.First, Failed: o.Failed})
	case Change:
		return s.Store.Change(ctx, now, sel, *o.Edit)
	case Cancel:
		return s.Store.Change(ctx, now, sel, storage.Edit{Cancel: &s.Keep})
	}
	return s.Store.Delete(ctx, sel)
}

// under ties a step to the lease, if there is one.
func (s *Stepper) under(place func(*storage.Step) storage.Checkpoint) *storage.Under {
	if s.Lease == nil {
		return nil
	}
	return &storage.Under{Lease: *s.Lease, Place: place}
}

// kept is a place as it is kept with the bulk job.
func (s *Stepper) kept(at Place, now time.Time) storage.Checkpoint {
	data, err := json.Marshal(&at)
	if err != nil { // a year that JSON does not have: the place stays where it was
		return storage.Checkpoint{}
	}
	return storage.Checkpoint{Data: data, Progress: at.progress(now)}
}

// after returns the place after a step, or after a part of it in a transaction of its own, which has
// taken so many of the jobs that are named.
func (s *Stepper) after(sel *storage.Selection, step *storage.Step, taken int, page *page) Place {
	o, at := s.Order, s.At
	at.Changed += int64(step.N)
	at.Left += int64(len(step.Duplicates) + len(step.NotFound))
	if o.Do == Cancel {
		at.Changed += int64(len(step.Live)) // which were asked to stop
	} else {
		at.Left += int64(len(step.Live))
	}
	switch {
	case page != nil && taken < len(sel.IDs) && len(o.IDs) == 0:
		at.Left = s.At.Left // the page comes again, without those that are dead no more
		return at
	case page != nil && taken < len(sel.IDs):
		n := page.until(taken)
		at.Left, at.IDs = at.Left+int64(n-taken), at.IDs+n
	case page != nil:
		at.Left, at.Page, at.IDs = at.Left+int64(page.left), page.next, at.IDs+page.named
	case len(sel.IDs) > 0:
		at.IDs += taken
	default:
		at.After, at.Through = step.Next, step.Through
	}
	if at.IDs >= len(o.IDs) && at.Page == "" && at.After == (storage.Position{}) {
		return at.nextPass()
	}
	return at
}

// setters is how many jobs of a step have their args set at a time: their writes share a commit.
const setters = 32

// page is what jobs are from that had values set in their args: a page of a list, or IDs.
type page struct {
	next  string
	named int   // of the IDs of the order
	left  int   // whose args could not be set
	at    []int // where the others are
}

// until returns how many jobs of a page come before those that are left when n could be set and
// were taken.
func (p *page) until(n int) int {
	if n == 0 {
		return 0
	}
	return p.at[n-1] + 1
}

// setPage takes the next dead jobs of a list, and has args set in them before they are redriven.
func (s *Stepper) setPage(ctx context.Context, sel *storage.Selection) (storage.Step, error) {
	limit := idStep
	if sel.Limit > 0 {
		limit = min(limit, sel.Limit)
	}
	list, err := s.Store.Jobs(ctx, sel.Filter, s.At.Page, limit)
	if err != nil {
		return storage.Step{}, err
	}
	ids := make([]storage.ID, len(list.Jobs))
	for i := range list.Jobs {
		ids[i] = list.Jobs[i].ID
	}
	return s.set(ctx, ids, list.Next)
}

// set sets values in the args of dead jobs, and redrives those in which they are.
func (s *Stepper) set(ctx context.Context, ids []storage.ID, next string) (storage.Step, error) {
	now, _ := s.Now(ctx)
	at, err := s.setAll(ctx, now, ids)
	if err != nil {
		return storage.Step{}, err
	}
	well := make([]storage.ID, len(at))
	for i, n := range at {
		well[i] = ids[n]
	}
	p := &page{next: next, left: len(ids) - len(well), at: at}
	if len(s.Order.IDs) > 0 {
		p.named = len(ids)
	}
	if len(well) == 0 {
		s.At = s.after(&storage.Selection{}, &storage.Step{}, 0, p)
		return storage.Step{Taken: len(ids)}, s.save(ctx)
	}
	step, err := s.take(ctx, storage.Selection{IDs: well}, p)
	step.Taken = len(ids)
	return step, err
}

// setAll puts values into the args of dead jobs, and returns where those are in which it could.
func (s *Stepper) setAll(ctx context.Context, now time.Time, ids []storage.ID) (at []int, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var faults []error
	slots := make(chan struct{}, setters)
	for i, id := range ids {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ok, err := s.setOne(ctx, now, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				faults = append(faults, err)
			case ok:
				at = append(at, i)
			}
		})
	}
	all.Wait()
	slices.Sort(at)
	return at, errors.Join(faults...)
}

// setOne reports whether the args of a dead job could be set.
func (s *Stepper) setOne(ctx context.Context, now time.Time, id storage.ID) (bool, error) {
	job, err := s.Store.Job(ctx, id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && job.State != storage.Dead {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	args, ok := setArgs(job.Args, s.Order.Set)
	if !ok || len(args) > s.MaxArgs {
		return false, nil
	}
	sel := storage.Selection{IDs: []storage.ID{id}, Under: s.under(nil)}
	step, err := s.Store.Change(ctx, now, sel, storage.Edit{Args: args})
	if err == nil {
		err = engine.Refused(step.Refused)
	}
	return step.N == 1, err
}

// setArgs returns args with values in them, by the paths of fields. It is not ok if the args
// have no such field: that may be a slip of the pen.
func setArgs(args []byte, values map[string]json.RawMessage) (out []byte, ok bool) {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if err := d.Decode(&all); err != nil || all == nil {
		return nil, false
	}
	for path, value := range values {
		in, names := all, strings.Split(path, ".")
		last := names[len(names)-1]
		for _, name := range names[:len(names)-1] {
			in, _ = in[name].(map[string]any) // nil if it is none
		}
		if _, ok := in[last]; !ok {
			return nil, false
		}
		in[last] = value
	}
	out, err := json.Marshal(all)
	return out, err == nil
}
