package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// workload is something that systems are measured at. Its name is that of a
// group, or "group:variant".
type workload struct {
	name  string
	about string
	// fits tells for which systems it makes sense.
	fits func(e entry) bool
	// run measures once, in a process of its own.
	run func(ctx context.Context, t *trial) error
}

func (w workload) group() string {
	group, _, _ := strings.Cut(w.name, ":")
	return group
}

func everyone(entry) bool { return true }

// queues are all but floor, which cannot do jobs.
func queues(e entry) bool { return e.name != "floor" }

func ownAndRaw(e entry) bool { return e.name == "errand" || e.name == "raw" }

func own(e entry) bool { return e.name == "errand" }

var workloads = []workload{
	{"enqueue-1", "one caller, each job one commit", everyone, enqueue{callers: 1, batch: 1, n: 5_000}.run},
	{"enqueue-64", "64 callers, each waits until its job is durable", everyone, enqueue{callers: 64, batch: 1, bareBatch: 64, n: 20_000}.run},
	{"enqueue-batch", "1,000 jobs a call", everyone, enqueue{callers: 1, batch: 1000, n: 100_000}.run},
	{"enqueue-tx", "one job and one row of the application in a transaction", queues, enqueueTx{n: 5_000}.run},
	{"drain:20k", "20,000 no-op jobs, 16 workers, deleted when done", queues, drain{n: 20_000}.run},
	{"drain:200k", "200,000 no-op jobs, 16 workers, deleted when done", ownAndRaw, drain{n: 200_000}.run},
	{"drain-kept", "20,000 no-op jobs, 16 workers, kept when done as by default (raw deletes)", queues, drain{n: 20_000, keep: true}.run},
	{"failing", "20,000 jobs fail twice, are retried at once, and succeed", ownAndRaw, drain{n: 20_000, fails: 2}.run},
	{"dead", "20,000 jobs exhaust their retries, then all are redriven", ownAndRaw, dead{n: 20_000}.run},
	{"mixed", "8 producers wait for each job while 16 workers drain", queues, mixed{producers: 8, n: 20_000}.run},
	{"latency", "from enqueue to handler on an idle worker, every 15 ms", func(e entry) bool { return !e.bare }, latency{n: 400}.run},
}

// chosen gives the workloads of a comma-separated list of names and groups;
// all for "".
func chosen(list string) ([]workload, error) {
	if list == "" {
		return workloads, nil
	}
	var out []workload
	for name := range strings.SplitSeq(list, ",") {
		found := false
		for _, w := range workloads {
			if w.name != name && w.group() != name {
				continue
			}
			found = true
			if !slices.ContainsFunc(out, func(o workload) bool { return o.name == w.name }) {
				out = append(out, w)
			}
		}
		if !found {
			var names []string
			for _, w := range workloads {
				names = append(names, w.name)
			}
			return nil, fmt.Errorf("bench: workload %q: must be one of %s", name, strings.Join(names, ", "))
		}
	}
	return out, nil
}

func findWorkload(name string) (workload, error) {
	i := slices.IndexFunc(workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		return workload{}, fmt.Errorf("bench: no workload %q", name)
	}
	return workloads[i], nil
}
