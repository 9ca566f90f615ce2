package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/postgres"
)

// member returns a job of a group with a unique key, both of which may be empty.
func member(group, unique, args string, c *storage.Conflict) storage.NewJob {
	j := newJobs(1, "q", "k")[0]
	j.Group, j.Unique, j.Args, j.Conflict = group, unique, []byte(args), c
	return j
}

func adds(t *testing.T, s *postgres.Store, jobs ...storage.NewJob) []storage.Enqueued {
	t.Helper()
	out, err := s.Enqueue(t.Context(), now, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func leases(t *testing.T, s *postgres.Store, n int) []storage.Leased {
	t.Helper()
	res, err := s.Exchange(t.Context(), now, storage.Exchange{LeaseDuration: time.Minute, Wants: wants("q", n)})
	if err != nil || len(res.Leased) != n {
		t.Fatalf("leased %v, %v; want %d", res.Leased, err, n)
	}
	return res.Leased
}

func wants(queue string, n int) []storage.Want {
	return []storage.Want{{Queues: []string{queue}, Kinds: []string{"k"}, N: n}}
}

// places sets how many places the groups of q have.
func places(t *testing.T, s *postgres.Store, n int64) {
	t.Helper()
	if err := s.Configure(t.Context(), storage.Lane{Queue: "q"}, storage.Settings{storage.SettingGroupLimit: n}); err != nil {
		t.Fatal(err)
	}
}

// areIn fails unless jobs are in the states, in their order.
func areIn(t *testing.T, s *postgres.Store, jobs []storage.Enqueued, want ...storage.State) {
	t.Helper()
	var got []storage.State
	for _, job := range jobs {
		r, err := s.Job(t.Context(), job.ID)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.State)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the jobs are %v, want %v", got, want)
	}
}

const isReady, isBlocked = storage.Ready, storage.Blocked

// All places that one call frees are filled.
func TestEnqueue_FreesPlaces(t *testing.T) {
	d := newDB(t)
	s := d.open()
	places(t, s, 3)
	if _, err := s.Regroup(t.Context(), "q", ""); err != nil { // so that the invariants count the places
		t.Fatal(err)
	}
	adds(t, s, member("g", "a", "1", nil), member("g", "b", "1", nil), member("g", "c", "1", nil))
	g := member("g", "", "1", nil)
	waiting := adds(t, s, g, g, g, g)
	later := func(key string) storage.NewJob {
		return member("", key, "2", &storage.Conflict{Mode: storage.Debounce, Quiet: time.Hour})
	}
	adds(t, s, later("a"), later("b"), later("c"))
	areIn(t, s, waiting, isReady, isReady, isReady, isBlocked)
	d.Invariants(t)
}

// A member of a group that another job of its call puts off leaves its place.
func TestEnqueue_FreesPlaceOfSameCall(t *testing.T) {
	for limit, want := range map[int64][]storage.State{1: {storage.Scheduled, isBlocked, isBlocked}, 2: {storage.Scheduled, isReady, isReady}} {
		d := newDB(t)
		s := d.open()
		places(t, s, limit)
		g := member("g", "", "1", nil)
		later := member("g", "a", "2", &storage.Conflict{Mode: storage.Debounce, Quiet: time.Hour})
		out := adds(t, s, member("g", "a", "1", nil), g, g, later)
		areIn(t, s, out[:3], want...)
		d.Invariants(t)
	}
}

// Where more have places than may, all that leave them make room for others.
func TestCancel_FewerPlaces(t *testing.T) {
	d := newDB(t)
	s := d.open()
	places(t, s, 5)
	g := member("g", "", "1", nil)
	adds(t, s, g, g, g, g, g)
	var x storage.Exchange
	for _, l := range leases(t, s, 5) {
		x.Finish = append(x.Finish, storage.Finish{Lease: l.Lease, Outcome: storage.OutcomeRetry, Stays: true, DueAt: now.Add(time.Hour)})
	}
	if _, err := s.Exchange(t.Context(), now, x); err != nil {
		t.Fatal(err)
	}
	waiting := adds(t, s, g, g, g, g, g, g)
	places(t, s, 4)
	if _, err := s.Cancel(t.Context(), now, waiting[5].ID, storage.Retention{}); err != nil {
		t.Fatal(err)
	}
	areIn(t, s, waiting[:5], isReady, isReady, isReady, isReady, isBlocked)
	d.Invariants(t)
}

// A group that somebody has locked keeps members that are due from their places, and delays no
// other queue.
func TestExchange_HeldGroupOfDueMembers(t *testing.T) {
	d := newDB(t)
	s := d.open()
	places(t, s, 2)
	due := member("held", "", "1", nil)
	due.DueAt = now.Add(time.Second)
	other := adds(t, s, newJobs(1, "other", "k")...)
	out := adds(t, s, due, member("held", "", "1", nil))
	leased := func(queue string, want ...storage.ID) {
		t.Helper()
		res, err := s.Exchange(t.Context(), now.Add(2*time.Second), storage.Exchange{LeaseDuration: time.Minute, Wants: wants(queue, 9)})
		if err != nil {
			t.Fatal(err)
		}
		var ids []storage.ID
		for _, l := range res.Leased {
			ids = append(ids, l.ID)
		}
		if !slices.Equal(ids, want) {
			t.Errorf("of queue %s %v were leased, want %v", queue, ids, want)
		}
	}
	d.exec("BEGIN")
	d.exec("SELECT FROM errand_group WHERE group_key = 'q held' FOR UPDATE")
	leased("other", other[0].ID)
	d.exec("ROLLBACK")
	leased("q", out[1].ID, out[0].ID)
	d.Invariants(t)
}
