package storagetest

import (
	"bytes"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

var (
	anySchedule = rapid.SampledFrom([]string{"s", "t"})
	anyWall     = rapid.SampledFrom([]string{"", "noon", "midnight"})
)

// revision is what a schedule was given in both.
type revision struct{ real, model int64 }

// revision draws a revision of a schedule, mostly the present one.
func (h *history) revision(t *rapid.T, name string) revision {
	all := h.revisions[name]
	if len(all) == 0 || rapid.IntRange(0, 5).Draw(t, "new") == 0 {
		return revision{}
	}
	return all[len(all)-1-rapid.IntRange(0, min(len(all)-1, 5)).Draw(t, "revision")/5]
}

// revised compares the answers to a change that may have come to nothing.
func (h *history) revised(name string, r revision) {
	h.Helper()
	h.both("changed", r.real != 0, r.model != 0)
	if r.real == 0 {
		return
	}
	if r.real < 0 || slices.ContainsFunc(h.revisions[name], func(old revision) bool { return old.real == r.real }) {
		h.Fatalf("schedule %q was given revision %d, after %v", name, r.real, h.revisions[name])
	}
	h.revisions[name] = append(h.revisions[name], r)
}

func (h *history) putSchedule(t *rapid.T) {
	p := h.pair(t)
	s := storage.Schedule{
		Name: anySchedule.Draw(t, "name"), Spec: "@hourly", SkipOverlap: rapid.Bool().Draw(t, "skip overlap"), Jitter: anyKeep.Draw(t, "jitter"),
		Job: h.newJob(t), Plan: storage.Plan{Paused: rapid.Bool().Draw(t, "paused"), Next: h.due(t), Through: h.due(t), Wall: anyWall.Draw(t, "wall")},
	}
	s.Job.DueAt, s.Job.Delay, s.Job.Doubtful = time.Time{}, 0, false
	s.Next, s.Through = floor(s.Next), floor(s.Through) // how they are rounded is left open
	at := h.revision(t, s.Name)
	var given revision
	var err error
	s.Revision = at.real
	given.real, err = p.real.(storage.Scheduler).PutSchedule(h.ctx, h.now, s)
	h.must(err)
	s.Revision = at.model
	given.model, err = p.model.(storage.Scheduler).PutSchedule(h.ctx, h.now, s)
	h.must(err)
	h.revised(s.Name, given)
}

func (h *history) dropSchedule(t *rapid.T) {
	p, name := h.pair(t), anySchedule.Draw(t, "name")
	err := p.real.(storage.Scheduler).DropSchedule(h.ctx, h.now, name)
	h.sameError(err, p.model.(storage.Scheduler).DropSchedule(h.ctx, h.now, name))
}

func (h *history) fire(t *rapid.T) {
	p := h.pair(t)
	var real, model []storage.Firing
	for range rapid.IntRange(1, 3).Draw(t, "firings") {
		f := storage.Firing{
			Name: anySchedule.Draw(t, "name"), Next: floor(h.due(t)), Through: floor(h.due(t)), Wall: anyWall.Draw(t, "wall"),
			Start: rapid.IntRange(0, 3).Draw(t, "start") == 0,
		}
		for range rapid.SampledFrom([]int{0, 1, 2, 3, storage.TickLimit + 1}).Draw(t, "ticks") {
			f.Ticks = append(f.Ticks, h.tick(t, len(f.Ticks) < 3))
		}
		at := h.revision(t, f.Name)
		f.Revision = at.real
		real = append(real, f)
		f.Revision = at.model
		model = append(model, f)
	}
	got, err := p.real.(storage.Scheduler).Fire(h.ctx, h.now, real)
	h.must(err)
	want, err := p.model.(storage.Scheduler).Fire(h.ctx, h.now, model)
	h.must(err)
	h.both("number of answers to Fire", len(got), len(want))
	for i := range want {
		h.both("Applied", got[i].Applied, want[i].Applied)
		if want[i].Applied {
			h.revised(real[i].Name, revision{got[i].Plan.Revision, want[i].Plan.Revision})
		}
		h.both("number of ticks taken", len(got[i].Ticks), len(want[i].Ticks))
		for k, w := range want[i].Ticks {
			if !w.ID.IsZero() && w.Taken != storage.TickDuplicate {
				h.inserted(got[i].Ticks[k].ID, w.ID)
			}
		}
	}
	for i := range want {
		h.both("ticks", h.modelTicks(got[i].Ticks), plainTicks(want[i].Ticks))
		h.both("plan", modelPlan(got[i].Plan), modelPlan(want[i].Plan))
	}
	h.sameEvicted(p)
	h.handedOver(p)
	h.forget(p)
}

// tick draws a tick, which has a job only if it may.
func (h *history) tick(t *rapid.T, job bool) storage.NewTick {
	k := storage.NewTick{
		At:    h.now.Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "ago")) * time.Second),
		Taken: rapid.SampledFrom([]storage.TickOutcome{storage.TickFired, storage.TickManual, storage.TickMissed}).Draw(t, "taken"),
	}
	if k.Taken != storage.TickMissed && job {
		n := h.newJob(t)
		k.Job = &n
		return k
	}
	k.Taken, k.Until, k.N = storage.TickMissed, h.now, 7
	return k
}

// modelTicks returns ticks of real with the IDs of the model.
func (h *history) modelTicks(ticks []storage.Tick) []storage.Tick {
	out := plainTicks(ticks)
	for i := range out {
		out[i].ID = h.byReal[out[i].ID]
	}
	return out
}

func plainTicks(ticks []storage.Tick) []storage.Tick {
	var out []storage.Tick
	for _, t := range ticks {
		out = append(out, plainTick(t))
	}
	return out
}

// modelPlan returns p with a revision that tells only whether there is one.
func modelPlan(p storage.Plan) storage.Plan {
	p.Revision = min(p.Revision, 1)
	return plainPlan(p)
}

// compareSchedules compares all schedules and their histories.
func (h *history) compareSchedules(p *pair) {
	h.Helper()
	real, ok := p.real.(storage.Scheduler)
	if !ok {
		return
	}
	model := p.model.(storage.Scheduler)
	got, err := real.Schedules(h.ctx)
	h.must(err)
	want, err := model.Schedules(h.ctx)
	h.must(err)
	h.both("number of schedules", len(got), len(want))
	for i, w := range want {
		g := got[i]
		g.Plan, w.Plan = modelPlan(g.Plan), modelPlan(w.Plan)
		g.LastJob, g.LastTick, w.LastTick = h.byReal[g.LastJob], g.LastTick.UTC(), w.LastTick.UTC()
		if !bytes.Equal(g.Job.Args, w.Job.Args) || !bytes.Equal(g.Job.Headers, w.Job.Headers) || !bytes.Equal(g.Job.Policy, w.Job.Policy) {
			h.Fatalf("schedule %q has other bytes than it was given", w.Name)
		}
		g.Job.Args, g.Job.Headers, g.Job.Policy = w.Job.Args, w.Job.Headers, w.Job.Policy
		h.both("schedule", g, w)
	}
	for _, name := range []string{"s", "t"} {
		got, err := real.Ticks(h.ctx, name)
		h.must(err)
		want, err := model.Ticks(h.ctx, name)
		h.must(err)
		h.both("history of "+name, h.modelTicks(got), plainTicks(want))
	}
}

// stepClock sets the clock back, and counts anew what was counted from later.
func (h *history) stepClock(t *rapid.T) {
	p := h.pair(t)
	h.now = h.now.Add(-rapid.SampledFrom([]time.Duration{0, time.Second, 10 * time.Second, time.Hour}).Draw(t, "by"))
	for _, s := range []storage.Store{p.real, p.model} {
		var after int64
		for range 1000 {
			next, err := s.(storage.Timekeeper).StepClock(h.ctx, h.now, after)
			h.must(err)
			if after = next; next == 0 {
				break
			}
		}
		h.both("end of the pass", after, int64(0))
	}
	if h.wrote.After(h.now) {
		h.wrote = h.now
	}
	h.compareMarks(t)
	h.sameHolds(p)
}

// compareMarks compares what Clock returns. The model's is raised by each call
// that may write, while a store may leave out those that changed nothing.
func (h *history) compareMarks(t *rapid.T) {
	p := h.pair(t)
	got, shifting, err := p.real.(storage.Timekeeper).Clock(h.ctx)
	h.must(err)
	want, _, err := p.model.(storage.Timekeeper).Clock(h.ctx)
	h.must(err)
	if got.After(want) || h.wrote.After(got) {
		h.Fatalf("Clock returned %v, want a moment from %v to %v", got, h.wrote, want)
	}
	h.both("shifting", shifting, false)
}
