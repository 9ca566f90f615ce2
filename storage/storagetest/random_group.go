package storagetest

import (
	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

var anyGroup = rapid.SampledFrom([]string{"g", "h h"})

func (h *history) skipHead(t *rapid.T) {
	p, queue, group := h.pair(t), anyQueue.Draw(t, "queue"), anyGroup.Draw(t, "group")
	got, err := p.real.SkipHead(h.ctx, queue, group)
	want, wantErr := p.model.SkipHead(h.ctx, queue, group)
	h.sameError(err, wantErr)
	h.both("SkipHead", h.byReal[got], want)
}

func (h *history) groups(t *rapid.T) {
	p, queue, limit := h.pair(t), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "queue"), rapid.IntRange(1, 3).Draw(t, "limit")
	var lists [2][]storage.GroupState
	for i, s := range []storage.Store{p.real, p.model} {
		after := ""
		for range 1000 {
			page, err := s.Groups(h.ctx, queue, after, limit)
			h.must(err)
			for _, g := range page.Groups {
				if i == 0 {
					g.Head = h.byReal[g.Head]
				}
				g.Cause, g.DiedAt = 0, g.DiedAt.UTC() // the IDs of causes are compared with the causes
				lists[i] = append(lists[i], g)
			}
			if after = page.Next; after == "" {
				break
			}
		}
	}
	h.both("Groups", lists[0], lists[1])
}

// ahead compares the places of a job.
func (h *history) ahead(t *rapid.T) {
	p := h.pair(t)
	real, model := h.any(t)
	want, wantErr := p.model.(storage.Ranker).Ahead(h.ctx, model, 2)
	got, err := p.real.(storage.Ranker).Ahead(h.ctx, real, 2)
	h.sameError(err, wantErr)
	got.Head = h.byReal[got.Head]
	h.both("Ahead", got, want)
}
