package storagetest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/errandq/errand/storage"
)

// under is a selection tied to a lease, with a place that says what the step did.
func under(l storage.Lease, sel storage.Selection, told *[]storage.Step) storage.Selection {
	sel.Under = &storage.Under{Lease: l, Place: func(step *storage.Step) storage.Checkpoint {
		*told = append(*told, *step)
		return storage.Checkpoint{Data: fmt.Appendf(nil, "%d %v", step.N, step.Next), Progress: &storage.Progress{Done: int64(step.N), Total: 9, At: time.Unix(1e9, 0)}}
	}}
	return sel
}

// stepCalls are the calls that are steps, each with jobs that it is about.
func (f *fixture) stepCalls() map[string]func(storage.Selection) (storage.Step, error) {
	f.add(times(6, newJob(delay(time.Hour), lane("later", kind)))...)
	for range 4 {
		f.bury(storage.ReasonPermanent, "no", lane("dead", kind))
	}
	for range 2 {
		id := f.add(newJob(lane("gone", kind)))[0]
		if _, err := f.s.Cancel(f.ctx, f.now, id, kept(time.Hour)); err != nil {
			f.Fatal(err)
		}
	}
	in := func(sel storage.Selection, queue string) storage.Selection {
		sel.Filter.Queue, sel.Limit = queue, 2
		return sel
	}
	return map[string]func(storage.Selection) (storage.Step, error){
		"Redrive": func(sel storage.Selection) (storage.Step, error) {
			return f.s.Redrive(f.ctx, f.now, in(sel, "dead"), "other")
		},
		"RunNow": func(sel storage.Selection) (storage.Step, error) {
			return f.s.RunNow(f.ctx, f.now, in(sel, "later"), storage.Waiting{First: true})
		},
		"Change": func(sel storage.Selection) (storage.Step, error) {
			return f.s.Change(f.ctx, f.now, in(sel, "later"), storage.Edit{Queue: "other"})
		},
		"Cancel": func(sel storage.Selection) (storage.Step, error) {
			return f.s.Change(f.ctx, f.now, in(sel, "later"), storage.Edit{Cancel: &storage.Retention{}})
		},
		"Delete finished": func(sel storage.Selection) (storage.Step, error) {
			sel.Filter.States = []storage.State{storage.Cancelled}
			return f.s.Delete(f.ctx, in(sel, "gone"))
		},
		"Delete dead": func(sel storage.Selection) (storage.Step, error) { return f.s.Delete(f.ctx, in(sel, "dead")) },
	}
}

var stepCases = []testCase{
	{"step_under", `A step under a lease that the Store does not hold, or of a job that was cancelled, does nothing, and Step.Refused says why.
If it is not [Applied], nothing was done.`, func(f *fixture) {
		lost, cancelled, ended := f.run(f.s), f.run(f.s), f.run(f.s)
		f.back(lost, storage.OutcomeRetry, f.now.Add(time.Hour))
		f.apply(f.s, storage.Finish{Lease: ended.Lease, Outcome: storage.OutcomeDone})
		other := f.db.Open()
		theirs := f.run(other)
		if _, err := f.s.Cancel(f.ctx, f.now, cancelled.ID, kept(time.Hour)); err != nil {
			f.Fatal(err)
		}
		calls := f.stepCalls()
		was, err := f.s.Counts(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		for name, call := range calls {
			for what, c := range map[string]struct {
				lease storage.Lease
				want  storage.ItemResult
			}{
				"lost": {lost.Lease, storage.Lost}, "cancelled": {cancelled.Lease, storage.Cancelling}, "of another Store": {theirs.Lease, storage.Lost},
				"of no job": {storage.Lease{Key: 1 << 40, Token: 1}, storage.Lost},
			} {
				var told []storage.Step
				step, err := call(under(c.lease, storage.Selection{}, &told))
				f.able(err)
				if err != nil || step.N != 0 || step.Taken != 0 || step.Refused != c.want || told != nil {
					f.Errorf("%s under a lease that is %s: %+v, %v; want it refused as %d, and no place asked for: %+v", name, what, step, err, c.want, told)
				}
			}
		}
		f.counts(was...)
	}},

	{"step_place", `Place, if not nil, returns what the step keeps of the job as Checkpoint does, in the same transaction; without Data that is nothing.
A step that is several transactions calls it in each, with what was done so far and the Next after that.
Taken is how many jobs the step was about, whatever became of them.`, func(f *fixture) {
		for name, call := range f.stepCalls() {
			l := f.run(f.s)
			var told []storage.Step
			step, err := call(under(l.Lease, storage.Selection{}, &told))
			f.able(err)
			if err != nil || step.N != 2 || step.Taken != 2 || step.Refused != storage.Applied || len(told) != 1 || !reflect.DeepEqual(told[0], step) {
				f.Errorf("%s: %+v, %v; the place was asked for with %+v", name, step, err, told)
			}
			r := f.record(l.ID)
			if want := fmt.Sprintf("2 %v", step.Next); string(r.Checkpoint) != want || r.Progress == nil || r.Progress.Done != 2 || r.Progress.Total != 9 {
				f.Errorf("%s: the checkpoint is %q, the progress %+v; want %q", name, r.Checkpoint, r.Progress, want)
			}
			f.apply(f.s, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeDone})
		}
	}},

	{"step_place_none", `without Data that is nothing.
Of IDs these are the first.`, func(f *fixture) {
		l, ids := f.stopped("before"), f.add(times(3, newJob(delay(time.Hour)))...)
		for what, u := range map[string]*storage.Under{
			"no place": {Lease: l.Lease}, "no data": {Lease: l.Lease, Place: func(*storage.Step) storage.Checkpoint { return storage.Checkpoint{} }},
		} {
			step, err := f.s.Change(f.ctx, f.now, storage.Selection{IDs: append(ids, storage.NewID(f.now, 1, 1<<40)), Under: u}, storage.Edit{Priority: new(7)})
			if err != nil || step.N != 3 || step.Taken != 4 || len(step.NotFound) != 1 {
				f.Errorf("%s: %+v, %v", what, step, err)
			}
			f.reached(what, l.ID, "before")
		}
	}},
}
