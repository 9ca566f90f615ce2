package storagetest

import (
	"strings"
	"testing"

	"github.com/errandq/errand/storage"
)

// Invariants checks what must hold after any history: each job is in one state
// and has what belongs to it, no two live leases have one token, unique keys
// are held by whom they should.
func (m *Memory) Invariants(t testing.TB) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	tokens := map[int64]int64{}
	m.forgetMessages()
	for key, j := range m.jobs {
		for _, tag := range j.Tags {
			if id, ok := strings.CutPrefix(tag, storage.MessageTag("")); ok && m.message(id) == nil {
				t.Errorf("job %d delivers the message %q, which is not there", key, id)
			}
		}
		if j.Key != key || j.ID.Key() != key || key > m.lastKey {
			t.Errorf("job %d has the key %d and the ID %v; the last key is %d", key, j.Key, j.ID, m.lastKey)
		}
		if j.live() && !m.unended[key] {
			t.Errorf("job %d is %s and not among the live ones", key, j.State)
		}
		running := j.State == storage.Running
		if running != (j.lease.holder != nil) || running != (j.lease.token != 0) || j.lease.token > m.lastToken {
			t.Errorf("job %d is %s with token %d of %d", key, j.State, j.lease.token, m.lastToken)
		}
		if other, ok := tokens[j.lease.token]; ok && running {
			t.Errorf("jobs %d and %d have the token %d", other, key, j.lease.token)
		}
		if running {
			tokens[j.lease.token] = key
		}
		if len(j.History) > storage.HistoryLimit {
			t.Errorf("job %d has a history of %d", key, len(j.History))
		}
		ended := j.finished() || j.State == storage.Dead
		if ended == j.EndedAt.IsZero() || (j.State == storage.Dead) != (j.Reason != "") || j.Cancelling && !running {
			t.Errorf("job %d is %s, ended at %v for reason %q, cancelling %v", key, j.State, j.EndedAt, j.Reason, j.Cancelling)
		}
		holds := j.Unique != "" && (m.unique[j.Unique] == j.ID || m.behind[j.Unique] == j.ID && j.State == storage.Blocked)
		_, windowed := m.windows[j.Unique]
		if j.Unique != "" && holds != (!ended || j.scope == storage.UniqueForever) && (!holds || !windowed) {
			t.Errorf("job %d is %s and its unique key is held: %v", key, j.State, holds)
		}
	}
	for key, id := range m.unique {
		if j := m.find(id); j != nil && j.Unique != key {
			t.Errorf("job %v holds the unique key %q, its own is %q", id, key, j.Unique)
		}
	}
	for name, s := range m.schedules {
		if s.Name != name || s.Revision < 1 || s.Revision > m.lastToken {
			t.Errorf("schedule %q is called %q, at revision %d; the last token is %d", name, s.Name, s.Revision, m.lastToken)
		}
		if s.LastTick.IsZero() != s.LastJob.IsZero() || s.LastJob.Key() > m.lastKey || len(s.ticks) > storage.TickLimit {
			t.Errorf("schedule %q has the last tick %v with job %v, and %d entries", name, s.LastTick, s.LastJob, len(s.ticks))
		}
	}
}
