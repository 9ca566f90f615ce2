package dashboard

import (
	"slices"
	"testing"

	"github.com/errandq/errand"
)

// The page of a queue, of a kind or of both has the workers and the limits that count for jobs of
// it.
func TestLane_workers(t *testing.T) {
	workers := []errand.WorkerInfo{
		{Instance: "a", Queues: []string{"mail", "web/*"}, Kinds: []string{"send", "fetch"}, Limits: []errand.WorkerLimit{
			{Queue: "mail"}, {Queue: "web/*"}, {Kind: "send"}, {Kind: "fetch"}, {Queue: "web/*", Kind: "fetch"}, {Queue: "mail", Kind: "send"},
		}},
		{Instance: "b", Queues: []string{"other"}, Kinds: []string{"send"}},
	}
	for _, c := range []struct {
		lane errand.Lane
		want []string
	}{
		{errand.Lane{Kind: "fetch"}, []string{"a worker", "a mail", "a web/*", "a fetch in all queues", "a fetch in web/*"}},
		{errand.Lane{Queue: "mail"}, []string{"a worker", "a mail", "a send in all queues", "a fetch in all queues", "a send in mail"}},
		{errand.Lane{Queue: "web/1", Kind: "fetch"}, []string{"a worker", "a web/*", "a fetch in all queues", "a fetch in web/*"}},
		{errand.Lane{Queue: "other"}, []string{"b worker"}},
		{errand.Lane{Queue: "other", Kind: "fetch"}, nil},
		{errand.Lane{Queue: "we"}, nil},
	} {
		d := &laneData{Lane: c.lane}
		d.addWorkers(workers)
		var got []string
		for _, w := range d.Workers {
			got = append(got, w.Instance+" "+w.What)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.lane, got, c.want)
		}
	}
	workers[0].Limits = slices.Repeat(workers[0].Limits, 100)
	d := &laneData{Lane: errand.Lane{Queue: "mail"}}
	if d.addWorkers(workers); len(d.Workers) != lanesLimit {
		t.Errorf("%d rows", len(d.Workers))
	}
}
