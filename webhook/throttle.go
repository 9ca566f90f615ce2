package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

// mostPerSecond is the highest throttle that a queue can have.
const mostPerSecond = 10_000

// checkThrottle refuses a throttle that no queue can obey.
func (f *faults) checkThrottle(field string, t *policy.Throttle) {
	if t != nil && t.MaxReceivesPerSecond > mostPerSecond {
		f.field(field, t.MaxReceivesPerSecond, fmt.Sprintf("must be at most %d", mostPerSecond))
	}
}

// ownThrottle returns the throttle of the endpoint's own policy, zero if it has none.
func (e *Endpoint) ownThrottle() (t struct {
	set   bool
	value policy.Throttle
}) {
	if e.Policy != nil && e.Policy.Throttle != nil {
		t.set, t.value = true, *e.Policy.Throttle
	}
	return t
}

// throttle has the queue of an endpoint obey the throttle of its policy.
func (h *Webhooks) throttle(ctx context.Context, e *Endpoint) error {
	d := h.policyOf(e, &Outgoing{})
	return h.setThrottle(ctx, e.ID, d.Throttle)
}

// Throttle has the deliveries to an endpoint obey a throttle in place of that of its policy,
// until that changes: for those who call [Webhooks.Deliver] by a policy of their
// own. Nil stands for that of the endpoint's policy. It returns an [errand.FieldError] for a
// throttle above 10,000 a second, and [errand.ErrNotFound] if there is no such endpoint.
func (h *Webhooks) Throttle(ctx context.Context, id string, t *policy.Throttle) error {
	var f faults
	if f.checkThrottle("throttle.MaxReceivesPerSecond", t); len(f) > 0 {
		return f.err()
	}
	entry, err := h.topics.Entry(ctx, classEndpoint, id)
	if err != nil {
		return about("endpoint", id, err)
	}
	e, err := endpointOf(&entry)
	if err != nil {
		return err
	}
	if t == nil {
		return h.throttle(ctx, &e)
	}
	return h.setThrottle(ctx, id, t)
}

// throttleAgain is for an endpoint that another call has written meanwhile: its throttle holds.
func (h *Webhooks) throttleAgain(ctx context.Context, id string) error {
	err := h.Throttle(ctx, id, nil)
	if errors.Is(err, errand.ErrNotFound) {
		return nil
	}
	return err
}

func (h *Webhooks) setThrottle(ctx context.Context, id string, t *policy.Throttle) error {
	n := 0
	if t != nil {
		n = t.MaxReceivesPerSecond
	}
	return h.queue.Configure(ctx, errand.Lane{Queue: queueOf(id)}, errand.Settings{Starts: &n})
}
