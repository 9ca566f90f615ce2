package storagetest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// anyCheckpoint draws what a handler says of where its job has got to.
func (h *history) anyCheckpoint(t *rapid.T) storage.Checkpoint {
	n := rapid.IntRange(1, 3).Draw(t, "at")
	c := storage.Checkpoint{Data: fmt.Appendf(nil, `{"at":%d}`, n)}
	c.Progress = h.anyProgress(t)
	return c
}

func (h *history) anyProgress(t *rapid.T) *storage.Progress {
	if rapid.Bool().Draw(t, "silent") {
		return nil
	}
	return &storage.Progress{Done: int64(rapid.IntRange(0, 9).Draw(t, "done")), Total: 9, Note: anyError.Draw(t, "note"), At: h.now}
}

// checkpoint has a job say where it has got to.
func (h *history) checkpoint(t *rapid.T) {
	p := h.pair(t)
	g, ok := h.lease(t, p)
	if !ok || !h.handled(p, g) {
		return
	}
	c := h.anyCheckpoint(t)
	var answers [2]storage.ItemResult
	for i, l := range []storage.Lease{g.real, g.model} {
		c.Lease = l
		r, err := []storage.Store{p.real, p.model}[i].Checkpoint(h.ctx, c)
		h.must(err)
		answers[i] = r
	}
	h.both("Checkpoint", answers[0], answers[1])
}

// compareStates looks at some jobs at a time.
func (h *history) compareStates(t *rapid.T) {
	p := h.pair(t)
	ids := make([][2]storage.ID, rapid.IntRange(0, 4).Draw(t, "jobs"))
	var real, model []storage.ID
	for i := range ids {
		ids[i][0], ids[i][1] = h.any(t)
		real, model = append(real, ids[i][0]), append(model, ids[i][1])
	}
	got, err := p.real.States(h.ctx, real)
	h.must(err)
	want, err := p.model.States(h.ctx, model)
	h.must(err)
	h.both("States", got, want)
}
