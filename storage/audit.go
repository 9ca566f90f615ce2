package storage

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// AuditLimit is how many entries an [Auditor] keeps.
const AuditLimit = 100

// AuditEntry says what somebody has done by hand.
type AuditEntry struct {
	At   time.Time `json:"at"` // when it was begun
	By   string    `json:"by,omitempty"`
	Do   string    `json:"do"` // the verb
	What string    `json:"what,omitempty"`
	Note string    `json:"note,omitempty"`
	Jobs int64     `json:"jobs,omitempty"` // how many were changed, enqueued or deleted
}

// Auditor is implemented by a Store that keeps what was done by hand.
type Auditor interface {
	// Audit returns the last AuditLimit entries, the newest first.
	//
	// A call with a context of [WithAudit] that changes something writes its entry, in the same
	// transaction. Further calls with that context add their Jobs to it. Such calls are Enqueue,
	// PublishMessages and Fire that enqueue or replace a job; Cancel of a live job; Redrive, RunNow,
	// Change and Delete of any job; SkipHead, ReleaseUnique, Hold, Release, Configure, PutSchedule,
	// DropSchedule and PutEntries that have an effect; and those of these with Tx in their names.
	// All others write none.
	Audit(ctx context.Context) ([]AuditEntry, error)
}

type auditKey struct{}

// audited is an entry about to be written, with a name of its own.
type audited struct {
	AuditEntry
	id uuid.UUID
}

// WithAudit returns a context with which calls write an entry, see [Auditor].
func WithAudit(ctx context.Context, e AuditEntry) context.Context {
	return context.WithValue(ctx, auditKey{}, &audited{e, uuid.New()})
}

// WithoutAudit returns a context with which calls write no entry.
func WithoutAudit(ctx context.Context) context.Context {
	return context.WithValue(ctx, auditKey{}, (*audited)(nil))
}

// Audited returns the entry that calls with a context write, and its name, which no other entry
// has. ok is false if they write none.
func Audited(ctx context.Context) (e AuditEntry, id uuid.UUID, ok bool) {
	a, _ := ctx.Value(auditKey{}).(*audited)
	if a == nil {
		return e, id, false
	}
	return a.AuditEntry, a.id, true
}
