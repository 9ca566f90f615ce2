package webhook

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/remember"
)

// mostTries is how often Declare begins again as another call has changed its endpoint.
const mostTries = 20

// Declare ensures that an endpoint is as e says, for a program that calls it each time it
// starts. It adds an endpoint that is not there, as [Webhooks.Create] does. It writes
// nothing if the one with its ID is the same, and else updates that, as [Webhooks.Update]
// does. At level Info the log has a line for an endpoint that is added, and one with the
// names of the fields that change. In e the fields that the queue sets are ignored, also
// Revision: of two programs that declare an endpoint differently the last one counts.
//
// An endpoint that is there keeps its state and its secrets: a disabled one stays
// disabled, and secret counts only for an endpoint without one. If secret is not zero and
// none of those that sign, the log has a line at level Info: [Webhooks.RotateSecret]
// replaces a secret.
//
// Declare returns the endpoint and its newest secret, which is zero with [Options].Secrets.
// It returns an [errand.FieldError] for each fault, also for an empty ID.
func (h *Webhooks) Declare(ctx context.Context, e Endpoint, secret Secret) (Endpoint, Secret, error) {
	if err := h.checkNew(&e, secret); err != nil {
		return Endpoint{}, Secret{}, err
	}
	var err error
	for range mostTries {
		var is Endpoint
		var signs Secret
		is, signs, err = h.declare(ctx, e, secret)
		if !errors.Is(err, errand.ErrStale) && !errors.Is(err, errand.ErrNotFound) {
			return is, signs, err
		} // another has added, changed or deleted it meanwhile
	}
	return Endpoint{}, Secret{}, err
}

// DeclareTx is [Webhooks.Declare] inside a transaction of the application on the queue's file,
// see [errand.Queue.EnqueueTx] and [Webhooks.CreateTx]: the endpoint is as e says if tx commits,
// and so is the throttle of its queue. The log has its line at once.
func (h *Webhooks) DeclareTx(ctx context.Context, tx *sql.Tx, e Endpoint, secret Secret) (Endpoint, Secret, error) {
	in, err := h.inside(tx)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	return in.Declare(ctx, e, secret)
}

func (h *Webhooks) declare(ctx context.Context, e Endpoint, secret Secret) (Endpoint, Secret, error) {
	was, err := h.Endpoint(ctx, e.ID)
	if errors.Is(err, errand.ErrNotFound) {
		is, signs, err := h.Create(ctx, e, secret)
		if err == nil {
			h.opts.Logger.Info("errand: an endpoint is added because the program declares it", "endpoint", e.ID)
		}
		return is, signs, err
	}
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	fields, err := e.changes(&was)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	var is Endpoint
	if len(fields) > 0 {
		e.Revision = was.Revision
		if is, err = h.Update(ctx, e); err != nil {
			return Endpoint{}, Secret{}, err
		}
		h.opts.Logger.Info("errand: an endpoint is changed to what the program declares", "endpoint", e.ID, "fields", fields)
	} else if is, err = h.throttled(ctx, &was); err != nil {
		return Endpoint{}, Secret{}, err
	}
	signs, err := h.declareSecret(ctx, e.ID, secret)
	return is, signs, err
}

// throttled returns an endpoint that is as it is declared, once its queue obeys it: a change may have
// been cut short.
func (h *Webhooks) throttled(ctx context.Context, e *Endpoint) (Endpoint, error) {
	entry, err := h.topics.Entry(ctx, classEndpoint, e.ID)
	if err != nil || !isUnthrottled(&entry) {
		return *e, err
	}
	if err := h.obey(ctx, e.ID); err != nil {
		return Endpoint{}, about("endpoint", e.ID, err)
	}
	return h.Endpoint(ctx, e.ID)
}

// declareSecret returns the newest secret of an endpoint that is there, and makes one if it has
// none.
func (h *Webhooks) declareSecret(ctx context.Context, id string, secret Secret) (Secret, error) {
	if h.opts.Secrets != nil {
		return Secret{}, nil
	}
	all, err := h.Secrets(ctx, id)
	if errors.Is(err, errand.ErrNotFound) || err == nil && len(all) == 0 {
		return h.RotateSecret(ctx, id, secret, 0)
	}
	if err != nil {
		return Secret{}, err
	}
	signs := func(s Secret) bool { return s.Reveal() == secret.Reveal() }
	if !secret.IsZero() && !slices.ContainsFunc(all, signs) {
		h.opts.Logger.Info("errand: an endpoint keeps its secrets, though another is declared", "endpoint", id)
	}
	return all[0], nil
}

// changes returns the names of the fields in which e is not as an endpoint that is there.
func (e *Endpoint) changes(was *Endpoint) ([]string, error) {
	given, err := e.entry()
	if err != nil {
		return nil, err
	}
	read, err := endpointOf(&given) // a policy has several forms
	if err != nil {
		return nil, err
	}
	now, err := read.entry()
	if err != nil {
		return nil, err
	}
	before, err := was.entry()
	if err != nil {
		return nil, err
	}
	return remember.Differing(now.Doc, before.Doc)
}
