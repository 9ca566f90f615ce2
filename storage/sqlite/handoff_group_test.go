package sqlite_test

import (
	"context"
	"testing"

	"github.com/errandq/errand/storage"
)

// A member that enters a group is not handed over before another one that its group lets in then, as a
// setting of the group has changed.
func TestHandoff_MemberLetsOthersIn(t *testing.T) {
	ctx, d := context.Background(), newDB(t, nil)
	s := d.open()
	enter := func(n int) {
		t.Helper()
		jobs := make([]storage.NewJob, n)
		for i := range jobs {
			jobs[i] = newJob("default", "a")
			jobs[i].Group = "g"
		}
		if _, err := s.Enqueue(ctx, t0, jobs); err != nil {
			t.Fatal(err)
		}
	}
	configure := func(key storage.Setting, n int64) {
		t.Helper()
		if err := s.Configure(ctx, storage.Lane{Queue: "default"}, storage.Settings{key: n}); err != nil {
			t.Fatal(err)
		}
	}
	enter(2)
	first := lease(t, s, 1, "a")[0]
	configure(storage.SettingGroupLimit, 3)
	w := offer(t, s, 1, "a")
	enter(1)
	if jobs := w.taken(); len(jobs) != 1 || jobs[0].Key != first.Key+1 {
		t.Errorf("%v were handed over, want the second", jobs)
	}
	if c := counts(t, s); c[storage.Blocked] != 0 || c[storage.Ready] != 1 {
		t.Errorf("counts %v, want one ready", c)
	}
	d.Invariants(t)
	w.Close()

	lease(t, s, 1, "a")
	configure(storage.SettingGroupLimit, 1)
	x := storage.Exchange{Finish: []storage.Finish{{Lease: first.Lease, Outcome: storage.OutcomeDead, Reason: storage.ReasonPermanent, Error: "no"}}}
	if _, err := s.Exchange(ctx, t0, x); err != nil {
		t.Fatal(err)
	}
	configure(storage.SettingDeadHead, int64(storage.PassDead))
	offer(t, s, 1, "a")
	enter(1)
	if n := d.number("SELECT COUNT(*) FROM errand_option WHERE role = 3"); n != 0 {
		t.Errorf("%d dead members block still", n)
	}
	d.Invariants(t)
}
