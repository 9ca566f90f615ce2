package storagetest

import (
	"context"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// past is a random history of one instance for its samples. Beside them it counts the numbers of
// lanes, and notes what they were when a call was the first one in a SampleEach.
type past struct {
	*rapid.T
	ctx   context.Context
	s     storage.Store
	now   time.Time
	wrote time.Time // the now of the last call that had one
	lanes map[storage.Lane]storage.SampledLane
	want  []numbersAt // in the order of times
	ended []gone
}

// numbersAt is what the numbers of lanes were at a time.
type numbersAt struct {
	at    time.Time
	lanes map[storage.Lane]storage.SampledLane
}

// gone is a job that has ended.
type gone struct {
	id   storage.ID
	of   storage.Lane
	dead bool
}

// randomSamples compares the samples of a store, if it keeps any, with those of a plain count.
func randomSamples(t *rapid.T, db DB) {
	p := &past{
		T: t, ctx: context.Background(), s: db.Open(), now: time.Date(2026, 3, 4, 5, 6, 7, 891_011_000, time.UTC),
		lanes: map[storage.Lane]storage.SampledLane{},
	}
	if _, ok := p.s.(storage.Historian); !ok {
		return
	}
	p.compare(t)
	actions := map[string]func(*rapid.T){"": p.compare, "enqueue": p.enqueue, "finish": p.finish, "delete": p.delete, "wait": p.wait}
	if _, ok := p.s.(storage.Timekeeper); ok {
		actions["back"] = p.back
	}
	t.Repeat(actions)
}

func (p *past) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatalf("unexpected error: %v", err)
	}
}

// sample notes the numbers before a call that changes some.
func (p *past) sample() {
	p.wrote = p.now
	at := p.now.Truncate(storage.SampleEach)
	if n := len(p.want); n == 0 || p.want[n-1].at.Before(at) {
		p.want = append(p.want, numbersAt{at, maps.Clone(p.lanes)})
	}
}

// drawLane draws one of the lanes that a filter accepts.
func (p *past) drawLane(t *rapid.T, fits func(storage.SampledLane) bool) storage.Lane {
	var all []storage.Lane
	for _, kind := range []string{"a", "b", "c"} {
		if l := (storage.Lane{Queue: queue, Kind: kind}); fits(p.lanes[l]) {
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		t.Skip("no lane")
	}
	return rapid.SampledFrom(all).Draw(t, "lane")
}

func (p *past) change(of storage.Lane, f func(l *storage.SampledLane)) {
	l := p.lanes[of]
	l.Lane = of
	f(&l)
	p.lanes[of] = l
}

func (p *past) enqueue(t *rapid.T) {
	of, n := p.drawLane(t, func(storage.SampledLane) bool { return true }), rapid.IntRange(1, 3).Draw(t, "jobs")
	p.sample()
	_, err := p.s.Enqueue(p.ctx, p.now, times(n, newJob(lane(of.Queue, of.Kind))))
	p.must(err)
	p.change(of, func(l *storage.SampledLane) { l.Total.Enqueued, l.Ready = l.Total.Enqueued+int64(n), l.Ready+int64(n) })
}

// finish has an attempt end.
func (p *past) finish(t *rapid.T) {
	of := p.drawLane(t, func(l storage.SampledLane) bool { return l.Ready > 0 })
	outcome := rapid.SampledFrom([]storage.Outcome{storage.OutcomeDone, storage.OutcomeDead, storage.OutcomeRetry}).Draw(t, "outcome")
	p.sample()
	x := storage.Exchange{LeaseDuration: hold, Wants: wants(1, storage.Want{Queues: []string{of.Queue}, Kinds: []string{of.Kind}})}
	got, err := p.s.Exchange(p.ctx, p.now, x)
	p.must(err)
	if len(got.Leased) != 1 {
		p.Fatalf("%d jobs of %v were leased, want 1", len(got.Leased), of)
	}
	l := got.Leased[0]
	fin := died(l.Lease, storage.ReasonPermanent, "no")
	switch outcome {
	case storage.OutcomeDone:
		fin = storage.Finish{Lease: l.Lease, Outcome: outcome}
	case storage.OutcomeRetry: // so late that none is promoted
		fin = storage.Finish{Lease: l.Lease, Outcome: outcome, DueAt: p.now.Add(month), Failure: &storage.NewFailure{Phase: "backoff", Error: "no"}}
	}
	end, err := p.s.Exchange(p.ctx, p.now, storage.Exchange{Finish: []storage.Finish{fin}, Retention: kept(month)})
	p.must(err)
	if end.Finished[0] != storage.Applied {
		p.Fatalf("the end of job %v was answered with %d", l.ID, end.Finished[0])
	}
	p.change(of, func(l *storage.SampledLane) {
		l.Ready--
		switch outcome {
		case storage.OutcomeDone:
			l.Total.Done++
		case storage.OutcomeDead:
			l.Total.Dead, l.Total.Failed, l.Dead = l.Total.Dead+1, l.Total.Failed+1, l.Dead+1
		default:
			l.Total.Failed, l.Scheduled = l.Total.Failed+1, l.Scheduled+1
		}
	})
	if outcome != storage.OutcomeRetry {
		p.ended = append(p.ended, gone{l.ID, of, outcome == storage.OutcomeDead})
	}
}

// delete deletes a job that has ended, which was so before. The call has no time, and takes no sample.
func (p *past) delete(t *rapid.T) {
	if len(p.ended) == 0 {
		t.Skip("none has ended")
	}
	i := rapid.IntRange(0, len(p.ended)-1).Draw(t, "job")
	job := p.ended[i]
	p.ended = slices.Delete(p.ended, i, i+1)
	step, err := p.s.Delete(p.ctx, storage.Selection{IDs: []storage.ID{job.id}})
	p.must(err)
	if step.N != 1 {
		p.Fatalf("%d jobs were deleted, want 1", step.N)
	}
	if job.dead {
		p.change(job.of, func(l *storage.SampledLane) { l.Dead-- })
	}
}

func (p *past) wait(t *rapid.T) {
	p.now = p.now.Add(time.Duration(rapid.IntRange(0, 15*60).Draw(t, "seconds")) * time.Second)
}

// back sets the clock back.
func (p *past) back(t *rapid.T) {
	if p.wrote.IsZero() {
		t.Skip("nothing was written")
	}
	p.now = p.wrote.Add(-time.Duration(rapid.IntRange(1, 30*60).Draw(t, "seconds")) * time.Second)
	for after, again := int64(0), true; again; again = after != 0 {
		var err error
		after, err = p.s.(storage.Timekeeper).StepClock(p.ctx, p.now, after)
		p.must(err)
	}
	p.want = slices.DeleteFunc(p.want, func(m numbersAt) bool { return m.at.After(p.now) })
	p.sample()
}

// compare compares all samples. Those without numbers say nothing, nor does one in which no lane has any.
func (p *past) compare(*rapid.T) {
	all, err := p.s.(storage.Historian).History(p.ctx, time.Time{})
	p.must(err)
	got, unknown := map[time.Time]map[storage.Lane]storage.SampledLane{}, map[time.Time]bool{}
	for _, s := range all {
		if unknown[s.At.UTC()] = s.Unknown; s.Unknown {
			continue
		}
		lanes := map[storage.Lane]storage.SampledLane{}
		for _, l := range s.Lanes {
			l.OldestDue = time.Time{}
			if l != (storage.SampledLane{Lane: l.Lane}) {
				lanes[l.Lane] = l
			}
		}
		got[s.At.UTC()] = lanes
	}
	for _, want := range p.want {
		if lanes, ok := got[want.at]; !unknown[want.at] && (!ok || !maps.Equal(lanes, want.lanes)) {
			p.Fatalf("the sample of %v (there: %t) is\n%+v, want\n%+v", want.at, ok, lanes, want.lanes)
		}
		delete(got, want.at)
	}
	for at, lanes := range got {
		if len(lanes) > 0 {
			p.Fatalf("there is a sample of %v, in which no call has changed a number: %+v", at, lanes)
		}
	}
}
