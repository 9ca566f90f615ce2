package storagetest

import (
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// cap sets caps, which are small, and mostly none; and how much must be free.
func (h *history) cap(t *rapid.T) {
	p := h.pair(t)
	lane := storage.Lane{Queue: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "queue")}
	s := storage.Settings{
		storage.SettingMaxJobs:  rapid.SampledFrom([]int64{0, 0, 3, 10}).Draw(t, "max jobs"),
		storage.SettingMaxBytes: rapid.SampledFrom([]int64{0, 0, 1000, 4000}).Draw(t, "max bytes"),
		storage.SettingWhenFull: rapid.Int64Range(0, 2).Draw(t, "when full"),
		storage.SettingMinFree:  rapid.SampledFrom([]int64{0, 0, 0, 1, tooMuch}).Draw(t, "min free"),

		storage.SettingMaxDead:      rapid.SampledFrom([]int64{0, 1, 2, 5}).Draw(t, "max dead"),
		storage.SettingWhenDeadFull: rapid.Int64Range(0, 1).Draw(t, "when dead full"),

		storage.SettingMinFreePriority: rapid.Int64Range(-2, 1).Draw(t, "min free priority"),
	}
	h.must(p.real.Configure(h.ctx, lane, s))
	h.must(p.model.Configure(h.ctx, lane, s))
}

// evicting notes which jobs an instance of each says that it has evicted.
func (h *history) evicting(p *pair) {
	for i, s := range []storage.Store{p.real, p.model} {
		s.NotifyEvicted(func(_ time.Time, jobs []storage.Evicted) {
			p.evicted[i] = append(p.evicted[i], jobs...)
		})
	}
}

// sameEvicted compares what a call has evicted.
func (h *history) sameEvicted(p *pair) {
	h.Helper()
	for i := range p.evicted[0] {
		p.evicted[0][i].ID = h.byReal[p.evicted[0][i].ID]
	}
	if !p.untold {
		h.both("evicted", p.evicted[0], p.evicted[1])
	}
	p.evicted = [2][]storage.Evicted{}
}
