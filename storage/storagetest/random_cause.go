package storagetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// causes compares the causes of a lane.
func (h *history) causes(t *rapid.T) {
	lane := storage.Lane{
		Queue: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "queue"),
		Kind:  rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "kind"),
	}
	p := h.pair(t)
	reals, models := h.sameCauses(p, lane, rapid.IntRange(0, 3).Draw(t, "limit"))
	for i := range reals {
		from, most := models[i].First.Add(-time.Second), rapid.IntRange(0, 3).Draw(t, "most")
		real, err := p.real.Deaths(h.ctx, []int64{reals[i].ID}, from, 10*time.Second, 5, most)
		h.must(err)
		model, err := p.model.Deaths(h.ctx, []int64{models[i].ID}, from, 10*time.Second, 5, most)
		h.must(err)
		h.both("deaths", real, model)
	}
}

// sameCauses compares causes but for their IDs, and returns those of both.
func (h *history) sameCauses(p *pair, lane storage.Lane, limit int) (real, model []storage.Cause) {
	h.Helper()
	real, err := p.real.Causes(h.ctx, lane, limit)
	h.must(err)
	model, err = p.model.Causes(h.ctx, lane, limit)
	h.must(err)
	h.both("number of causes", len(real), len(model))
	for i := range real {
		got, want := real[i], model[i]
		got.ID, got.Job = want.ID, h.byReal[got.Job]
		got.First, got.Last, want.First, want.Last = got.First.UTC(), got.Last.UTC(), want.First.UTC(), want.Last.UTC()
		h.both("cause", got, want)
	}
	return real, model
}

// cause draws the ID of a cause, or one of none.
func (h *history) cause(t *rapid.T) (real, model int64) {
	reals, models := h.sameCauses(h.pair(t), storage.Lane{}, 1000)
	n := rapid.IntRange(0, len(reals)).Draw(t, "cause")
	if n == len(reals) {
		return 1 << 40, 1 << 40
	}
	return reals[n].ID, models[n].ID
}
