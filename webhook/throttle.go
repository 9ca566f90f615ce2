package webhook

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/storage"
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

// Throttle sets a throttle for the deliveries to an endpoint, in place of its policy's,
// until that changes: for callers of [Webhooks.Deliver] with a policy of their own. Nil
// stands for that of the endpoint's policy. It returns an [errand.FieldError] for a
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
	if err := h.setThrottle(ctx, id, t); err != nil || !isUnthrottled(&entry) {
		return err
	}
	// A change of the endpoint's own throttle was cut short before: this one comes after it. If
	// the endpoint is changed meanwhile, that is later still.
	done, err := e.entry()
	if err != nil {
		return err
	}
	if _, err = h.topics.PutEntries(ctx, []storage.Entry{done}); errors.Is(err, errand.ErrStale) {
		return nil
	}
	return err
}

// ThrottleTx is [Webhooks.Throttle] inside a transaction of the application on the queue's
// file, see [errand.Queue.EnqueueTx]: the throttle is set if tx commits. tx may have created the endpoint.
func (h *Webhooks) ThrottleTx(ctx context.Context, tx *sql.Tx, id string, t *policy.Throttle) error {
	in, err := h.inside(tx)
	if err != nil {
		return err
	}
	return in.Throttle(ctx, id, t)
}

// isUnthrottled reports whether the queue of an endpoint may not obey its throttle, as a change of it
// is under way or was cut short.
func isUnthrottled(entry *storage.Entry) bool {
	var d document
	return json.Unmarshal(entry.Doc, &d) == nil && d.Unthrottled
}

// obey has the queue of an endpoint obey the throttle of its policy, and notes that it does. Where
// another call changes the endpoint meanwhile it begins anew.
func (h *Webhooks) obey(ctx context.Context, id string) error {
	for was := int64(0); ; {
		entry, err := h.topics.Entry(ctx, classEndpoint, id)
		if errors.Is(err, errand.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := endpointOf(&entry)
		if err != nil {
			return err
		}
		if entry.Revision != was {
			if err := h.throttle(ctx, &e); err != nil {
				return err
			}
			was = entry.Revision
			continue
		}
		if !isUnthrottled(&entry) {
			return nil // another call was here
		}
		done, err := e.entry()
		if err != nil {
			return err
		}
		if _, err = h.topics.PutEntries(ctx, []storage.Entry{done}); !errors.Is(err, errand.ErrStale) {
			return err
		}
	}
}

func (h *Webhooks) setThrottle(ctx context.Context, id string, t *policy.Throttle) error {
	n := 0
	if t != nil {
		n = t.MaxReceivesPerSecond
	}
	return h.topics.Configure(ctx, queueOf(id), storage.Settings{storage.SettingStarts: int64(n)})
}
