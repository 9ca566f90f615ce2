package errand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/errandq/errand"
)

func TestTags(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	given := []string{"customer:42", "eu", "customer:42", "Big_1/x"}
	id := enqueue(t, q, note{}, &errand.JobOptions{Tags: given})
	if j := lookUp(t, q, id); !slices.Equal(j.Tags, []string{"Big_1/x", "customer:42", "eu"}) {
		t.Errorf("the job has the tags %q", j.Tags)
	}
	s := errand.Schedule{Name: "s", Spec: "@hourly", Args: note{}, Options: &errand.JobOptions{Tags: []string{"b", "a"}}}
	if err := q.Schedule(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := q.Schedules().Get(t.Context(), "s")
	if err != nil || !slices.Equal(got.Options.Tags, []string{"a", "b"}) {
		t.Errorf("the schedule has the tags %q, %v", got.Options.Tags, err)
	}
	e, err := q.Schedules().Run(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if j := lookUp(t, q, e.ID); !slices.Equal(j.Tags, []string{"a", "b"}) {
		t.Errorf("the job of the schedule has the tags %q", j.Tags)
	}
}

func TestTags_refused(t *testing.T) {
	q, _ := memoryQueue(t, errand.Options{})
	const form = "must match [A-Za-z0-9][A-Za-z0-9._:/-]{0,63}"
	nine := strings.Fields("a b c d e f g h i")
	long := strings.Repeat("x", 65)
	_, err := q.EnqueueMany(t.Context(), []errand.NewJob{
		{Args: note{}, Options: &errand.JobOptions{Tags: []string{long[1:], ""}}},
		{Args: note{}, Options: &errand.JobOptions{Tags: append(nine[:8:8], "a")}},
		{Args: note{}, Options: &errand.JobOptions{Tags: nine}},
		{Args: note{}, Options: &errand.JobOptions{Tags: []string{"a b", "-", long, "\x00", "\xff"}}},
	})
	wantFaults(t, err, fault{"jobs[0].tags[1]", `""`, form}, fault{"jobs[2].tags", "9", "must be at most 8"},
		fault{"jobs[3].tags[0]", `"a b"`, form}, fault{"jobs[3].tags[1]", `"-"`, form}, fault{"jobs[3].tags[2]", fmt.Sprintf("%q", long), form},
		fault{"jobs[3].tags[3]", `"\x00"`, form}, fault{"jobs[3].tags[4]", `"\xff"`, form})
	err = q.Schedule(t.Context(), errand.Schedule{Name: "s", Spec: "@hourly", Args: note{}, Options: &errand.JobOptions{Tags: []string{"?"}}})
	wantFaults(t, err, fault{"options.tags[0]", `"?"`, form})
	wantNothing(t, q)
}
