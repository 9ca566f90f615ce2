package storagetest

import (
	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// configure sets for how long jobs are kept, their windows, and something that changes nothing else.
func (h *history) configure(t *rapid.T) {
	p, lane := h.pair(t), anyLane(t)
	if rapid.Bool().Draw(t, "of groups") {
		h.groupSettings(t, p)
		return
	}
	if rapid.Bool().Draw(t, "of orders") {
		s := storage.Settings{
			storage.SettingOrder: rapid.Int64Range(0, 2).Draw(t, "order"),
			storage.SettingAging: rapid.SampledFrom([]int64{0, 1_000_000, 60_000_000}).Draw(t, "aging"),
		}
		h.must(p.real.Configure(h.ctx, storage.Lane{Queue: lane.Queue}, s))
		h.must(p.model.Configure(h.ctx, storage.Lane{Queue: lane.Queue}, s))
		return
	}
	if rapid.Bool().Draw(t, "of throttles") {
		of := storage.Lane{Queue: lane.Queue}
		if rapid.Bool().Draw(t, "of a kind") || of.Queue == "" {
			of = storage.Lane{Kind: anyKind.Draw(t, "throttled kind")}
		}
		s := storage.Settings{
			storage.SettingStarts:      rapid.SampledFrom([]int64{0, 0, 1, 7, 1000}).Draw(t, "starts"),
			storage.SettingStartsPer:   rapid.SampledFrom([]int64{0, 1_000_000, 60_000_000}).Draw(t, "in a time"),
			storage.SettingStartsBurst: rapid.Int64Range(0, 4).Draw(t, "burst"),
		}
		h.must(p.real.Configure(h.ctx, of, s))
		h.must(p.model.Configure(h.ctx, of, s))
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "all") == 0 {
		lane = storage.Lane{}
	}
	s := storage.Settings{
		storage.SettingRetention:                rapid.SampledFrom([]int64{0, 0, -1, 1_000_000}).Draw(t, "retention"),
		storage.SettingStartWithin:              rapid.SampledFrom([]int64{0, 0, 1_000_000}).Draw(t, "start within"),
		storage.SettingFinishWithin:             rapid.SampledFrom([]int64{0, 0, 1_000_000, 20_000_000}).Draw(t, "finish within"),
		storage.SettingOnExpire:                 rapid.Int64Range(0, storage.ExpireDead).Draw(t, "on expire"),
		storage.Setting(anyTag.Draw(t, "name")): rapid.Int64Range(0, 2).Draw(t, "value"),
	}
	h.must(p.real.Configure(h.ctx, lane, s))
	h.must(p.model.Configure(h.ctx, lane, s))
	got, err := h.pair(t).real.Settings(h.ctx)
	h.must(err)
	want, err := p.model.Settings(h.ctx)
	h.must(err)
	h.both("Settings", got, want)
}
