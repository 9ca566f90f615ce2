package rules

import (
	"errors"
	"testing"

	"github.com/errandq/errand/storage"
)

// A scheduled job is ready and due, unless it was due before. A member without a place waits for its
// turn.
func TestTx_RunNow(t *testing.T) {
	const now = 1000 * second
	first, failed := &storage.Waiting{First: true}, &storage.Waiting{Failed: true}
	id := Keeper{Job: 5, Created: 7, Salt: 9}.ID()
	other := Keeper{Job: 5, Created: 7, Salt: 8}.ID()
	for _, c := range []struct {
		what       string
		id         storage.ID
		which      *storage.Waiting
		job        Job
		attempt    int
		failed     bool
		live, goes bool
		is         Standing
	}{
		{"named", id, nil, Job{State: storage.Scheduled, Due: 2 * now}, 0, false, true, true, Standing{State: storage.Ready, Due: now}},
		{"due before", id, nil, Job{State: storage.Scheduled, Due: 3}, 0, false, true, true, Standing{State: storage.Ready, Due: 3}},
		{"another one", other, nil, Job{State: storage.Scheduled, Due: 3}, 0, false, false, false, Standing{State: storage.Scheduled, Due: 3}},
		{"running", id, nil, Job{State: storage.Running, Due: 3}, 1, false, true, false, Standing{State: storage.Running, Due: 3}},
		{"one that has not run", id, failed, Job{State: storage.Scheduled, Due: 2 * now}, 0, true, true, false, Standing{State: storage.Scheduled, Due: 2 * now}},
		{"one that has not run, with First", id, first, Job{State: storage.Scheduled, Due: 2 * now}, 0, false, true, true, Standing{State: storage.Ready, Due: now}},
		{"one that has run", id, first, Job{State: storage.Scheduled, Due: 2 * now}, 1, false, true, true, Standing{State: storage.Ready, Due: now}},
		{"one that has failed", id, failed, Job{State: storage.Scheduled, Due: 2 * now}, 1, true, true, true, Standing{State: storage.Ready, Due: now}},
		{"one that has not failed", id, failed, Job{State: storage.Scheduled, Due: 2 * now}, 1, false, true, false, Standing{State: storage.Scheduled, Due: 2 * now}},
		{"a member with a place", id, nil, Job{State: storage.Scheduled, Due: 2 * now, Group: "q g", Role: Placed}, 1, false, true, true, Standing{State: storage.Ready, Due: now, Role: Placed}},
		{"a member that gets a place", id, nil, Job{State: storage.Scheduled, Due: 2 * now, Group: "q h", Role: NoRole}, 1, false, true, true, Standing{State: storage.Ready, Due: now, Role: Placed}},
		{"a member behind others", id, nil, Job{State: storage.Scheduled, Due: 2 * now, Group: "q g", Role: NoRole}, 1, false, true, true, Standing{State: storage.Blocked, Due: now, Role: Waits, WasDue: true}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var tx Tx
			tx.Reset(Need{Jobs: []int64{5}, Groups: []string{"q g", "q h"}, Leave: []int32{1, 1}})
			tx.Begin(at(now), 0)
			tx.ReadGroup(Group{Name: "q g", Rule: GroupRule{Limit: 2, Turns: true}, Taken: 2}, false, 0, 3)
			tx.ReadGroup(Group{Name: "q h", Rule: GroupRule{Limit: 2, Turns: true}, Taken: 1}, false, 0, 3)
			j := c.job
			j.ID, j.Created, j.Salt, j.Attempt = 5, 7, 9, c.attempt
			tx.ReadLive(j)
			tx.ReadLives()
			live, goes, err := tx.RunNow(c.id, c.which, c.failed)
			if live != c.live || goes != c.goes || err != nil {
				t.Fatalf("live %t, goes %t, %v", live, goes, err)
			}
			if err := tx.SettleAll(); err != nil {
				t.Fatal(err)
			}
			is := tx.Live(5)
			if got := is.standing(); got != c.is {
				t.Errorf("the job is %+v, want %+v", got, c.is)
			}
		})
	}
	var tx Tx
	if _, _, err := tx.RunNow(id, nil, false); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("of a job that was not read: %v", err)
	}
}
