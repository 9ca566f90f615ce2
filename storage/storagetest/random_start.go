package storagetest

import (
	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// takeover has an instance lease what there is and die while some of it has started. Another
// takes that over, puts it back, and leases again.
func (h *history) takeover(t *rapid.T) {
	p := h.pair(t)
	h.leaseAll(t, p)
	var starts [2]storage.Exchange
	for _, g := range h.leases {
		if g.to == p && rapid.Bool().Draw(t, "starts") {
			starts[0].Start, starts[1].Start = append(starts[0].Start, g.real), append(starts[1].Start, g.model)
		}
	}
	starts[0].LeaseDuration, starts[1].LeaseDuration = hold, hold
	h.exchangeBoth(t, p, starts[0], starts[1])
	if n := len(starts[0].Start); n > 0 && rapid.Bool().Draw(t, "stops") {
		stops := func(x storage.Exchange) storage.Exchange {
			return storage.Exchange{LeaseDuration: hold, Stop: x.Start[:n/2+1]}
		}
		h.exchangeBoth(t, p, stops(starts[0]), stops(starts[1]))
	}
	h.dies(p, rapid.SampledFrom([]string{"kill", "reboot"}).Draw(t, "how"))
	by := h.pair(t)
	before := len(h.leases)
	h.reclaimBy(t, by)
	outcomes := []storage.Outcome{storage.OutcomeInterrupted, storage.OutcomeInterrupted, storage.OutcomeReturned, storage.OutcomeCrashed, storage.OutcomeRetry}
	real, model := storage.Exchange{LeaseDuration: hold}, storage.Exchange{LeaseDuration: hold}
	for _, g := range h.leases[min(before, len(h.leases)):] {
		f := storage.Finish{Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome")}
		f.Lease = g.real
		real.Finish = append(real.Finish, f)
		f.Lease = g.model
		model.Finish = append(model.Finish, f)
	}
	h.exchangeBoth(t, by, real, model)
	h.leaseAll(t, by)
}

// leaseAll leases the jobs of all lanes to p.
func (h *history) leaseAll(t *rapid.T, p *pair) {
	x := storage.Exchange{LeaseDuration: hold, Wants: []storage.Want{{Queues: []string{"*"}, Kinds: []string{"x", "y"}, N: 20}}}
	if _, ok := p.real.(storage.Promoter); ok {
		h.promoteOthers(t, p, &x)
	}
	h.exchangeBoth(t, p, x, x)
}
