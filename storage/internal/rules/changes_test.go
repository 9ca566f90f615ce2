package rules

import (
	"reflect"
	"testing"

	"github.com/errandq/errand/storage"
)

func TestJob_letIn(t *testing.T) {
	for _, c := range []struct {
		was  Job
		at   int64
		as   Role
		want Job
	}{
		{Job{Due: 5}, 0, NoRole, Job{State: storage.Scheduled, Due: 5}},
		{Job{Due: -5}, 0, NoRole, Job{State: storage.Scheduled, Due: -5}},
		{Job{Due: 5, WasDue: true, Role: Waits}, 0, NoRole, Job{State: storage.Ready, Due: 5, Role: Waits}},
		{Job{Due: 5, Role: Waits}, 4, Placed, Job{State: storage.Scheduled, Due: 5, Role: Placed}},
		{Job{Due: 5, Delay: 3, Role: Waits}, 4, Placed, Job{State: storage.Scheduled, Due: 5, Delay: 3, Role: Placed}},
		{Job{Due: 5, Role: Waits}, 5, Placed, Job{State: storage.Ready, Due: 5, Role: Placed}},
		{Job{Due: 5, Delay: 3, Role: Waits}, 5, Placed, Job{State: storage.Ready, Due: 5, Role: Placed}},
		{Job{Due: 5, Role: Waits, WasDue: true}, 6, Placed, Job{State: storage.Ready, Due: 6, Role: Placed}},
	} {
		is := c.was
		is.State = storage.Blocked
		if is.letIn(c.at, c.as); !reflect.DeepEqual(is, c.want) {
			t.Errorf("%+v at %d: %+v, want %+v", c.was, c.at, is, c.want)
		}
	}
	runs := Job{State: storage.Running, Due: 5, Role: Waits}
	is := runs
	if is.letIn(6, Placed); !reflect.DeepEqual(is, runs) {
		t.Errorf("one that runs becomes %+v", is)
	}
}

// Each field of a Standing is one of Job too, and goes from the one to the other.
func TestJob_stand(t *testing.T) {
	for i := range reflect.TypeFor[Standing]().NumField() {
		var s Standing
		field, name := reflect.ValueOf(&s).Elem().Field(i), reflect.TypeFor[Standing]().Field(i).Name
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int64:
			field.SetInt(1)
		case reflect.String:
			field.SetString("x")
		default:
			t.Fatalf("%s is a %s, of which this test has no example", name, field.Kind())
		}
		var j Job
		if j.stand(s); !reflect.ValueOf(j).FieldByName(name).Equal(field) || j.standing() != s {
			t.Errorf("a job with %s = %v is %+v, and its Standing %+v", name, field, j, j.standing())
		}
	}
}

func TestJob_block(t *testing.T) {
	for _, c := range []struct{ was, want Job }{
		{Job{State: storage.Scheduled, Due: 5, Delay: 3}, Job{State: storage.Blocked, Due: 5, Delay: 3}},
		{Job{State: storage.Ready, Due: 5, Delay: 3}, Job{State: storage.Blocked, Due: 5, WasDue: true}},
	} {
		is := c.was
		if is.block(); !reflect.DeepEqual(is, c.want) {
			t.Errorf("%+v: %+v, want %+v", c.was, is, c.want)
		}
	}
}

func TestRow_Moved(t *testing.T) {
	was := Job{State: storage.Blocked, Due: 5, Role: Waits}
	for _, c := range []struct {
		is   Job
		want bool
	}{
		{was, false},
		{Job{State: storage.Blocked, Due: 5, Role: Waits, Priority: 1}, false},
		{Job{State: storage.Ready, Due: 5, Role: Waits}, true},
		{Job{State: storage.Blocked, Due: 6, Role: Waits}, true},
		{Job{State: storage.Blocked, Due: 5, Delay: 1, Role: Waits}, true},
		{Job{State: storage.Blocked, Due: 5, Role: Placed}, true},
		{Job{State: storage.Blocked, Due: 5, Role: Waits, WasDue: true}, true},
	} {
		if r := (Row{Was: was.standing(), Is: c.is}); r.Moved() != c.want {
			t.Errorf("%+v has moved: %t", c.is, !c.want)
		}
	}
}

// What is not changed is not written, not even if it was changed and changed back.
func TestTx_Changes(t *testing.T) {
	m := newMemory(t)
	m.enqueue(keyed("u", "a", storage.Keep), grouped("g", ""), grouped("g", ""))
	m.need.Enter([]storage.NewJob{keyed("u", "b", storage.Keep)})
	m.need.End("", "q g")
	m.load()
	if _, err := m.enter(keyed("u", "b", storage.Keep)); err != nil {
		t.Fatal(err)
	}
	m.must(m.tx.Settle("q g"))
	if c := m.tx.Changes(); !c.None() || len(c.Empty) > 0 {
		t.Errorf("%d jobs have changed: %+v", len(c.Jobs), c)
	}
	for _, to := range []func(is *Job){
		func(is *Job) { is.block() },
		func(is *Job) { is.letIn(0, Placed) },
	} {
		r, err := m.tx.member(m.tx.groups.get("q g"), 2)
		m.must(err)
		to(&r.Is)
	}
	if c := m.tx.Changes(); !c.None() {
		t.Errorf("%d jobs were blocked, and let in again", len(c.Jobs))
	}
	var unsettled Tx
	unsettled.ReadGroup(Group{Name: "q g"}, false, 1, 9)
	unsettled.ReadMember(Job{ID: 1, Group: "q g", Role: Waits})
	if c := unsettled.Changes(); len(c.Empty) > 0 {
		t.Error("a group is empty of which a member waits")
	}
	for what, c := range map[string]Changes{
		"a job": {Jobs: []*Row{{}}}, "a key": {Keys: []*Key{{Holder: Keeper{Job: 1}}}}, "who waits for a key": {Keys: []*Key{{Were: [2]Keeper{1: {Job: 1}}}}}, "dead members": {Pass: []string{"q g"}},
	} {
		if c.None() {
			t.Errorf("a change of %s is none", what)
		}
	}
}
