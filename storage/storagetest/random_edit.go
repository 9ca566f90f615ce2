package storagetest

import (
	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// anyEdit draws what to do to jobs.
func (h *history) anyEdit(t *rapid.T) (e storage.Edit) {
	if rapid.IntRange(0, 4).Draw(t, "ends") == 0 {
		keep := anyRetention(t)
		e.Cancel = &keep
		return e
	}
	if rapid.IntRange(0, 2).Draw(t, "off") == 0 {
		if e.DueAt = h.due(t); e.DueAt.IsZero() {
			e.Delay = max(anyDue.Draw(t, "delay"), 0)
		}
	}
	if rapid.Bool().Draw(t, "ranked") {
		e.Priority = new(rapid.IntRange(-1, 1).Draw(t, "priority"))
	}
	e.Queue = rapid.SampledFrom([]string{"", "", "a", "b", "c"}).Draw(t, "to")
	e.Policy = rapid.SampledFrom([][]byte{nil, {}, []byte("{}"), []byte("own")}).Draw(t, "policy")
	if rapid.Bool().Draw(t, "edited") {
		e.Args = make([]byte, rapid.SampledFrom([]int{0, 1, 30, 5000}).Draw(t, "args"))
	}
	return e
}

func (h *history) change(t *rapid.T) {
	p := h.pair(t)
	real, model := h.selection(t)
	e := h.anyEdit(t)
	real.Limit = rapid.IntRange(0, 2).Draw(t, "limit")
	model.Limit = real.Limit
	h.sameStep("Change",
		takeSteps(h, real, func(sel storage.Selection) (storage.Step, error) { return p.real.Change(h.ctx, h.now, sel, e) }),
		takeSteps(h, model, func(sel storage.Selection) (storage.Step, error) { return p.model.Change(h.ctx, h.now, sel, e) }))
}

func (h *history) delete(t *rapid.T) {
	p := h.pair(t)
	real, model := h.selection(t)
	states := rapid.SampledFrom([][]storage.State{
		nil, {storage.Dead}, {storage.Done}, {storage.Cancelled, storage.Done}, {storage.Expired}, {storage.Ready}, {storage.Cancelled, storage.Dead},
	}).Draw(t, "states")
	real.Filter.States, model.Filter.States = states, states
	h.sameStep("Delete",
		takeSteps(h, real, func(sel storage.Selection) (storage.Step, error) { return p.real.Delete(h.ctx, sel) }),
		takeSteps(h, model, func(sel storage.Selection) (storage.Step, error) { return p.model.Delete(h.ctx, sel) }))
}
