package dashboard

import (
	"testing"
	"time"

	"github.com/errandq/errand"
)

// Outcomes are kept for ten minutes after the end, so many at most, and only for who has asked.
func TestLedger(t *testing.T) {
	var l ledger
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	form := [32]byte{1}
	take := func(key, by string, form [32]byte) *question {
		t.Helper()
		q, first, err := l.take(t.Context(), key, by, form, [32]byte{9}, now)
		if err != nil || (q != nil) != first {
			t.Fatal(q, first, err)
		}
		return q
	}
	key := l.ask("ann", form, now)
	if take(key, "bob", form) != nil || take(key, "ann", [32]byte{2}) != nil || take("x", "ann", form) != nil {
		t.Fatal("a question of others is taken")
	}
	now = now.Add(questionsFor - 1)
	q := take(key, "ann", form)
	if q == nil || l.outcome(key, "ann", now) != nil { // it is being done
		t.Fatal("not taken")
	}
	now = now.Add(time.Hour) // so long it takes
	for range 2 * mostQuestions {
		l.ask("ann", form, now)
	}
	if len(l.all) > mostQuestions {
		t.Errorf("%d are kept", len(l.all))
	}
	l.end(q, &outcome{Told: "done"}, now)
	if out := l.outcome(key, "ann", now); out == nil || out.Told != "done" || l.outcome(key, "bob", now) != nil {
		t.Errorf("%+v", out)
	}
	if q, first, err := l.take(t.Context(), key, "ann", form, [32]byte{9}, now); q == nil || first || err != nil || q.out == nil {
		t.Errorf("%+v, %v, %v", q, first, err)
	}
	if q, _, err := l.take(t.Context(), key, "ann", form, [32]byte{8}, now); q != nil || err != nil {
		t.Errorf("another answer has the outcome of the first: %+v, %v", q, err)
	}
	now = now.Add(questionsFor)
	if l.outcome(key, "ann", now) != nil || take(key, "ann", form) != nil {
		t.Error("kept for too long")
	}
	l.ask("ann", form, now)
	if len(l.all) != 1 {
		t.Errorf("%d are kept of old ones", len(l.all))
	}
	// The oldest of whoever has most go: nobody else loses any.
	first := l.ask("ann", form, now.Add(-time.Second))
	eves := l.ask("eve", form, now.Add(-time.Millisecond))
	for range mostQuestions {
		l.ask("eve", form, now)
	}
	if take(eves, "eve", form) != nil || len(l.all) != mostQuestions {
		t.Errorf("the oldest of %d is kept", len(l.all))
	}
	if take(first, "ann", form) == nil {
		t.Error("a question was dropped for those of somebody else")
	}
}

// The bulk job of an entry is the next one of the same person, if it came soon.
func TestBulkOf(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	bulk := func(by string, after time.Duration) errand.BulkInfo {
		return errand.BulkInfo{By: by, StartedAt: at.Add(after)}
	}
	all := []errand.BulkInfo{bulk("ann", 3*time.Second), bulk("ann", 2*time.Second), bulk("bob", time.Second), bulk("ann", -time.Second), bulk("eve", time.Hour)}
	for by, want := range map[string]*errand.BulkInfo{"ann": &all[1], "bob": &all[2], "eve": nil, "zoe": nil} {
		if got := bulkOf(&errand.AuditEntry{At: at, By: by}, all); got != want {
			t.Errorf("%s: %+v, want %+v", by, got, want)
		}
	}
}
