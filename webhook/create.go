package webhook

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/internal/door"
	"github.com/errandq/errand/storage"
)

// Create adds an endpoint, and returns it with the secret that signs its messages. If
// secret is zero, that is a new one of [NewSecret]; with [Options].Secrets there is none,
// and secret must be zero. Create returns an [errand.FieldError] for each fault of the
// endpoint, also if [errand.Options].Strict refuses its queue, and an error that is
// [errand.ErrStale] if an endpoint has its ID.
//
// If an endpoint with the same ID was deleted, its live deliveries are cancelled first.
// Its dead ones go to the new endpoint if they are redriven.
func (h *Webhooks) Create(ctx context.Context, e Endpoint, secret Secret) (Endpoint, Secret, error) {
	if e.ID == "" {
		e.ID = "ep_" + strings.ToLower(rand.Text())
	}
	if err := h.checkNew(&e, secret); err != nil {
		return Endpoint{}, Secret{}, err
	}
	e.Revision = 0
	entry, err := e.entry()
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	if err := h.prepare(ctx, &e); err != nil {
		return Endpoint{}, Secret{}, about("endpoint", e.ID, err)
	}
	entries := []storage.Entry{entry}
	if h.opts.Secrets == nil {
		if secret.IsZero() {
			secret = NewSecret()
		}
		kept, err := keep(e.ID, 0, []keptSecret{{Text: secret.Reveal()}})
		if err != nil {
			return Endpoint{}, Secret{}, err
		}
		entries = append(entries, kept)
	}
	left, err := h.topics.Entry(ctx, classFailing, e.ID) // an endpoint of this ID was deleted while a request was under way, and has left its failures
	if err == nil {
		left.Delete = true
		entries = append(entries, left)
	} else if !errors.Is(err, errand.ErrNotFound) {
		return Endpoint{}, Secret{}, about("endpoint", e.ID, err)
	}
	if _, err := h.topics.PutEntries(ctx, entries); err != nil {
		if errors.Is(err, errand.ErrStale) {
			err = errors.Join(errThere, h.obey(ctx, e.ID))
		}
		return Endpoint{}, Secret{}, about("endpoint", e.ID, err)
	}
	h.failing.forget(e.ID)
	e, err = h.Endpoint(ctx, e.ID)
	return e, secret, err
}

// CreateTx is [Webhooks.Create] inside a transaction of the application on the queue's file, see
// [errand.Queue.EnqueueTx]: the endpoint is there, with its secret and its throttle, if tx
// commits. From the call on until tx has ended nobody else writes to the file.
//
// It ends nothing that a deleted endpoint has left: it returns an [errand.FieldError] for the
// ID if deliveries wait in its queue, or a hold says that it is disabled. Create ends these.
// What CreateTx returns counts only once tx has committed. After an error roll tx back.
func (h *Webhooks) CreateTx(ctx context.Context, tx *sql.Tx, e Endpoint, secret Secret) (Endpoint, Secret, error) {
	in, err := h.inside(tx)
	if err != nil {
		return Endpoint{}, Secret{}, err
	}
	e, secret, err = in.Create(ctx, e, secret)
	if err == nil {
		h.failing.forget(e.ID)
	}
	return e, secret, err
}

// inside returns h as it is inside tx. It remembers nothing of what h does, and h nothing of what it
// does: tx may not commit.
func (h *Webhooks) inside(tx *sql.Tx) (*Webhooks, error) {
	topics, err := door.TopicsTx[errand.NewJob](h.queue, tx)
	if err != nil {
		return nil, err
	}
	in := &Webhooks{queue: h.queue, topics: topics, opts: h.opts, client: h.client, clock: h.clock, within: true}
	in.failing.init(in)
	return in, nil
}

// checkNew checks an endpoint that is to be there, also that its deliveries are let into their queue.
func (h *Webhooks) checkNew(e *Endpoint, secret Secret) error {
	var f faults
	h.check(&f, e)
	h.checkSecret(&f, secret)
	if err := f.err(); err != nil {
		return err
	}
	err := h.topics.CheckQueue("queue", queueOf(e.ID))
	if fault, ok := errors.AsType[*errand.FieldError](err); ok {
		fault.Limit += fmt.Sprintf("; webhook.Queues, %q, lists those of all endpoints", Queues)
	}
	return err
}

var errThere = fmt.Errorf("it is there already: %w", errand.ErrStale)

// prepare does what a new endpoint needs beside its entries, and before them: if the process
// dies after it there is no endpoint yet, and who creates it does so anew. What one of the same
// ID has left that was deleted ends here.
func (h *Webhooks) prepare(ctx context.Context, e *Endpoint) error {
	now := h.queue.Clock().Now
	_, err := h.topics.Entry(ctx, classEndpoint, e.ID)
	if err == nil {
		return errThere
	}
	if !errors.Is(err, errand.ErrNotFound) {
		return err
	}
	if h.within {
		if err := h.nothingLeft(ctx, e.ID); err != nil {
			return err
		}
		return h.throttle(ctx, e)
	}
	if err := h.cancelLeft(ctx, e.ID, now); err != nil {
		return err
	}
	if _, err := h.queue.Release(ctx, errand.Lane{Queue: queueOf(e.ID)}, HoldDisabled); err != nil {
		return err
	}
	return h.throttle(ctx, e)
}

// nothingLeft returns a fault if a deleted endpoint has left what only a call outside of a
// transaction can end.
func (h *Webhooks) nothingLeft(ctx context.Context, id string) error {
	queue := queueOf(id)
	counts, err := h.queue.Counts(ctx)
	if err != nil {
		return err
	}
	holds, err := h.queue.Holds(ctx)
	if err != nil {
		return err
	}
	waits := slices.ContainsFunc(counts, func(c errand.Count) bool {
		return c.Queue == queue && (c.State == errand.Scheduled || c.State == errand.Ready || c.State == errand.Running || c.State == errand.Blocked)
	})
	held := slices.ContainsFunc(holds, func(s errand.HoldState) bool { return s.Queue == queue && s.Reason == HoldDisabled })
	if waits || held {
		return &errand.FieldError{Field: "id", Value: id, Limit: "must be another one in a transaction: a deleted endpoint has left deliveries or a hold, which Create ends"}
	}
	return nil
}

// cancelLeft cancels the deliveries that a deleted endpoint has left by now. Another call may
// have created it since: its deliveries are not among them.
func (h *Webhooks) cancelLeft(ctx context.Context, id string, now time.Time) error {
	queue := queueOf(id)
	counts, err := h.queue.Counts(ctx) // CancelAll looks at all jobs of the file
	if err != nil || !slices.ContainsFunc(counts, func(c errand.Count) bool { return c.Queue == queue }) {
		return err
	}
	left, err := h.queue.CancelAll(ctx, errand.JobFilter{Queue: queue, CreatedBefore: now.Add(time.Microsecond)})
	if err != nil {
		return err
	}
	if n := left.Changed + len(left.Running); n > 0 {
		h.opts.Logger.Warn("errand: deliveries to a deleted endpoint are cancelled, another has its ID", "endpoint", id, "jobs", n)
	}
	return nil
}

// Delete deletes an endpoint with its secrets. Waiting deliveries to it are cancelled
// when they would start; dead ones stay until they are purged. Subscriptions of package
// topic to it stay too, and what they get is cancelled: see docs/topics.md#subscriptions.
// Delete returns [errand.ErrNotFound] if there is no such endpoint; it then still deletes
// what a Delete that was cut short has left.
func (h *Webhooks) Delete(ctx context.Context, id string) error {
	var f faults
	if f.endpointID("id", id); len(f) > 0 {
		return about("endpoint", id, errand.ErrNotFound)
	}
	var gone []storage.Entry
	var missing error
	for _, class := range []string{classEndpoint, classSecrets, classFailing} {
		e, err := h.topics.Entry(ctx, class, id)
		switch {
		case err == nil:
			e.Delete = true
			gone = append(gone, e)
		case !errors.Is(err, errand.ErrNotFound):
			return about("endpoint", id, err)
		case class == classEndpoint:
			missing = about("endpoint", id, err)
		}
	}
	if _, err := h.topics.PutEntries(ctx, gone); err != nil {
		return about("endpoint", id, err)
	}
	h.failing.forget(id)
	h.slow.forget(id)
	if _, err := h.queue.Release(ctx, errand.Lane{Queue: queueOf(id)}, HoldDisabled); err != nil {
		return err
	}
	return missing
}
