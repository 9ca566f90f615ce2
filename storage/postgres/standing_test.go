package postgres_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/errandq/errand/storage"
	"github.com/errandq/errand/storage/internal/rules"
)

// Each statement that writes what becomes of a job writes all that decisions change, and what reads it
// reads that.
func TestStore_Standing(t *testing.T) {
	work := &storage.NewJob{Args: []byte("work")}
	is := rules.Job{ID: 1 << 40, Group: "q g", Lane: 1, Role: rules.Waits, State: storage.Blocked, Bytes: 4}
	standing := reflect.TypeFor[rules.Standing]()
	for i := range standing.NumField() {
		switch f := reflect.ValueOf(&is).Elem().FieldByName(standing.Field(i).Name); {
		case !f.IsZero():
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.Kind() == reflect.Int64:
			f.SetInt(int64(5 + i))
		default:
			t.Fatalf("%s is a %s, of which this test has no example", standing.Field(i).Name, f.Kind())
		}
	}
	other := func(s storage.State, does *storage.NewJob) *rules.Row {
		return &rules.Row{New: work, Does: does, Is: rules.Job{ID: is.ID, Group: is.Group, Lane: is.Lane, State: s}}
	}
	elsewhere := other(storage.Scheduled, work)
	elsewhere.Is.Lane = 2
	ran := rules.Standing{Lane: is.Lane, State: storage.Running}
	waited := rules.Standing{Lane: is.Lane, State: storage.Scheduled}
	dies := &rules.Row{Was: ran, Is: is, Finish: &storage.Finish{Reason: storage.ReasonPermanent}}
	dies.Is.State = storage.Dead
	asked := &rules.Row{Was: ran, Is: is}
	asked.Is.State = storage.Running
	usual := []string{"Delay", "Cancelling"} // the former is not kept, and the latter only of a job that runs
	for _, c := range []struct {
		what string
		not  []string // fields that are not written
		rows []*rules.Row
	}{
		{"enters", usual, []*rules.Row{{New: work, Does: work, Is: is}}},
		{"moves", usual, []*rules.Row{other(storage.Scheduled, work), {Was: waited, Is: is}}},
		{"goes to another lane", usual, []*rules.Row{elsewhere, {Was: rules.Standing{Lane: 2, State: storage.Scheduled}, Is: is}}},
		{"is put back", usual, []*rules.Row{other(storage.Running, work), {Was: ran, Is: is}}},
		{"is to do something else", usual, []*rules.Row{other(storage.Scheduled, &storage.NewJob{}), {Was: waited, Is: is, Does: work}}},
		{"is put back, to do something else", usual, []*rules.Row{other(storage.Running, &storage.NewJob{}), {Was: ran, Is: is, Does: work}}},
		{"is redriven", usual, []*rules.Row{other(storage.Running, work), dies, {Was: rules.Standing{State: storage.Dead}, Is: is}}},
		{"is asked to stop", []string{"Due", "Delay", "Role", "WasDue"}, []*rules.Row{other(storage.Running, work), asked}},
	} {
		got, err := newDB(t).open().Written(t.Context(), c.rows...)
		if err != nil {
			t.Fatalf("a job that %s: %v", c.what, err)
		}
		want := c.rows[len(c.rows)-1].Is
		for i := range standing.NumField() {
			name := standing.Field(i).Name
			g, w := reflect.ValueOf(got).FieldByName(name), reflect.ValueOf(want).FieldByName(name)
			if slices.Contains(c.not, name) {
				w = reflect.Zero(w.Type())
			}
			if !g.Equal(w) {
				t.Errorf("of a job that %s %s is %v, want %v", c.what, name, g, w)
			}
		}
	}
}
