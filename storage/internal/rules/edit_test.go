package rules

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// editing returns what an Edit needs: jobs of lane n go to lane 10n. Job 6 has the args already, and others
// have had 4 bytes.
func editing(e storage.Edit) *Edit {
	return &Edit{
		Edit: &e, Lane: func(lane int64) int64 { return 10 * lane }, Had: func(job int64) (int64, bool) { return 4, job == 6 },
		Keep: func(lane int64) time.Duration { return time.Duration(lane) * time.Minute },
	}
}

// fourGroups reads g and h of q and r, of which h has two places. In each of q one waits, and in those of
// r all places are taken.
func fourGroups(tx *Tx) {
	tx.Reset(Need{Jobs: []int64{5, 6}, Groups: []string{"q g", "q h", "r g", "r h"}, Leave: []int32{2, 2, 2, 2}})
	tx.Begin(at(1000*second), 0)
	tx.ReadGroup(Group{Name: "q g", Rule: GroupRule{Limit: 1}}, true, 1, 4)
	tx.ReadMember(Job{ID: 9, Lane: 1, Group: "q g", Role: Waits, State: storage.Blocked, WasDue: true})
	tx.ReadGroup(Group{Name: "q h", Rule: GroupRule{Limit: 2, Pass: true}, Taken: 1}, false, 1, 4)
	tx.ReadMember(Job{ID: 8, Lane: 1, Group: "q h", Role: Waits, State: storage.Blocked, WasDue: true})
	tx.ReadGroup(Group{Name: "r g", Rule: GroupRule{Limit: 1}, Taken: 1}, true, 0, 4)
	tx.ReadMember(Job{ID: 4, Lane: 10, Group: "r g", Role: Placed, State: storage.Ready})
	tx.ReadGroup(Group{Name: "r h", Rule: GroupRule{Limit: 2, Pass: true}, Taken: 2}, false, 0, 4)
}

// What becomes of a live job, and which others move by that.
func TestTx_Edit(t *testing.T) {
	const now = 1000 * second
	later := storage.Edit{Delay: time.Minute}
	due := storage.Edit{DueAt: at(now / 2)}
	moved := storage.Edit{Queue: "r"}
	cancel := storage.Edit{Cancel: &storage.Retention{}}
	for _, c := range []struct {
		what string
		edit storage.Edit
		job  Job
		is   Standing
		to   string // its group then
		let  int64  // another one that moves
	}{
		{"nothing", storage.Edit{}, Job{State: storage.Ready, Due: 3}, Standing{Lane: 1, State: storage.Ready, Due: 3}, "", 0},
		{"put off", later, Job{State: storage.Ready, Due: 3}, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second}, "", 0},
		{"due", due, Job{State: storage.Scheduled, Due: 2 * now, Delay: 7}, Standing{Lane: 1, State: storage.Ready, Due: now / 2}, "", 0},
		{"another queue", moved, Job{State: storage.Scheduled, Due: 2 * now, Delay: 7}, Standing{Lane: 10, State: storage.Scheduled, Due: 2 * now, Delay: 7}, "", 0},
		{"behind a key, put off", later, Job{State: storage.Blocked, WasDue: true}, Standing{Lane: 1, State: storage.Blocked, Due: now + 60*second, Delay: 60 * second}, "", 0},
		{"behind a key, due", due, Job{State: storage.Blocked, Due: 2 * now}, Standing{Lane: 1, State: storage.Blocked, Due: now / 2, WasDue: true}, "", 0},
		{"behind a key, another queue", moved, Job{State: storage.Blocked, Due: 3, WasDue: true}, Standing{Lane: 10, State: storage.Blocked, Due: 3, WasDue: true}, "", 0},
		{"running", later, Job{State: storage.Running, Due: 3}, Standing{Lane: 1, State: storage.Running, Due: 3}, "", 0},
		{"running, cancelled", cancel, Job{State: storage.Running, Due: 3}, Standing{Lane: 1, State: storage.Running, Due: 3, Cancelling: true}, "", 0},
		{"running, asked before", later, Job{State: storage.Running, Cancelling: true}, Standing{Lane: 1, State: storage.Running, Cancelling: true}, "", 0},
		{"a place, put off", later, Job{State: storage.Ready, Group: "q g", Role: Placed}, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second, Role: Placed}, "q g", 0},
		{"a place of several, put off", later, Job{State: storage.Ready, Group: "q h", Role: Placed}, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second}, "q h", 8},
		{"one that waits, put off", later, Job{State: storage.Blocked, Group: "r g", Role: Waits, WasDue: true, ID: 6}, Standing{Lane: 1, State: storage.Blocked, Due: now + 60*second, Delay: 60 * second, Role: Waits}, "r g", 0},
		{"no place, due", due, Job{State: storage.Scheduled, Group: "q h"}, Standing{Lane: 1, State: storage.Ready, Due: now / 2, Role: Placed}, "q h", 0},
		{"a place, to where one is taken", moved, Job{State: storage.Ready, Due: 3, Group: "q g", Role: Placed, ID: 6}, Standing{Lane: 10, State: storage.Blocked, Due: 3, WasDue: true, Role: Waits}, "r g", 9},
		{"before one that has a place", moved, Job{State: storage.Ready, Due: 3, Group: "q g", Role: Placed, ID: 3}, Standing{Lane: 10, State: storage.Ready, Due: 3, Role: Placed}, "r g", 9},
		{"a place of several, to another queue", moved, Job{State: storage.Scheduled, Due: 3, Group: "q h", Role: Placed}, Standing{Lane: 10, State: storage.Scheduled, Due: 3}, "r h", 8},
		{"a place of several, to where all are taken", moved, Job{State: storage.Ready, Due: 3, Group: "q h", Role: Placed}, Standing{Lane: 10, State: storage.Blocked, Due: 3, WasDue: true, Role: Waits}, "r h", 8},
		{"to its own queue", storage.Edit{Queue: "q"}, Job{State: storage.Ready, Due: 3, Group: "q h", Role: Placed}, Standing{Lane: 1, State: storage.Ready, Due: 3, Role: Placed}, "q h", 0},
		{"a place, cancelled", cancel, Job{State: storage.Ready, Due: 3, Group: "q g", Role: Placed}, Standing{Lane: 1, State: storage.Cancelled, Due: 3}, "q g", 9},
	} {
		t.Run(c.what, func(t *testing.T) {
			var tx Tx
			fourGroups(&tx)
			tx.need.Jobs = []int64{3, 5, 6}
			j := c.job
			if j.ID == 0 {
				j.ID = 5
			}
			j.Lane, j.Created, j.Salt = 1, 7, 9
			if j.Role == Placed {
				g := tx.groups.get(j.Group)
				g.Taken++
				tx.ReadMember(j)
			}
			if j.Role == Waits {
				tx.ReadMember(j)
			}
			tx.ReadLive(j)
			tx.ReadLives()
			e := editing(c.edit)
			if c.edit.Queue == "q" {
				e.Lane = func(lane int64) int64 { return lane }
			}
			if was, err := tx.Edit(j.id(), e); was != c.job.State || err != nil {
				t.Fatalf("it was %s, %v", was, err)
			}
			if err := tx.SettleAll(); err != nil {
				t.Fatal(err)
			}
			moved := map[int64]bool{}
			for _, r := range tx.Changes().Jobs {
				moved[r.Is.ID] = true
			}
			r := tx.rows.get(j.ID)
			if got := r.Is.standing(); got != c.is || r.Is.Group != c.to {
				t.Errorf("the job is %+v of %q, want %+v of %q", got, r.Is.Group, c.is, c.to)
			}
			if r.Edit != nil || moved[j.ID] != r.Moved() {
				t.Errorf("its work has changed: %+v", r)
			}
			if delete(moved, j.ID); len(moved) > 0 != (c.let != 0) && j.ID != 3 || c.let != 0 && !moved[c.let] {
				t.Errorf("the jobs %v have moved, want %d", moved, c.let)
			}
			if (c.edit.Cancel != nil && r.Is.State == storage.Cancelled) != (r.PurgeAt == now+60*second) {
				t.Errorf("it is kept until %d", r.PurgeAt)
			}
		})
	}
}

// A job that is not meant stays as it is.
func TestTx_EditOf(t *testing.T) {
	id := Keeper{Job: 5, Created: 7, Salt: 9}.ID()
	for _, c := range []struct {
		what string
		id   storage.ID
		of   *storage.Filter
		want storage.State
	}{
		{"named", id, nil, storage.Ready},
		{"chosen", id, &storage.Filter{States: []storage.State{storage.Ready}}, storage.Ready},
		{"moved on", id, &storage.Filter{States: []storage.State{storage.Scheduled}}, ""},
		{"another one", Keeper{Job: 5, Created: 7, Salt: 8}.ID(), nil, ""},
		{"gone", Keeper{Job: 6}.ID(), nil, ""},
	} {
		var tx Tx
		tx.Reset(Need{Jobs: []int64{5, 6}})
		tx.ReadLive(Job{ID: 5, Created: 7, Salt: 9, State: storage.Ready})
		tx.ReadLives()
		e := editing(storage.Edit{Delay: time.Second})
		e.Of = c.of
		if was, err := tx.Edit(c.id, e); was != c.want || err != nil {
			t.Errorf("%s: it was %q, %v; want %q", c.what, was, err, c.want)
		}
		if n := len(tx.Changes().Jobs); (n == 1) != (c.want != "") {
			t.Errorf("%s: %d jobs have changed", c.what, n)
		}
	}
	for _, read := range []string{"q g", "r g"} {
		var tx Tx
		tx.Reset(Need{Jobs: []int64{5}})
		tx.ReadGroup(Group{Name: read, Rule: GroupRule{Limit: 1}}, true, 0, 3)
		tx.ReadLive(Job{ID: 5, Lane: 1, Group: "q g", Role: Placed, State: storage.Ready})
		tx.ReadLives()
		if _, err := tx.Edit(Keeper{Job: 5}.ID(), editing(storage.Edit{Queue: "r"})); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("with %s alone: %v", read, err)
		}
		if err := tx.EditDead(Job{ID: 7, Lane: 1, Group: "q g", Role: Blocks, State: storage.Dead}, editing(storage.Edit{Queue: "r"})); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("of a dead one with %s alone: %v", read, err)
		}
	}
	var tx Tx
	if _, err := tx.Edit(id, editing(storage.Edit{})); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("of a job that was not read: %v", err)
	}
}

// What changes of the work is written, also once the changes before it are, and old args are kept if
// they are others.
func TestTx_EditWork(t *testing.T) {
	for _, c := range []struct {
		what        string
		edit        storage.Edit
		job         int64
		edit5, args bool
		priority    int
	}{
		{"nothing", storage.Edit{}, 5, false, false, 3},
		{"its priority", storage.Edit{Priority: new(-7)}, 5, true, false, -7},
		{"its policy", storage.Edit{Policy: []byte{}}, 5, true, false, 3},
		{"other args", storage.Edit{Args: []byte{}}, 5, true, true, 3},
		{"the same args", storage.Edit{Args: []byte("a")}, 6, false, false, 3},
		{"the same args, its priority", storage.Edit{Args: []byte("a"), Priority: new(2)}, 6, true, false, 2},
	} {
		for _, of := range []string{"live", "dead", "redriven"} {
			var tx Tx
			tx.Reset(Need{Jobs: []int64{5, 6}})
			j := Job{ID: c.job, Lane: 1, State: storage.Ready, Priority: 3, Bytes: 7, Group: "q g", Role: Placed}
			e := editing(c.edit)
			for range 2 { // it is named twice
				var err error
				switch of {
				case "live":
					if tx.rows.get(c.job) == nil {
						tx.ReadJob(j)
						tx.ReadLive(j)
						tx.ReadLives()
					}
					_, err = tx.Edit(j.id(), e)
				case "dead":
					j.State, j.Role = storage.Dead, Blocks
					err = tx.EditDead(j, e)
				default:
					j.Group, j.Role = "", NoRole
					if tx.rows.get(c.job) == nil {
						_, err = tx.Redrive(Standing{Lane: 1, State: storage.Dead}, "", j, "", e)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r := tx.rows.get(c.job)
			if (r.Edit != nil) != c.edit5 || r.Edits != c.args || r.Is.History != c.args || r.Is.Priority != c.priority ||
				c.args != (r.Is.Bytes == 3) || r.Amended() != (r.Edit != nil && of != "redriven") {
				t.Errorf("%s of a %s job: %+v", c.what, of, r)
			}
			if n := len(tx.Changes().Jobs); (n == 1) != (c.edit5 || of == "redriven") {
				t.Errorf("%s of a %s job: %d have changed", c.what, of, n)
			}
			tx.Wrote()
			if n := len(tx.Changes().Jobs); n > 0 || r.Edits {
				t.Errorf("%s of a %s job, once it is written: %d have changed", c.what, of, n)
			}
		}
	}
}

// A dead member blocks others where it goes, if dead ones do, and where it was no more.
func TestTx_EditDead(t *testing.T) {
	for _, c := range []struct {
		what  string
		group string
		role  Role
		queue string
		moved []int64
		pass  []string
	}{
		{"no group", "", NoRole, "r", []int64{5}, nil},
		{"one that blocks nobody", "q g", NoRole, "r", []int64{5}, nil},
		{"the head", "q g", Blocks, "r", []int64{5, 9, 14}, nil},
		{"the head, nowhere else", "q g", Blocks, "", nil, nil},
		{"to where dead ones block nobody", "q h", Blocks, "r", []int64{5}, []string{"q h", "r h"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var tx Tx
			fourGroups(&tx)
			j := Job{ID: 5, Lane: 1, Group: c.group, Role: c.role, State: storage.Dead}
			if c.group == "q g" && c.role == Blocks {
				tx.groups.get("q g").Dead = true
				tx.ReadMember(j)
			}
			if c.group == "q g" && c.role == NoRole { // then it is nobody's
				tx.groups.get("q g").Taken = 1
				tx.ReadMember(Job{ID: 2, Group: "q g", Role: Placed, State: storage.Running})
			}
			if c.pass != nil {
				h := tx.groups.get("q h")
				h.Taken, h.Dead = 2, true
			}
			// One before it, which it blocks there.
			r := tx.groups.get("r g")
			r.Members, r.live, r.Taken = nil, nil, 1
			tx.ReadMember(Job{ID: 14, Lane: 10, Group: "r g", Role: Placed, State: storage.Ready})
			for range 2 { // it is named twice
				if err := tx.EditDead(j, editing(storage.Edit{Queue: c.queue})); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.SettleAll(); err != nil {
				t.Fatal(err)
			}
			changes := tx.Changes()
			var moved []int64
			for _, r := range changes.Jobs {
				if moved = append(moved, r.Is.ID); r.Is.ID == 5 && r.Is.Lane != 10 {
					t.Errorf("it is in lane %d", r.Is.Lane)
				}
			}
			if !slices.Equal(moved, c.moved) {
				t.Errorf("the jobs %v have changed, want %v", moved, c.moved)
			}
			if !slices.Equal(changes.Pass, c.pass) {
				t.Errorf("dead ones of %q pass, want %q", changes.Pass, c.pass)
			}
		})
	}
}

// A caller that does the rest by itself says the group, of which it has read the rule alone, and settles
// it.
func TestTx_Replace(t *testing.T) {
	const now = 1000 * second
	for _, c := range []struct {
		what  string
		group string
		mode  storage.ConflictMode
		is    Standing
	}{
		{"no group", "", storage.Debounce, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second}},
		{"a place of several", "q h", storage.Debounce, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second}},
		{"a place", "q g", storage.Debounce, Standing{Lane: 1, State: storage.Scheduled, Due: now + 60*second, Delay: 60 * second, Role: Placed}},
		{"not put off", "q h", storage.Replace, Standing{Lane: 1, State: storage.Ready, Due: 3, Role: Placed}},
	} {
		j := keyed("u", "b", c.mode)
		j.Conflict.Quiet = time.Minute
		var tx Tx
		tx.Reset(Need{Keys: []NeedKey{{"u", j.Conflict}}})
		tx.Begin(at(now), 0)
		tx.ReadKey("u", false, Keeper{Job: 5}, true, false)
		tx.ReadKey("u", true, Keeper{}, false, false)
		tx.ReadJob(Job{ID: 5, Lane: 1, Due: 3, State: storage.Ready})
		claim, err := tx.Claim(&j, Keeper{Job: 7}, now)
		if err != nil || claim.Admission != Change {
			t.Fatal(claim, err)
		}
		tx.ReadGroup(Group{Name: "q g", Rule: GroupRule{Limit: 1}}, false, 0, 1)
		tx.ReadGroup(Group{Name: "q h", Rule: GroupRule{Limit: 2}}, false, 0, 1)
		role := NoRole
		if c.group != "" {
			role = Placed
		}
		r, err := tx.Replace(&claim, &j, c.group, role)
		if err != nil || r.Is.ID != 5 || r.Does != &j {
			t.Fatalf("%s: %+v, %v", c.what, r, err)
		}
		c.is.Bytes = r.Is.Bytes
		if got := r.Is.standing(); got != c.is {
			t.Errorf("%s: it is %+v, want %+v", c.what, got, c.is)
		}
	}
}
