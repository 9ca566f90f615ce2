package main

import (
	"context"
	"strings"

	queue "github.com/errandq/errand"
)

// healthSeen is a [queue.Health] as far as it can be told by looking.
type healthSeen struct {
	Live bool `json:"live"`
	// Ready is left out if it is not known.
	Ready   *bool                `json:"ready,omitempty"`
	Unknown string               `json:"unknown,omitempty"` // why it is not known
	Reasons []queue.HealthReason `json:"reasons,omitempty"`
}

// notTried is why it is not known whether work can be taken in.
const notTried = "the file is only read here"

// healthOf returns the health of a queue that is open for reading alone, of which one
// reason is just that.
func healthOf(ctx context.Context, q *queue.Queue) healthSeen {
	h := q.Health(ctx, nil)
	out := healthSeen{Live: h.Live, Ready: &h.Ready}
	for _, r := range h.Reasons {
		if r.Code == queue.HealthReadOnly {
			out.Ready, out.Unknown = nil, notTried
			continue
		}
		out.Reasons = append(out.Reasons, r)
	}
	return out
}

// printHealth writes what is wrong, if something is.
func (t *tool) printHealth(p *printer, h *healthSeen) {
	ready := "not known: " + h.Unknown
	if h.Ready != nil {
		ready = yesNo(*h.Ready)
	}
	p.printf("\nlive: %s, ready: %s\n", yesNo(h.Live), ready)
	for _, r := range h.Reasons {
		p.printf("- %s: %s\n", safe(string(r.Code)), safe(strings.TrimPrefix(r.Text, "errand: ")))
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
