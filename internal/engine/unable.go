package engine

import (
	"log/slog"

	"github.com/errandq/errand/storage"
)

const (
	unable      = "errand: the store lacks what an outcome needs, its attempt counts as interrupted"
	keepsNoneOf = "errand: the store keeps neither results nor progress, an outcome is written without"
)

// needs returns what a store may lack that handlers, queues and settings need: a gate that opens
// makes jobs ready, and a brake is a hold.
func (c *Config) needs() (all []storage.Feature) {
	gated := false
	for h := range c.handlers() {
		gated = gated || h.Gate != nil
		if h.OnUnauthorized != nil {
			all = append(all, "Hold")
		}
		if b := h.Batch; b != nil {
			w := storage.Want{Min: b.Min, Wait: b.Wait}
			if b.ByGroup {
				w.ByGroup = b.Max
			}
			all = append(all, w.Needs()...)
		}
	}
	for _, name := range c.Queues {
		s := c.settings(name)
		if s.MaxDeaths > 0 {
			all = append(all, "Hold")
		}
		if (gated || s.Gate != nil) && !s.NoKick {
			all = append(all, "RunNow")
		}
	}
	for i := range c.Lasting {
		all = append(all, c.Lasting[i].Settings.Needs()...)
	}
	return all
}

// spareUnable has an outcome written in another way that needs what the store lacks, which is not
// the job's fault: without its result and progress, or else as that of an attempt that was
// interrupted, whose job is due as it was to be. It reports false if that needs no less.
func (l *loop) spareUnable(f *outcome) bool {
	lacks := l.cfg.lacking(f.Needs()...)
	if lacks == nil || f.Outcome == storage.OutcomeInterrupted {
		return false
	}
	again, message := *f, keepsNoneOf
	if again.Result, again.Progress = nil, nil; l.cfg.lacking(again.Needs()...) != nil {
		message = unable
		again.Finish = storage.Finish{Lease: f.Lease, Outcome: storage.OutcomeInterrupted, DueAt: latest(l.clock().Add(backDelay), f.DueAt)}
	}
	l.outcomes.waiting = append(l.outcomes.waiting, again)
	l.reports.job(slog.LevelWarn, message, f.job, lacks.Error(), "outcome", f.Outcome.String())
	return true
}
