package storagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// RunRandom drives a Store and a [Memory] side by side through random
// histories of several instances, with kills, reboots and clocks that jump, and
// compares every answer and, at the end of each history, every job. It also
// compares samples, see [storage.Historian], with a plain count. How many
// histories there are and how long each is, the flags -rapid.checks and
// -rapid.steps say.
func RunRandom(t *testing.T, open func(t *testing.T) DB) {
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		sub, end := subtest(t, fmt.Sprintf("history_%d", n))
		defer end()
		if sub != nil {
			newHistory(rt, open(sub)).run(t)
		}
	})
	n = 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		sub, end := subtest(t, fmt.Sprintf("samples_%d", n))
		defer end()
		if sub != nil {
			randomSamples(rt, open(sub))
		}
	})
}

// subtest begins a subtest that lasts until end is called, so that the files of
// a history are closed before the next. What is checked stays on the goroutine
// of the caller, as rapid wants. sub is nil if the flag -run excludes it.
func subtest(t *testing.T, name string) (sub *testing.T, end func()) {
	begun, ending, ended := make(chan *testing.T, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t.Run(name, func(t *testing.T) {
			begun <- t
			<-ending
		})
	}()
	select {
	case sub = <-begun:
	case <-ended:
	}
	return sub, func() {
		close(ending)
		<-ended
	}
}

// history is one random history.
type history struct {
	*rapid.T
	ctx    context.Context
	real   DB
	model  *Memory
	pairs  []*pair // living ones
	opened int
	now    time.Time
	mono   time.Duration
	jobs   []storage.ID              // in real, in the order enqueued
	byReal map[storage.ID]storage.ID // to the model's
	tokens map[int64]storage.Lease   // of real, all ever given, to the model's
	leases []grant                   // all ever given to living instances

	revisions map[string][]revision // of each schedule, in the order given
	wrote     time.Time             // what Clock must not be before
	latest    time.Time             // of all now
}

// pair is an instance of both.
type pair struct {
	real, model storage.Store
	closed      bool
	origin      time.Duration // of its monotonic clock
	offers      []*handing
	evicted     [2][]storage.Evicted // by the last call, of each
	untold      bool                 // an answer of it was lost
}

// GoString is what rapid shows when it draws p.
func (p *pair) GoString() string { return fmt.Sprintf("instance %d", p.origin/(1000*time.Hour)) }

// grant is a lease in both.
type grant struct {
	to          *pair
	real, model storage.Lease

	sinceReal, sinceModel int64 // tokens of the leases before
}

func newHistory(t *rapid.T, real DB) *history {
	h := &history{
		T: t, ctx: context.Background(), real: real, model: NewMemory(),
		now:    time.Date(2026, 3, 4, 5, 6, 7, 891_011_000, time.UTC),
		byReal: map[storage.ID]storage.ID{}, tokens: map[int64]storage.Lease{}, revisions: map[string][]revision{},
	}
	h.model.bounds = real.Bounds()
	h.open()
	h.open()
	return h
}

func (h *history) run(t *testing.T) {
	actions := map[string]func(*rapid.T){
		"":              h.compareCounts,
		"enqueue":       h.enqueue,
		"exchange":      h.exchange,
		"work":          h.exchange, // twice, as it is the heart
		"reclaim":       h.reclaim,
		"cancel":        h.cancel,
		"hold":          h.hold,
		"release":       h.release,
		"configure":     h.configure,
		"redrive":       h.redrive,
		"runNow":        h.runNow,
		"change":        h.change,
		"delete":        h.delete,
		"states":        h.compareStates,
		"purgeFinished": h.purgeFinished,
		"list":          h.list,
		"causes":        h.causes,
		"groups":        h.groups,
		"behindDead":    h.behindDead,
		"skipHead":      h.skipHead,
		"stats":         h.compareStats,
		"job":           h.job,
		"clock":         h.clock,
		"mono":          h.monotonic,
		"death":         h.death,
		"ahead":         h.ahead,
		"cap":           h.cap,
		"takeover":      h.takeover,
	}
	if _, ok := h.pairs[0].real.(storage.Marker); ok {
		actions["note"], actions["checkpoint"] = h.note, h.checkpoint
	}
	if _, ok := h.pairs[0].real.(storage.Scheduler); ok {
		actions["putSchedule"], actions["fire"], actions["dropSchedule"] = h.putSchedule, h.fire, h.dropSchedule
	}
	if _, ok := h.pairs[0].real.(storage.Timekeeper); ok {
		actions["stepClock"], actions["mark"] = h.stepClock, h.compareMarks
	}
	if _, ok := h.pairs[0].real.(storage.Handoff); ok {
		actions["offer"], actions["changeOffer"] = h.offer, h.changeOffer
	}
	if _, ok := h.pairs[0].real.(storage.Topics); ok {
		actions["putEntries"], actions["publish"] = h.putEntries, h.publish
		actions["topics"] = func(t *rapid.T) { h.compareTopics(h.pair(t)) }
	}
	_, finishes := h.pairs[0].real.(storage.TxEnqueuer)
	if _, ok := h.pairs[0].real.(storage.Marker); ok && finishes {
		actions["transact"] = h.transact
	}
	if _, ok := h.pairs[0].real.(storage.Promoter); ok {
		actions["promote"] = func(t *rapid.T) { h.promote(t, h.pair(t)) }
		for _, name := range []string{"enqueue", "fire", "publish", "transact"} {
			if act := actions[name]; act != nil {
				actions[name] = func(t *rapid.T) { // as an Offer promotes its own lanes alone
					h.promote(t, h.pair(t))
					act(t)
				}
			}
		}
	}
	h.Repeat(actions)
	h.end(t)
}

func (h *history) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("unexpected error: %v", err)
	}
}

// both checks that two answers are the same.
func (h *history) both(what string, real, model any) {
	h.Helper()
	if !reflect.DeepEqual(real, model) {
		h.Fatalf("%s:\n got %+v\nwant %+v", what, real, model)
	}
}

func (h *history) open() {
	h.opened++
	p := &pair{real: h.real.Open(), model: h.model.Open(), origin: time.Duration(h.opened) * 1000 * time.Hour}
	_, marked := p.real.(storage.Marker)
	p.model.(*instance).unmarked = !marked
	h.pairs = append(h.pairs, p)
	h.evicting(p)
	h.offerTo(h.T, p)
}

// pair draws an instance that is open.
func (h *history) pair(t *rapid.T) *pair {
	var open []*pair
	for _, p := range h.pairs {
		if !p.closed {
			open = append(open, p)
		}
	}
	return rapid.SampledFrom(open).Draw(t, "instance")
}

// death lets an instance end in one way or another, and opens another for it.
func (h *history) death(t *rapid.T) {
	h.dies(rapid.SampledFrom(h.pairs).Draw(t, "who"), rapid.SampledFrom([]string{"kill", "reboot", "close"}).Draw(t, "how"))
}

func (h *history) dies(p *pair, how string) {
	if how == "close" && !p.closed {
		h.must(p.real.Close())
		h.must(p.model.Close())
		p.closed = true
	} else {
		h.pairs = slices.DeleteFunc(h.pairs, func(q *pair) bool { return p == q })
		switch how {
		case "reboot":
			h.real.Reboot(p.real)
			h.model.Reboot(p.model)
		default:
			h.real.Kill(p.real)
			h.model.Kill(p.model)
		}
	}
	h.leases = slices.DeleteFunc(h.leases, func(g grant) bool { return g.to == p })
	if !slices.ContainsFunc(h.pairs, func(p *pair) bool { return !p.closed }) || len(h.pairs) < 3 {
		h.open()
	}
}

func (h *history) clock(t *rapid.T) {
	h.now = h.now.Add(rapid.SampledFrom([]time.Duration{
		time.Microsecond, time.Second, 10 * time.Second, hold, time.Hour, -time.Second, -hold,
	}).Draw(t, "by"))
}

func (h *history) monotonic(t *rapid.T) {
	h.mono += rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, hold / 2, hold - time.Microsecond, hold}).Draw(t, "by")
}

var (
	anyQueue  = rapid.SampledFrom([]string{"a", "b", "a", "b", storage.BulkQueue})
	anyKind   = rapid.SampledFrom([]string{"x", "y"})
	anyTag    = rapid.SampledFrom([]string{"red", "green", "blue"})
	anyOrigin = rapid.SampledFrom([]storage.Origin{{}, {Device: "pi", ID: "1"}, {Device: "pi", ID: "2"}, {Device: "hub", ID: "1"}})
	anyState  = rapid.SampledFrom([]storage.State{storage.Scheduled, storage.Ready, storage.Running, storage.Done, storage.Cancelled, storage.Expired, storage.Dead, storage.Blocked})
	anyReason = rapid.SampledFrom([]storage.Reason{storage.ReasonExhausted, storage.ReasonPermanent, storage.ReasonCrashed, storage.ReasonSnoozed, storage.ReasonDecode})
	anyError  = rapid.SampledFrom([]string{"Timeout", "refused", "100% lost"})
	anyKeep   = rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour})
	// Due times beside now, not all of whole microseconds.
	anyDue = rapid.SampledFrom([]time.Duration{-time.Second, 0, 1, 999, time.Microsecond, time.Second, 10*time.Second + 1})
)

// anyRetention draws a Retention.
func anyRetention(t *rapid.T) storage.Retention {
	r := storage.Retention{Default: anyKeep.Draw(t, "keep")}
	if rapid.Bool().Draw(t, "by lane") {
		r.Lanes = map[storage.Lane]time.Duration{{Queue: anyQueue.Draw(t, "queue"), Kind: anyKind.Draw(t, "kind")}: anyKeep.Draw(t, "keep")}
	}
	return r
}

// anyWant draws a Want.
func anyWant(t *rapid.T) storage.Want {
	w := storage.Want{
		Queues: rapid.SliceOfNDistinct(anyQueue, 1, 2, rapid.ID).Draw(t, "queues"),
		Kinds:  rapid.SliceOfNDistinct(anyKind, 1, 2, rapid.ID).Draw(t, "kinds"),
		N:      rapid.IntRange(0, 5).Draw(t, "want"),
	}
	if rapid.IntRange(0, 2).Draw(t, "prefix") == 0 {
		w.Queues[0] = rapid.SampledFrom([]string{"*", "a*", "b*", "c*"}).Draw(t, "queues of a prefix")
	}
	if rapid.IntRange(0, 3).Draw(t, "any kind") == 0 {
		w.Kinds[0] = storage.AnyKind
	}
	if rapid.IntRange(0, 4).Draw(t, "except") == 0 {
		w.Except = []storage.Lane{{Queue: rapid.SampledFrom([]string{"a", "b", "a*"}).Draw(t, "queue not wanted"), Kind: anyKind.Draw(t, "kind not wanted")}}
	}
	if rapid.IntRange(0, 4).Draw(t, "each") == 0 {
		w.Each = rapid.IntRange(1, 3).Draw(t, "of each")
		w.EachOf = map[string]int{anyQueue.Draw(t, "other queue"): rapid.IntRange(-1, 2).Draw(t, "of it")}
	}
	if rapid.IntRange(0, 3).Draw(t, "keeps back") == 0 {
		w.Min = rapid.IntRange(0, 4).Draw(t, "min")
		w.Wait = time.Duration(rapid.IntRange(0, 60).Draw(t, "wait")) * time.Second
	}
	if rapid.IntRange(0, 2).Draw(t, "by group") == 0 {
		w.ByGroup = rapid.IntRange(1, 4).Draw(t, "of a call")
	}
	return w
}

// due draws a due time, which may be zero.
func (h *history) due(t *rapid.T) time.Time {
	if rapid.IntRange(0, 3).Draw(t, "at once") == 0 {
		return time.Time{}
	}
	return h.now.Add(anyDue.Draw(t, "due"))
}

func (h *history) enqueue(t *rapid.T) {
	p := h.pair(t)
	var jobs []storage.NewJob
	for range rapid.IntRange(1, 5).Draw(t, "jobs") {
		jobs = append(jobs, h.newJob(t))
	}
	same := h.conflicts(t, jobs)
	real, err := losingAnswers(h, t, p, false, func(int64) ([]storage.Enqueued, error) { return p.real.Enqueue(h.ctx, h.now, jobs) })
	model, wanted := p.model.Enqueue(h.ctx, h.now, same)
	if errors.Is(wanted, storage.ErrDuplicate) {
		h.sameError(err, storage.ErrDuplicate)
		return
	}
	if wanted != nil {
		var full *storage.QueueFullError
		if errors.As(err, &full) && full.Free > 0 {
			full.Free = modelFree
		}
		h.both("an error", err, wanted)
		h.sameEvicted(p)
		return
	}
	h.must(err)
	for i := range model {
		if !model[i].Duplicate {
			h.inserted(real[i].ID, model[i].ID)
		}
		real[i].ID = h.byReal[real[i].ID]
	}
	h.both("Enqueue", real, model)
	h.sameEvicted(p)
	h.handedOver(p)
	h.forget(p)
}

// lease draws a lease that was given to p, or none.
func (h *history) lease(t *rapid.T, p *pair) (grant, bool) {
	var of []grant
	for _, g := range h.leases {
		if g.to == p {
			of = append(of, g)
		}
	}
	if len(of) == 0 {
		return grant{}, false
	}
	// Mostly of the latest ones, as those may be held.
	return of[len(of)-1-rapid.IntRange(0, min(len(of)-1, 6)).Draw(t, "lease")], true
}

func (h *history) granted(p *pair, real, model storage.Leased) {
	if _, ok := h.tokens[real.Token]; ok {
		h.Fatalf("token %d was given a second time", real.Token)
	}
	h.tokens[real.Token] = model.Lease
	h.leases = append(h.leases, grant{p, real.Lease, model.Lease, real.Previous, model.Previous})
	if h.byReal[real.ID] != model.ID || !sameLeased(real, model) {
		h.Fatalf("leased:\n got %+v\nwant %+v", real, model)
	}
}

// sameLeased reports whether two leases are of the same job in the same shape.
func sameLeased(a, b storage.Leased) bool {
	for _, l := range []*storage.Leased{&a, &b} {
		l.Lease, l.ID, l.Previous = storage.Lease{}, storage.ID{}, min(l.Previous, 1)
		l.CreatedAt, l.DueAt = l.CreatedAt.UTC(), l.DueAt.UTC()
		l.StartBy, l.Deadline = l.StartBy.UTC(), l.Deadline.UTC()
		for _, p := range []*[]byte{&l.Args, &l.Headers, &l.Policy} {
			if len(*p) == 0 {
				*p = nil
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

func (h *history) exchange(t *rapid.T) {
	p := h.pair(t)
	real := storage.Exchange{LeaseDuration: hold, Retention: anyRetention(t), Doubtful: rapid.IntRange(0, 3).Draw(t, "doubtful") == 0}
	for range rapid.IntRange(0, 3).Draw(t, "wants") {
		real.Wants = append(real.Wants, anyWant(t))
	}
	real.Hold, real.Release = h.holdsOf(t), h.holdsOf(t)
	real.Urgent = rapid.IntRange(0, 2).Draw(t, "urgent")
	model := real
	for range rapid.IntRange(0, 2).Draw(t, "extend") {
		if g, ok := h.lease(t, p); ok {
			real.Extend, model.Extend = append(real.Extend, g.real), append(model.Extend, g.model)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "finish") {
		g, ok := h.lease(t, p)
		if !ok {
			break
		}
		fin := h.outcome(t)
		fin.Lease, fin.Since = g.real, g.sinceReal
		real.Finish = append(real.Finish, fin)
		fin.Lease, fin.Since = g.model, g.sinceModel
		model.Finish = append(model.Finish, fin)
	}
	if _, ok := p.real.(storage.Promoter); ok {
		if len(real.Finish) > 0 { // which may make jobs of other lanes due
			real.Wants, real.Urgent, model.Wants, model.Urgent = nil, 0, nil, 0
		}
		h.promoteOthers(t, p, &model)
	}
	for range rapid.IntRange(0, 2).Draw(t, "start") {
		if g, ok := h.lease(t, p); ok {
			real.Start, model.Start = append(real.Start, g.real), append(model.Start, g.model)
		}
	}
	for range rapid.IntRange(0, 1).Draw(t, "stop") {
		if g, ok := h.lease(t, p); ok {
			real.Stop, model.Stop = append(real.Stop, g.real), append(model.Stop, g.model)
		}
	}
	h.exchangeBoth(t, p, real, model)
}

// exchangeBoth compares what both answer to an exchange.
func (h *history) exchangeBoth(t *rapid.T, p *pair, real, model storage.Exchange) {
	h.Helper()
	got, err := losingAnswers(h, t, p, true, func(repeats int64) (storage.ExchangeResult, error) {
		real.Repeats = repeats
		return p.real.Exchange(h.ctx, h.now, real)
	})
	h.must(err)
	want, err := p.model.Exchange(h.ctx, h.now, model)
	h.must(err)
	h.both("extending", got.Extended, want.Extended)
	h.both("starting", got.Started, want.Started)
	h.both("finishing", got.Finished, want.Finished)
	h.forgetEnded(real.Finish, got.Finished)
	h.sameNextDue(p, got, want, model.Wants)
	h.sameExpired(got.Expired, want.Expired)
	h.sameEvicted(p)
	h.both("number of leases", len(got.Leased), len(want.Leased))
	for i := range want.Leased {
		h.granted(p, got.Leased[i], want.Leased[i])
	}
	h.forget(p)
}

// outcome draws the end of a lease.
func (h *history) outcome(t *rapid.T) storage.Finish {
	fin := storage.Finish{
		Outcome: storage.Outcome(rapid.IntRange(int(storage.OutcomeDone), int(storage.OutcomeUnavailable)).Draw(t, "outcome")),
		DueAt:   h.due(t),
	}
	failure := &storage.NewFailure{
		Phase: "backoff", Error: anyError.Draw(t, "error"), Duration: time.Second,
		Instance:   rapid.SampledFrom([]string{"", "elsewhere"}).Draw(t, "by"),
		RetryAfter: rapid.Bool().Draw(t, "retry after"),
	}
	if rapid.Bool().Draw(t, "brings something") {
		fin.Result, fin.Progress = []byte(`{"ok":true}`), h.anyProgress(t)
	}
	switch fin.Outcome {
	case storage.OutcomeDead:
		fin.Reason, fin.Policy = anyReason.Draw(t, "reason"), []byte(`{"own":false}`)
		fin.Failure, fin.Error, fin.Cause = failure, failure.Error, failure.Error[:1]
	case storage.OutcomeRetry, storage.OutcomeCrashed:
		fin.Failure, fin.Error = failure, failure.Error
	case storage.OutcomeReturned:
		fin.Stays = rapid.Bool().Draw(t, "stays")
	case storage.OutcomeUnavailable:
		fin.Error = failure.Error
		fin.Spent = &storage.Finish{Outcome: storage.OutcomeRetry, DueAt: fin.DueAt, Failure: failure}
		if rapid.Bool().Draw(t, "dies") {
			fin.Spent.Outcome, fin.Spent.Reason, fin.Spent.Error, fin.Spent.Cause = storage.OutcomeDead, storage.ReasonExhausted, failure.Error, failure.Error
		}
	}
	return fin
}

func (h *history) note(t *rapid.T) {
	p := h.pair(t)
	g, ok := h.lease(t, p)
	if !ok {
		return
	}
	// Ended without Started, or either after the lease was lost, are the
	// caller's mistakes.
	j := h.model.held(g.model)
	if j == nil || j.lease.fate != 0 || j.lease.holder != p.model {
		return
	}
	started, ended, stopping := j.lease.started, j.lease.ended, rapid.Bool().Draw(t, "stopping")
	for s, l := range map[storage.Store]storage.Lease{p.real: g.real, p.model: g.model} {
		switch m := s.(storage.Marker); {
		case !started, ended && !stopping:
			h.must(m.Started(l, h.now))
		case stopping:
			h.must(m.Stopping(l))
		default:
			h.must(m.Ended(l))
		}
	}
}

func (h *history) reclaim(t *rapid.T) { h.reclaimBy(t, h.pair(t)) }

func (h *history) reclaimBy(t *rapid.T, p *pair) {
	mono, limit := p.origin+h.mono, rapid.SampledFrom([]int{1000, 1000, 1}).Draw(t, "limit")
	got, err := losingAnswers(h, t, p, true, func(int64) ([]storage.Reclaimed, error) {
		return p.real.Reclaim(h.ctx, h.now, mono, hold, limit)
	})
	h.must(err)
	// Which of them go first is left open, and when those that live are looked
	// at, so the model takes the same.
	in := p.model.(*instance)
	in.m.wrote(h.now)
	allowed := in.reclaimable(mono)
	gone := 0
	for _, j := range allowed {
		if j.lease.holder.gone {
			gone++
		}
	}
	if len(got) > limit || len(got) < min(gone, limit) {
		h.Fatalf("%d leases were reclaimed, want %d to %d", len(got), min(gone, limit), min(len(allowed), limit))
	}
	slices.SortFunc(got, func(a, b storage.Reclaimed) int { return cmp.Compare(a.Key, b.Key) })
	for _, r := range got {
		i := slices.IndexFunc(allowed, func(j *job) bool { return j.ID == h.byReal[r.ID] })
		if i < 0 {
			h.Fatalf("job %d was reclaimed, though its holder is not gone", r.Key)
		}
		in.m.letNext(allowed[i], h.now)
		want := in.reclaim(h.now, allowed[i], hold)
		h.granted(p, r.Leased, want.Leased)
		h.both(fmt.Sprintf("fate of job %d", r.Key), fateName(r.Fate), fateName(want.Fate))
		h.both("StartedAt", r.StartedAt.UTC(), want.StartedAt.UTC())
		h.both("Cancelling", r.Cancelling, want.Cancelling)
		h.name(r.Holder, want.Holder)
	}
	h.sameHolds(p)
}

// name checks the name of an instance. Those of a store under test may all be
// the same, as they are in one process.
func (h *history) name(real, model string) {
	h.Helper()
	if real == "" || real != model && model == "elsewhere" {
		h.Fatalf("an instance is called %q, want %q or the like", real, model)
	}
}
