package storagetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// anyLane draws what a hold can be of.
func anyLane(t *rapid.T) storage.Lane {
	l := storage.Lane{Queue: anyQueue.Draw(t, "queue"), Kind: anyKind.Draw(t, "kind")}
	switch rapid.IntRange(0, 3).Draw(t, "names") {
	case 0:
		l.Queue = ""
	case 1:
		l.Kind = ""
	}
	return l
}

var anyHoldReason = rapid.SampledFrom([]string{"a", storage.HoldPaused})

// newHold draws a hold of a lane.
func (h *history) newHold(t *rapid.T, l storage.Lane) storage.Hold {
	n := storage.Hold{Lane: l, Reason: anyHoldReason.Draw(t, "reason"), By: "ada", Detail: anyError.Draw(t, "detail")}
	if n.For = anyDue.Draw(t, "for"); n.For <= 0 {
		n.For, n.Until = 0, h.due(t)
	}
	n.Hanging = rapid.IntRange(0, 2).Draw(t, "hanging")
	n.Doubtful = rapid.IntRange(0, 3).Draw(t, "doubtful") == 0
	n.Probe = l.Queue != "" && l.Kind != "" && rapid.Bool().Draw(t, "probe")
	if n.Probe && n.For > 0 && rapid.Bool().Draw(t, "dated") {
		n.Until = h.due(t)
	}
	return n
}

// holdsOf draws the holds that an exchange begins or ends.
func (h *history) holdsOf(t *rapid.T) (out []storage.Hold) {
	for range rapid.IntRange(0, 3).Draw(t, "holds") / 2 {
		out = append(out, h.newHold(t, storage.Lane{Queue: anyQueue.Draw(t, "queue"), Kind: anyKind.Draw(t, "kind")}))
	}
	return out
}

func (h *history) hold(t *rapid.T) {
	p, n := h.pair(t), h.newHold(t, anyLane(t))
	other := n
	if rapid.Bool().Draw(t, "of a job") {
		n.Through, other.Through = h.through(t, p, n)
	}
	h.must(p.real.Hold(h.ctx, h.now, n))
	h.must(p.model.Hold(h.ctx, h.now, other))
	h.sameHolds(p)
}

// through draws the lease of a job that holds may have let through, mostly the one that
// n did last.
func (h *history) through(t *rapid.T, p *pair, n storage.Hold) (real, model storage.Lease) {
	all, err := p.real.Holds(h.ctx, h.now)
	h.must(err)
	for _, s := range all {
		if s.Lane == n.Lane && s.Reason == n.Reason && s.Through.Token != 0 && rapid.IntRange(0, 3).Draw(t, "last") > 0 {
			return s.Through.Lease, h.tokens[s.Through.Token]
		}
	}
	g, _ := h.lease(t, p)
	return g.real, g.model
}

func (h *history) release(t *rapid.T) {
	p, lane, reason := h.pair(t), anyLane(t), anyHoldReason.Draw(t, "reason")
	got, err := p.real.Release(h.ctx, h.now, lane, reason)
	h.must(err)
	want, err := p.model.Release(h.ctx, h.now, lane, reason)
	h.must(err)
	h.both("Release", got, want)
}

// sameHolds compares the holds in force.
func (h *history) sameHolds(p *pair) {
	h.Helper()
	got, err := p.real.Holds(h.ctx, h.now)
	h.must(err)
	want, err := p.model.Holds(h.ctx, h.now)
	h.must(err)
	for i := range got {
		if l := &got[i].Through; l.Token != 0 {
			l.Lease, l.Job = h.tokens[l.Token], h.byReal[l.Job]
		}
	}
	h.both("Holds", plainHolds(got), plainHolds(want))
}

// forget has the model forget the holds that the store has forgotten. It may forget
// those that were over, and then the clock can be set back.
func (h *history) forget(p *pair) {
	h.Helper()
	if h.now.After(h.latest) {
		h.latest = h.now
	}
	kept, err := p.real.Holds(h.ctx, time.Unix(0, 0))
	h.must(err)
	h.model.mu.Lock()
	defer h.model.mu.Unlock()
	h.model.holds = slices.DeleteFunc(h.model.holds, func(m *held) bool {
		same := func(k storage.HoldState) bool { return k.Lane == m.Lane && k.Reason == m.Reason }
		return m.over(h.latest) && !slices.ContainsFunc(kept, same)
	})
}
