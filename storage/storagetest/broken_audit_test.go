package storagetest

import (
	"context"
	"time"

	"github.com/errandq/errand/storage"
)

// tells is an instance of which Audit has a fault.
type tells struct {
	*hooks
	change func(m *Memory, all []storage.AuditEntry) []storage.AuditEntry
}

func (a *tells) Audit(ctx context.Context) ([]storage.AuditEntry, error) {
	all, err := a.hooks.Audit(ctx)
	return a.change(a.m, all), err
}

// auditor has f change what Audit returns.
func auditor(f func(m *Memory, all []storage.AuditEntry) []storage.AuditEntry) func(in *instance) storage.Store {
	return func(in *instance) storage.Store { return &tells{sound(in), f} }
}

var auditFaults = []fault{
	{"the oldest entry first", "audit_limit", auditor(func(_ *Memory, all []storage.AuditEntry) []storage.AuditEntry {
		for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
			all[i], all[j] = all[j], all[i]
		}
		return all
	})},
	{"one entry too few", "audit_limit", auditor(func(_ *Memory, all []storage.AuditEntry) []storage.AuditEntry {
		return all[:min(len(all), storage.AuditLimit-1)]
	})},
	{"entries of a deed apart", "audit_deed", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			if e, _, ok := storage.Audited(ctx); ok {
				ctx = storage.WithAudit(ctx, e)
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
	{"publications are not told", "audit_publish", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			return in.PublishMessages(storage.WithoutAudit(ctx), now, all)
		}
	})},
	{"publications of duplicates are told", "audit_publish", topicFault(func(in *instance, b *topical) {
		b.publish = func(ctx context.Context, now time.Time, all []storage.Publication) ([]storage.PublishResult, error) {
			out, err := in.PublishMessages(ctx, now, all)
			in.m.locked(func() { in.m.did(ctx, 0, false) })
			return out, err
		}
	})},
	{"a release that has no effect is told", "audit_calls", func(in *instance) storage.Store {
		h := sound(in)
		h.release = func(ctx context.Context, now time.Time, lane storage.Lane, reason string) (bool, error) {
			was, err := in.Release(ctx, now, lane, reason)
			if !was {
				in.m.locked(func() { in.m.did(ctx, 0, false) })
			}
			return was, err
		}
		return h
	}},
	{"what the application did is told", "audit_calls", func(in *instance) storage.Store {
		h := sound(in)
		h.enqueue = func(ctx context.Context, now time.Time, jobs []storage.NewJob) ([]storage.Enqueued, error) {
			if _, _, ok := storage.Audited(ctx); !ok {
				ctx = storage.WithAudit(ctx, storage.AuditEntry{Do: "enqueue"})
			}
			return in.Enqueue(ctx, now, jobs)
		}
		return h
	}},
}
