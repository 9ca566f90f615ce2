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
	p, limit := h.pair(t), rapid.IntRange(1, 3).Draw(t, "limit")
	of := storage.GroupFilter{Queue: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "queue"), Waiting: rapid.Bool().Draw(t, "waiting")}
	var lists [2][]storage.GroupState
	for i, s := range []storage.Store{p.real, p.model} {
		after := ""
		for range 1000 {
			page, err := s.Groups(h.ctx, of, after, limit)
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

func (h *history) behindDead(t *rapid.T) {
	p, after, limit := h.pair(t), rapid.SampledFrom([]string{"", "a"}).Draw(t, "after"), rapid.IntRange(0, 3).Draw(t, "limit")
	var lists [2][]storage.BehindDead
	for i, s := range []storage.Store{p.real, p.model} {
		all, err := s.BehindDead(h.ctx, after, limit)
		h.must(err)
		for _, b := range all {
			b.Since = b.Since.UTC()
			lists[i] = append(lists[i], b)
		}
	}
	h.both("BehindDead", lists[0], lists[1])
}

// ahead compares the places of a job.
func (h *history) ahead(t *rapid.T) {
	p := h.pair(t)
	real, model := h.any(t)
	want, wantErr := p.model.Ahead(h.ctx, model, 2)
	got, err := p.real.Ahead(h.ctx, real, 2)
	h.sameError(err, wantErr)
	got.Head = h.byReal[got.Head]
	h.both("Ahead", got, want)
}

// groupSettings changes what is said of the groups of a queue, which mostly takes effect
// at once.
func (h *history) groupSettings(t *rapid.T, p *pair) {
	lane := storage.Lane{Queue: anyQueue.Draw(t, "queue")}
	s := storage.Settings{
		storage.SettingGroupLimit: rapid.SampledFrom([]int64{0, 0, 1, 2, 3}).Draw(t, "group limit"),
		storage.SettingDeadHead:   rapid.Int64Range(0, 1).Draw(t, "dead head"),
	}
	again := rapid.IntRange(0, 3).Draw(t, "later") > 0
	for _, s2 := range []storage.Store{p.real, p.model} {
		h.must(s2.Configure(h.ctx, lane, s))
		for after := ""; again; {
			next, err := s2.Regroup(h.ctx, lane.Queue, after)
			h.must(err)
			if after = next; after == "" {
				break
			}
		}
	}
}
