package postgres_test

import (
	"sync"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

func changes(t *testing.T, s *postgres.Store, sel storage.Selection, e storage.Edit, want storage.Step) {
	t.Helper()
	step, err := s.Change(t.Context(), now, sel, e)
	if err != nil || step.N != want.N || len(step.Live) != len(want.Live) || len(step.NotFound) != len(want.NotFound) {
		t.Errorf("%+v of %+v returned %+v, %v; want %+v", e, sel, step, err, want)
	}
}

func named(ids ...storage.ID) storage.Selection { return storage.Selection{IDs: ids} }

// A dead member goes to another queue with all that it is, blocks others there, and where it was no
// more.
func TestChange_Dead(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := adds(t, s, member("g", "", "a", nil), member("g", "", "b", nil))
	id := dies(t, s, "no")
	areIn(t, s, jobs, storage.Dead, isBlocked)
	for range 2 {
		changes(t, s, named(id, id), storage.Edit{Queue: "r", Args: []byte("c"), Priority: new(3), Policy: []byte("{}")}, storage.Step{N: 2})
	}
	areIn(t, s, jobs, storage.Dead, isReady)
	d.Invariants(t)
	r, err := s.Job(t.Context(), id)
	if err != nil || r.Queue != "r" || r.Group != "g" || string(r.Args) != "c" || r.Priority != 3 || r.Error != "no" ||
		len(r.History) != 1 || r.History[0].Phase != storage.PhaseEdited || string(r.History[0].Args) != "a" {
		t.Errorf("it is %+v, %v", r, err)
	}
	other := member("g", "", "d", nil)
	other.Queue = "r"
	behind := adds(t, s, other)
	areIn(t, s, behind, isBlocked)
	for _, e := range []storage.Edit{{Delay: time.Minute}, {Cancel: &storage.Retention{}}} {
		changes(t, s, named(id), e, storage.Step{NotFound: []storage.ID{id}})
	}
	if step, err := s.Redrive(t.Context(), now, storage.Selection{IDs: []storage.ID{id}, Edit: &storage.Edit{Args: []byte("e"), Policy: []byte{}}}, "q"); err != nil || step.N != 1 {
		t.Fatal(step, err)
	}
	areIn(t, s, append(jobs, behind...), isReady, isBlocked, isReady) // it comes before that which has passed it
	r, err = s.Job(t.Context(), id)
	if err != nil || r.Queue != "q" || string(r.Args) != "e" || r.Priority != 3 || r.Policy != nil || len(r.History) != 2 || string(r.History[1].Args) != "c" {
		t.Errorf("once it is redriven it is %+v, %v", r, err)
	}
	d.Invariants(t)
}

// Cancel ends those that a filter has chosen, frees their keys and their places, and asks those that
// run to stop.
func TestChange_Cancel(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := adds(t, s, member("g", "", "a", nil), member("g", "u", "b", nil), member("", "", "c", nil))
	l := leases(t, s, 2)[0]
	changes(t, s, storage.Selection{Filter: storage.Filter{Queue: "q", States: []storage.State{storage.Blocked, storage.Running}}},
		storage.Edit{Cancel: &storage.Retention{Default: time.Hour}}, storage.Step{N: 1, Live: make([]storage.ID, 2)})
	areIn(t, s, jobs, storage.Running, storage.Cancelled, storage.Running)
	if again := adds(t, s, member("", "u", "d", nil))[0]; again.Duplicate {
		t.Errorf("its key is held: %+v", again)
	}
	if r, err := s.Job(t.Context(), l.ID); err != nil || !r.Cancelling {
		t.Errorf("it is %+v, %v", r, err)
	}
	d.Invariants(t)
}

// An edit is not the last error, and no failure.
func TestChange_NoFailure(t *testing.T) {
	d := newDB(t)
	s := d.open()
	adds(t, s, newJobs(1, "q", "k")...)
	l := leases(t, s, 1)[0]
	x := storage.Exchange{LeaseDuration: time.Minute, Finish: []storage.Finish{
		{Lease: l.Lease, Outcome: storage.OutcomeRetry, DueAt: now.Add(time.Hour), Failure: &storage.NewFailure{Error: "no"}},
	}}
	if _, err := s.Exchange(t.Context(), now, x); err != nil {
		t.Fatal(err)
	}
	changes(t, s, named(l.ID), storage.Edit{Args: []byte("b")}, storage.Step{N: 1})
	if r, err := s.Job(t.Context(), l.ID); err != nil || r.Error != "no" || len(r.History) != 2 {
		t.Errorf("it is %+v, %v", r, err)
	}
	if p, err := s.Jobs(t.Context(), storage.Filter{Error: "NO"}, "", 9); err != nil || len(p.Jobs) != 1 || p.Jobs[0].Error != "no" {
		t.Errorf("listed %+v, %v", p.Jobs, err)
	}
	if step, err := s.RunNow(t.Context(), now, storage.Selection{}, storage.Waiting{Failed: true}); err != nil || step.N != 1 {
		t.Errorf("run now: %+v, %v", step, err)
	}
	d.Invariants(t)
}

// A job that has come to another group, while the call waited for that which it had, takes that with
// it.
func TestChange_GroupMeanwhile(t *testing.T) {
	d := newDB(t)
	s := d.open()
	jobs := adds(t, s, member("g", "", "a", nil))
	d.exec("BEGIN")
	d.exec(`SELECT FROM errand_group WHERE group_key = 'q g' FOR UPDATE`)
	var wg sync.WaitGroup
	wg.Go(func() { changes(t, s, named(jobs[0].ID), storage.Edit{Queue: "r"}, storage.Step{N: 1}) })
	d.waits()
	d.exec(`UPDATE errand_job SET group_key = 'q h'`)
	d.exec(`UPDATE errand_group SET group_key = 'q h'`)
	d.exec("COMMIT")
	wg.Wait()
	if r, err := s.Job(t.Context(), jobs[0].ID); err != nil || r.Queue != "r" || r.Group != "h" || r.State != storage.Ready {
		t.Errorf("it is %+v, %v", r, err)
	}
	d.Invariants(t)
}

// A dead letter that comes to a queue whose groups pass such members has no role there.
func TestChange_PassesDead(t *testing.T) {
	d := newDB(t)
	s := d.open()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "r"}, storage.Settings{storage.SettingDeadHead: int64(storage.PassDead)}); err != nil {
		t.Fatal(err)
	}
	adds(t, s, member("g", "", "a", nil))
	changes(t, s, named(dies(t, s, "no")), storage.Edit{Queue: "r"}, storage.Step{N: 1})
	var role int
	if err := d.conn.QueryRow(t.Context(), `SELECT role FROM errand_dead`).Scan(&role); err != nil || role != 0 {
		t.Errorf("role %d, %v; want none", role, err)
	}
	d.Invariants(t)
}
