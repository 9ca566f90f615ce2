package rules

import (
	"errors"
	"testing"

	"github.com/errandq/errand/storage"
)

// A dead member that is put back comes before those that wait since, also those that it has blocked.
// One that comes to a group whose place is taken waits.
func TestTx_Redrive(t *testing.T) {
	for _, c := range []struct {
		what       string
		was        Role
		taken      int64
		to         string
		redriven   storage.State
		role       Role
		others     int // that move
		dead       bool
		waitsFirst int64
	}{
		{"the head", Blocks, 0, "q g", storage.Ready, Placed, 0, true, 7},
		{"one behind a head", NoRole, 0, "q g", storage.Blocked, Waits, 0, true, 7},
		{"beside a place that is taken", NoRole, 1, "q g", storage.Blocked, Waits, 0, false, 20},
		{"the head, to another group", Blocks, 0, "r g", storage.Ready, Placed, 1, true, 7},
	} {
		t.Run(c.what, func(t *testing.T) {
			var tx Tx
			n := Need{Groups: []string{"q g", "r g"}, Leave: []int32{1, 1}}
			tx.Reset(n)
			tx.Begin(at(1000*second), 0)
			tx.ReadGroup(Group{Name: "q g", Rule: GroupRule{Limit: 1}, Taken: c.taken, Dead: c.dead}, true, 1, 3)
			if c.dead {
				head := int64(5)
				if c.was == NoRole {
					head = 3
				}
				tx.ReadMember(Job{ID: head, Group: "q g", Role: Blocks, State: storage.Dead})
			}
			if c.taken > 0 {
				tx.ReadMember(Job{ID: 10, Group: "q g", Role: Placed, State: storage.Running})
			}
			tx.ReadMember(Job{ID: c.waitsFirst, Group: "q g", Role: Waits, State: storage.Blocked, WasDue: true})
			tx.ReadGroup(Group{Name: "r g", Rule: GroupRule{Limit: 1}}, true, 0, 3)
			goes, err := tx.Redrive(Standing{Lane: 1, Role: c.was, State: storage.Dead}, "q g", Job{ID: 5, Lane: 2, Group: c.to, State: storage.Ready, Due: 5}, "", nil)
			if !goes || err != nil {
				t.Fatal(goes, err)
			}
			if err := tx.SettleAll(); err != nil {
				t.Fatal(err)
			}
			all := tx.Changes().Jobs
			if len(all) != 1+c.others {
				t.Fatalf("%d jobs have changed, want %d", len(all), 1+c.others)
			}
			if is := all[0].Is; is.ID != 5 || is.State != c.redriven || is.Role != c.role || all[0].Was.State != storage.Dead {
				t.Errorf("the job is %+v, want it %s with role %d", is, c.redriven, c.role)
			}
		})
	}
}

// A job stays dead if another one has its unique key, and goes with one of its own.
func TestTx_RedriveKey(t *testing.T) {
	for holder, want := range map[int64]bool{0: true, 1: true, 2: false} {
		var tx Tx
		tx.Reset(Need{Keys: []NeedKey{{Name: "k"}}})
		tx.Begin(at(1000*second), 0)
		is := Keeper{Job: holder}
		if holder == 1 {
			is.Until = Forever
		}
		tx.ReadKey("k", false, is, holder == 2, holder == 1)
		tx.ReadKey("k", true, Keeper{}, false, false)
		goes, err := tx.Redrive(Standing{Lane: 1, State: storage.Dead}, "", Job{ID: 1, Lane: 1, State: storage.Ready}, "k", nil)
		if goes != want || err != nil {
			t.Errorf("held by job %d it goes: %t, %v; want %t", holder, goes, err, want)
		}
		if n := len(tx.Changes().Jobs); (n == 1) != want {
			t.Errorf("held by job %d, %d jobs have changed", holder, n)
		}
	}
	// With a key for a time, it lives again for those that come in the same transaction.
	var tx Tx
	tx.Reset(Need{Keys: []NeedKey{{Name: "k"}}})
	tx.Begin(at(1000*second), 0)
	tx.ReadKey("k", false, Keeper{Job: 1, Until: 2000 * second}, false, true)
	tx.ReadKey("k", true, Keeper{}, false, false)
	if goes, err := tx.Redrive(Standing{Lane: 1, State: storage.Dead}, "", Job{ID: 1, Lane: 1, State: storage.Ready}, "k", nil); !goes || err != nil {
		t.Errorf("with its key for a time it goes: %t, %v", goes, err)
	}
	if k, err := tx.Key("k", nil); err != nil || !k.Live || k.Kept || k.Holder.Job != 1 {
		t.Errorf("its key is %+v (%v), want it held by a live job", k, err)
	}
	tx = Tx{}
	if _, err := tx.Redrive(Standing{}, "", Job{ID: 1}, "k", nil); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("of a key that was not read: %v", err)
	}
}
