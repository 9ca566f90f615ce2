package storagetest

import (
	"time"

	"pgregory.net/rapid"
)

// compareStats compares the numbers of all lanes.
func (h *history) compareStats(t *rapid.T) {
	p := h.pair(t)
	got, err := p.real.Stats(h.ctx)
	h.must(err)
	want, err := p.model.Stats(h.ctx)
	h.must(err)
	h.both("number of lanes", len(got), len(want))
	for i := range want {
		g, w := &got[i], &want[i]
		if off := g.Succeeded.Sub(w.Succeeded).Abs(); g.Succeeded.IsZero() == w.Succeeded.IsZero() && off < time.Second {
			g.Succeeded = w.Succeeded
		}
		g.FailedJob = h.byReal[g.FailedJob]
		g.OldestDue, g.Failed, w.OldestDue, w.Failed = g.OldestDue.UTC(), g.Failed.UTC(), w.OldestDue.UTC(), w.Failed.UTC()
		h.both("numbers of a lane", *g, *w)
	}
}
