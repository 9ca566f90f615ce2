package postgres_test

import (
	"testing"
	"time"

	"github.com/errandq/errand/storage"
)

// A redriven job keeps what it is and has done, in the lane that it goes to.
func TestRedrive_Keeps(t *testing.T) {
	d := newDB(t)
	s := d.open()
	j := newJobs(1, "q", "k")[0]
	j.Args, j.Headers, j.Policy, j.Priority, j.Unique, j.Timeout = []byte("a"), []byte(`{"h":"v"}`), []byte(`{}`), 3, "u", time.Minute
	adds(t, s, j)
	id := dies(t, s, "no")
	before, err := s.Job(t.Context(), id)
	if err != nil || before.State != storage.Dead {
		t.Fatal(before, err)
	}
	later := now.Add(time.Hour)
	step, err := s.Redrive(t.Context(), later, storage.Selection{IDs: []storage.ID{id, {1}, id}}, "other")
	if err != nil || step.N != 1 || len(step.NotFound) != 2 {
		t.Fatalf("redriven %+v, %v", step, err)
	}
	after, err := s.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if after.State != storage.Ready || after.Queue != "other" || !after.DueAt.Equal(later) || after.Attempt != before.Attempt || after.Unique != "u" ||
		string(after.Args) != "a" || string(after.Headers) != `{"h":"v"}` || string(after.Policy) != "{}" || after.Priority != 3 || after.Timeout != time.Minute {
		t.Errorf("the job was %+v and is %+v", before, after)
	}
	if again := adds(t, s, j)[0]; !again.Duplicate || again.ID != id {
		t.Errorf("its key was free for %+v", again)
	}
	d.Invariants(t)
	if _, err := s.Redrive(t.Context(), now, storage.Selection{Under: &storage.Under{}}, ""); err == nil {
		t.Error("a step of a job was done")
	}
}
