package storagetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/errandq/errand/storage"
)

// handing is an offer to both, and what was handed over by either since the
// last look.
type handing struct {
	storage.Offer                // of the model
	real           storage.Offer // of the store under test
	theirs, models []storage.Leased
}

// GoString is what rapid shows when it draws o.
func (o *handing) GoString() string { return "an offer" }

func (h *history) offer(t *rapid.T) { h.offerTo(t, h.pair(t)) }

// offerTo makes an offer to p, if it takes any.
func (h *history) offerTo(t *rapid.T, p *pair) {
	to, ok := p.real.(storage.Handoff)
	if !ok {
		return
	}
	want := anyWant(t)
	o := &handing{}
	o.real = to.Offer(want, hold, func(jobs []storage.Leased, _ time.Time) { o.theirs = append(o.theirs, jobs...) })
	o.Offer = p.model.(storage.Handoff).Offer(want, hold, func(jobs []storage.Leased, _ time.Time) { o.models = append(o.models, jobs...) })
	p.offers = append(p.offers, o)
}

func (o *handing) setCapacity(t *rapid.T) {
	n := rapid.IntRange(0, 4).Draw(t, "capacity")
	o.Capacity(n)
	o.real.Capacity(n)
}

// changeOffer gives an offer more or less capacity, or withdraws it.
func (h *history) changeOffer(t *rapid.T) {
	p := h.pair(t)
	if len(p.offers) == 0 {
		return
	}
	o := rapid.SampledFrom(p.offers).Draw(t, "offer")
	if rapid.IntRange(0, 4).Draw(t, "withdraw") > 0 {
		o.setCapacity(t)
		return
	}
	o.Close()
	o.real.Close()
	p.offers = slices.DeleteFunc(p.offers, func(x *handing) bool { return x == o })
}

// handedOver compares what a call on p has handed over.
func (h *history) handedOver(p *pair) {
	for _, o := range p.offers {
		h.both("number of jobs handed over", len(o.theirs), len(o.models))
		for i, l := range o.models {
			h.granted(p, o.theirs[i], l)
		}
		o.theirs, o.models = nil, nil
	}
}
