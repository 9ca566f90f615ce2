package storagetest

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/errandq/errand/storage"
)

// deed is an entry that was written, the newest first.
type deed struct {
	storage.AuditEntry
	id uuid.UUID
}

// did notes that a call has had an effect, and how many jobs it has changed. ifAny: it has had one
// only if these are some.
func (m *Memory) did(ctx context.Context, jobs int, ifAny bool) {
	e, id, ok := storage.Audited(ctx)
	if !ok || ifAny && jobs == 0 {
		return
	}
	all := slices.Clone(m.deeds)
	at := slices.IndexFunc(all, func(d deed) bool { return d.id == id })
	if at < 0 {
		e.At, e.Jobs, at = floor(e.At), 0, 0
		all = slices.Insert(all, 0, deed{e, id})
	}
	all[at].Jobs += int64(jobs)
	m.deeds = all[:min(len(all), storage.AuditLimit)]
}

// didAdd is did for a call that enqueues jobs.
func (m *Memory) didAdd(ctx context.Context, all []storage.Enqueued) {
	n := 0
	for _, e := range all {
		if !e.Duplicate || e.Replaced {
			n++
		}
	}
	m.did(ctx, n, true)
}

// Audit implements [storage.Auditor].
func (in *instance) Audit(ctx context.Context) (out []storage.AuditEntry, err error) {
	if err := in.m.begin(ctx, in); err != nil {
		return nil, err
	}
	defer in.m.mu.Unlock()
	for _, d := range in.m.deeds {
		out = append(out, d.AuditEntry)
	}
	return out, nil
}
