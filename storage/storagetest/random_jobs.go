package storagetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// newJob draws a job.
func (h *history) newJob(t *rapid.T) storage.NewJob {
	n := storage.NewJob{
		Queue: anyQueue.Draw(t, "queue"), Kind: anyKind.Draw(t, "kind"), Priority: rapid.IntRange(-1, 1).Draw(t, "priority"),
		DueAt: h.due(t), Args: make([]byte, rapid.SampledFrom([]int{0, 1, 30, 5000}).Draw(t, "args")),
		Unique: rapid.SampledFrom([]string{"", "", "u", "v", "w"}).Draw(t, "unique"), UniqueScope: storage.UniqueScope(rapid.IntRange(0, 5).Draw(t, "scope") / 5),
	}
	if n.DueAt.IsZero() {
		n.Delay = anyDue.Draw(t, "delay")
	}
	if rapid.IntRange(0, 2).Draw(t, "grouped") > 0 {
		n.Group = anyGroup.Draw(t, "group")
	}
	if rapid.Bool().Draw(t, "extras") {
		n.Headers, n.Policy, n.Timeout = []byte("headers"), []byte("{}"), time.Minute
		n.Tags = append(rapid.SliceOfNDistinct(anyTag, 0, 3, rapid.ID).Draw(t, "tags"), storage.FromTags(anyOrigin.Draw(t, "origin"))...)
		if len(n.Tags) == 0 {
			n.Tags = nil // as a schedule gives it back
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "windows") == 0 {
		n.StartWithin, n.FinishWithin = anyWindow.Draw(t, "start within"), anyWindow.Draw(t, "finish within")
		n.OnExpire = rapid.SampledFrom([]storage.State{"", storage.Dead, storage.Expired}).Draw(t, "on expire")
		n.Doubtful = rapid.IntRange(0, 2).Draw(t, "doubtful") == 0
	}
	return n
}

// anyWindow draws the length of a window, or none.
var anyWindow = rapid.SampledFrom([]time.Duration{0, time.Microsecond, time.Second, 20 * time.Second, time.Hour})

// inserted notes that a job is called real in the one, model in the other.
func (h *history) inserted(real, model storage.ID) {
	if h.byReal[real].IsZero() {
		h.byReal[real] = model
		h.jobs = append(h.jobs, real)
	}
	if h.now.After(h.wrote) {
		h.wrote = h.now
	}
}

// any draws a job, or an ID of none.
func (h *history) any(t *rapid.T) (real, model storage.ID) {
	n := rapid.IntRange(0, len(h.jobs)).Draw(t, "job")
	if n == len(h.jobs) {
		id := storage.NewID(h.now, 1, 1<<40)
		return id, id
	}
	return h.jobs[n], h.byReal[h.jobs[n]]
}

func (h *history) cancel(t *rapid.T) {
	p := h.pair(t)
	real, model := h.any(t)
	r := anyRetention(t)
	got, err := p.real.Cancel(h.ctx, h.now, real, r)
	want, wantErr := p.model.Cancel(h.ctx, h.now, model, r)
	h.both("Cancel", got, want)
	h.sameError(err, wantErr)
}

func (h *history) sameError(got, want error) {
	h.Helper()
	if want == nil {
		h.must(got)
	} else if !errors.Is(got, want) {
		h.Fatalf("got the error %v, want %v", got, want)
	}
}

// filter draws a choice of jobs, for real and the model.
func (h *history) filter(t *rapid.T) (real, model storage.Filter) {
	var f storage.Filter
	if rapid.Bool().Draw(t, "by queue") {
		f.Queue = anyQueue.Draw(t, "queue")
		if rapid.IntRange(0, 2).Draw(t, "by group") == 0 {
			f.Group = anyGroup.Draw(t, "group")
		}
	}
	if rapid.Bool().Draw(t, "by kind") {
		f.Kind = anyKind.Draw(t, "kind")
	}
	if rapid.IntRange(0, 3).Draw(t, "by tag") == 0 {
		tags := append(storage.FromTags(anyOrigin.Draw(t, "origin")), anyTag.Draw(t, "tag"))
		f.Tag = rapid.SampledFrom(tags).Draw(t, "one of them")
	}
	if rapid.IntRange(0, 3).Draw(t, "by reason") == 0 {
		f.Reason = anyReason.Draw(t, "reason")
	}
	if rapid.Bool().Draw(t, "by error") {
		f.Error = strings.ToUpper(anyError.Draw(t, "error"))
	}
	real, model = f, f
	if rapid.IntRange(0, 3).Draw(t, "by cause") == 0 {
		real.Cause, model.Cause = h.cause(t)
	}
	return real, model
}

// selection draws a selection of jobs, for real and the model.
func (h *history) selection(t *rapid.T) (real, model storage.Selection) {
	if rapid.IntRange(0, 3).Draw(t, "doubtful") == 0 {
		real.Doubtful, model.Doubtful = true, true
	}
	if rapid.Bool().Draw(t, "by filter") {
		real.Filter, model.Filter = h.filter(t)
		return real, model
	}
	id, modelID := h.any(t)
	real.IDs, model.IDs = []storage.ID{id}, []storage.ID{modelID}
	if other, modelOther := h.any(t); other != id && h.byReal[other] == modelOther {
		// Which of two jobs with one key comes back is left open.
		a, b := h.model.find(modelID), h.model.find(modelOther)
		if a == nil || b == nil || a.Unique == "" || a.Unique != b.Unique {
			real.IDs, model.IDs = append(real.IDs, other), append(model.IDs, modelOther)
		}
	}
	return real, model
}

func (h *history) sameStep(what string, real, model storage.Step) {
	h.Helper()
	for _, ids := range [][]storage.ID{real.Duplicates, real.NotFound, real.Live} {
		for i, id := range ids {
			if known, ok := h.byReal[id]; ok {
				ids[i] = known
			}
		}
	}
	h.both(what, real, model)
}

func (h *history) redrive(t *rapid.T) {
	p := h.pair(t)
	real, model := h.selection(t)
	to := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "to")
	real.FromStart = rapid.Bool().Draw(t, "from the start")
	model.FromStart = real.FromStart
	if rapid.Bool().Draw(t, "edited") {
		e := h.anyEdit(t)
		real.Edit = &storage.Edit{Priority: e.Priority, Policy: e.Policy, Args: e.Args}
		model.Edit = real.Edit
	}
	h.sameStep("Redrive",
		takeSteps(h, real, func(sel storage.Selection) (storage.Step, error) {
			return p.real.Redrive(h.ctx, h.now, sel, to)
		}),
		takeSteps(h, model, func(sel storage.Selection) (storage.Step, error) {
			return p.model.Redrive(h.ctx, h.now, sel, to)
		}))
}

func (h *history) runNow(t *rapid.T) {
	p := h.pair(t)
	real, model := h.selection(t)
	which := storage.Waiting{First: rapid.Bool().Draw(t, "first"), Failed: rapid.Bool().Draw(t, "failed")}
	real.Limit = rapid.IntRange(0, 2).Draw(t, "limit")
	model.Limit = real.Limit
	h.sameStep("RunNow",
		takeSteps(h, real, func(sel storage.Selection) (storage.Step, error) { return p.real.RunNow(h.ctx, h.now, sel, which) }),
		takeSteps(h, model, func(sel storage.Selection) (storage.Step, error) { return p.model.RunNow(h.ctx, h.now, sel, which) }))
}

func (h *history) purgeFinished(t *rapid.T) {
	p := h.pair(t)
	var n [2]int
	var next [2]time.Time
	for i, s := range []storage.Store{p.real, p.model} {
		for range 1000 {
			got, again, err := s.PurgeFinished(h.ctx, h.now)
			h.must(err)
			n[i] += got
			next[i] = again.UTC()
			if !again.Equal(h.now) {
				break
			}
		}
	}
	h.both("PurgeFinished", n[0], n[1])
	h.both("next PurgeFinished", next[0], next[1])
}

func (h *history) list(t *rapid.T) {
	p, limit := h.pair(t), rapid.IntRange(1, 5).Draw(t, "limit")
	var filters [2]storage.Filter
	filters[0], filters[1] = h.filter(t)
	if filters[0].Queue != "" && rapid.Bool().Draw(t, "by group") {
		filters[0].Group = anyGroup.Draw(t, "group")
		filters[1].Group = filters[0].Group
	}
	states := rapid.SliceOfNDistinct(anyState, 0, 2, rapid.ID).Draw(t, "states")
	var lists [2][]storage.Record
	for i, s := range []storage.Store{p.real, p.model} {
		after := ""
		for range 1000 {
			filters[i].States = states
			page, err := s.Jobs(h.ctx, filters[i], after, limit)
			h.must(err)
			lists[i] = append(lists[i], page.Jobs...)
			if after = page.Next; after == "" {
				break
			}
		}
	}
	h.both("number of jobs", len(lists[0]), len(lists[1]))
	for i := range lists[1] {
		h.sameRecord(lists[0][i], lists[1][i])
	}
}

func (h *history) job(t *rapid.T) {
	p := h.pair(t)
	real, model := h.any(t)
	h.sameJob(p, real, model)
}

func (h *history) sameJob(p *pair, real, model storage.ID) {
	h.Helper()
	got, err := p.real.Job(h.ctx, real)
	want, wantErr := p.model.Job(h.ctx, model)
	h.sameError(err, wantErr)
	if err == nil {
		h.sameRecord(got, want)
	}
}

// sameRecord compares two records but for names that differ between stores.
func (h *history) sameRecord(real, model storage.Record) {
	h.Helper()
	if h.byReal[real.ID] != model.ID {
		h.Fatalf("got job %d, want %v", real.Key, model.ID)
	}
	real, model = plain(real), plain(model)
	real.ID, real.Key = model.ID, model.Key
	h.both("length of the history", len(real.History), len(model.History))
	for i := range real.History {
		h.name(real.History[i].Instance, model.History[i].Instance)
		real.History[i].Instance = model.History[i].Instance
	}
	h.both("record", real, model)
}

func (h *history) compareCounts(*rapid.T) {
	p := h.pairs[slices.IndexFunc(h.pairs, func(p *pair) bool { return !p.closed })]
	got, err := p.real.Counts(h.ctx)
	h.must(err)
	want, err := p.model.Counts(h.ctx)
	h.must(err)
	if len(got) != 0 || len(want) != 0 {
		h.both("Counts", got, want)
	}
}

// end compares all there is.
func (h *history) end(t *testing.T) {
	h.Helper()
	p := h.pairs[slices.IndexFunc(h.pairs, func(p *pair) bool { return !p.closed })]
	for _, id := range h.jobs {
		h.sameJob(p, id, h.byReal[id])
	}
	h.sameHolds(p)
	h.sameCauses(p, storage.Lane{}, 1000)
	h.compareSchedules(p)
	if _, ok := p.real.(storage.Topics); ok {
		h.compareTopics(p)
	}
	if fault := record(t, h.real.Invariants); fault != "" {
		h.Fatalf("invariants %s", fault)
	}
	if fault := record(t, h.model.Invariants); fault != "" {
		h.Fatalf("invariants of the model %s", fault)
	}
}
