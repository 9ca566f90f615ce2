package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand"
	"github.com/errandq/errand/storage"
)

// ErrNoSecret: an endpoint has no secret that signs. Nothing is sent to it, and its
// deliveries wait, unless [Options].Unsigned is true.
var ErrNoSecret = errors.New("webhook: no secret signs")

// mostSecrets is how many secrets sign at a time.
const mostSecrets = 2

// keptSecret is a secret as it is kept. It signs for a time from the UpdatedAt of the entry on,
// which moves if the clock is set back.
type keptSecret struct {
	Text  string        `json:"secret"`
	For   time.Duration `json:"for,omitzero"`   // zero: it has no end
	Until time.Time     `json:"until,omitzero"` // of older versions, without For
}

// keep returns the entry of the secrets of an endpoint.
func keep(id string, revision int64, secrets []keptSecret) (storage.Entry, error) {
	doc, err := json.Marshal(secrets)
	return storage.Entry{Class: classSecrets, Name: id, Revision: revision, Doc: doc}, err
}

func (h *Webhooks) checkSecret(f *faults, s Secret) {
	switch {
	case s.IsZero():
	case h.opts.Secrets != nil:
		f.field("secret", s.String(), "must be zero: Options.Secrets returns them")
	case !s.signs():
		f.field("secret", s.String(), cannotSign)
	}
}

// RotateSecret makes next the secret of an endpoint, and returns it; if next is zero,
// that is a new one of [NewSecret]. The secret before it signs too until overlap is over,
// so that the receiver can change in that time. A still older one signs no more. An
// endpoint without a secret, since it was made with [Options].Secrets, gets its first.
// RotateSecret returns [errand.ErrNotFound] if there is no such endpoint, and an
// [errand.FieldError] with [Options].Secrets.
func (h *Webhooks) RotateSecret(ctx context.Context, id string, next Secret, overlap time.Duration) (Secret, error) {
	if h.opts.Secrets != nil {
		return Secret{}, &errand.FieldError{Field: "secret", Value: next.String(), Limit: "cannot be set: Options.Secrets returns them"}
	}
	var f faults
	if overlap < 0 {
		f.field("overlap", overlap, "must not be negative")
	}
	if h.checkSecret(&f, next); len(f) > 0 {
		return Secret{}, f.err()
	}
	if next.IsZero() {
		next = NewSecret()
	}
	var entries []storage.Entry
	entry, kept, err := h.kept(ctx, id)
	if errors.Is(err, errand.ErrNotFound) {
		// It is written again as it is, so that no secret is left of one that is deleted now.
		var e storage.Entry
		if e, err = h.topics.Entry(ctx, classEndpoint, id); err == nil {
			entries = append(entries, e)
		}
	}
	if err != nil {
		return Secret{}, about("endpoint", id, err)
	}
	secrets := []keptSecret{{Text: next.Reveal()}}
	if len(kept) > 0 && overlap > 0 {
		secrets = append(secrets, keptSecret{Text: kept[0].Text, For: overlap})
	}
	e, err := keep(id, entry.Revision, secrets[:min(len(secrets), mostSecrets)])
	if err != nil {
		return Secret{}, err
	}
	if _, err := h.topics.PutEntries(ctx, append(entries, e)); err != nil {
		return Secret{}, about("endpoint", id, err)
	}
	return next, nil
}

func (h *Webhooks) kept(ctx context.Context, id string) (storage.Entry, []keptSecret, error) {
	entry, err := h.topics.Entry(ctx, classSecrets, id)
	if err != nil {
		return entry, nil, err
	}
	var kept []keptSecret
	if err := json.Unmarshal(entry.Doc, &kept); err != nil { // the error would show what is there
		return entry, nil, fmt.Errorf("%w: the secrets of endpoint %q cannot be read", errand.ErrCorrupt, id)
	}
	return entry, kept, nil
}

// Secrets returns the secrets that sign the messages for an endpoint now, the newest
// first.
func (h *Webhooks) Secrets(ctx context.Context, id string) ([]Secret, error) {
	return h.secretsAt(ctx, id, &Outgoing{})
}

// lasting is a secret that signs until a time, or zero. That was reckoned from another.
type lasting struct {
	Secret
	from, until time.Time
}

// secretsAt is Secrets for an attempt.
func (h *Webhooks) secretsAt(ctx context.Context, id string, o *Outgoing) (secrets []Secret, err error) {
	if h.opts.Secrets != nil {
		return h.opts.Secrets(ctx, id)
	}
	var all []lasting
	revision, ok := o.revision(1)
	if ok {
		all, ok = h.secretsRead.At(id, revision)
	}
	now := h.now()
	if ok && slices.ContainsFunc(all, func(s lasting) bool { return s.from.After(now) }) {
		ok = false // the clock was set back since
	}
	if !ok {
		if all, err = h.readSecrets(ctx, id); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if s.until.IsZero() || s.until.After(now) {
			secrets = append(secrets, s.Secret)
		}
	}
	return secrets, nil
}

// readSecrets reads the secrets of an endpoint, and remembers them.
func (h *Webhooks) readSecrets(ctx context.Context, id string) ([]lasting, error) {
	entry, kept, err := h.kept(ctx, id)
	if err != nil {
		return nil, err
	}
	var all []lasting
	for _, k := range kept {
		s, err := ParseSecret(k.Text)
		if err != nil {
			return nil, err
		}
		l := lasting{s, time.Time{}, k.Until}
		if k.For > 0 {
			l.from, l.until = entry.UpdatedAt, entry.UpdatedAt.Add(k.For)
		}
		all = append(all, l)
	}
	h.secretsRead.Put(id, entry.Revision, len(entry.Doc), all)
	return all, nil
}

// signing returns the secrets that sign a request. If there are none, for whatever reason,
// its error is a verdict by which the delivery waits: the receiver cannot help it, and a
// request without a signature would be refused, or worse, taken.
func (h *Webhooks) signing(ctx context.Context, id string, o *Outgoing) ([]Secret, error) {
	secrets, err := h.secretsAt(ctx, id, o)
	if err == nil && len(secrets) == 0 && h.opts.Unsigned {
		return nil, nil
	}
	if err == nil {
		var f faults
		f.secrets("", secrets)
		err = f.err()
	}
	if err == nil && len(secrets) == 0 {
		err = ErrNoSecret
	}
	switch {
	case err == nil:
		return secrets, nil
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil, err // of a stop, or a lost lease
	case !errors.Is(err, ErrNoSecret):
		err = fmt.Errorf("%w: %w", ErrNoSecret, err)
	}
	return nil, errand.Unavailable(about("endpoint", id, err))
}
