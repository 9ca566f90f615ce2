package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
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
	// stock is what is in the file before, if not nil.
	stock *stock
	// servers is set if it needs no file, and is for systems on a server too.
	servers bool
	// once is set if the first round is enough.
	once bool
	// oneCore is set if it is measured on one core too, see [cores].
	oneCore bool
	place   place
}

func (w workload) group() string {
	group, _, _ := strings.Cut(w.name, ":")
	return group
}

// enqueuers are all but raw-decode, which enqueues as raw does.
func enqueuers(e entry) bool { return e.name != "raw-decode" }

// queues are all but floor, which cannot do jobs.
func queues(e entry) bool { return e.name != "floor" }

// txEnqueuers are those that enqueue in a transaction of the application.
func txEnqueuers(e entry) bool { return queues(e) && enqueuers(e) }

// keepers are those that can keep jobs that are done, and raw beside them.
func keepers(e entry) bool { return queues(e) && e.name != "goqite" }

func ownAndRaw(e entry) bool { return e.name == "errand" || e.name == "raw" || e.name == "raw-decode" }

// withWorkers are those that have workers to hand a job to.
func withWorkers(e entry) bool { return !e.bare }

// finishers are the queues that can end a job in a transaction of the application:
// backlite and DBOS cannot.
func finishers(e entry) bool {
	return withWorkers(e) && e.name != "backlite" && !strings.HasPrefix(e.name, "dbos")
}

func own(e entry) bool { return e.name == "errand" }

// ownAndServer is errand on both of its stores.
func ownAndServer(e entry) bool { return own(e) || e.name == "postgres" }

// acrossProcesses are those whose workers notice what another process has
// enqueued: backlite's do not.
func acrossProcesses(e entry) bool { return e.name == "errand" || e.name == "river" }

var (
	backlog     = beside{stock: stock{scheduled: 1_000_000, others: 200_000, due: 100_000}}
	noBacklog   = beside{stock: stock{due: 100_000}}
	besideMany  = beside{stock: stock{scheduled: 1_000_000}, fresh: 20_000}
	heldBacklog = beside{stock: stock{held: 1_000_000, due: 100_000}, queues: allKinds}
	noneHeld    = beside{stock: stock{due: 100_000}, queues: allKinds}
	behindHead  = beside{stock: stock{behind: 100_000, ready: 1_000_000}}
	noneBehind  = beside{stock: stock{ready: 1_000_000}}
	idleGroups  = beside{stock: stock{scheduled: 1_000_000, grouped: true, due: 100_000}}
	noGroups    = beside{stock: stock{scheduled: 1_000_000, due: 100_000}}
	readyStock  = stock{ready: 200_000}
	idleQueues  = stock{queues: 10_000}
	oneProcess  = processes{stock: readyStock, k: 1}
	fourProcess = processes{stock: readyStock, k: 4}
)

// allKinds has workers handle all kinds, in errand's default queue.
var allKinds = []string{"default"}

// heldKind is the kind that is held where one is.
const heldKind = 1

var workloads = append(base, cores()...)

var base = []workload{
	{name: "enqueue-1", fits: enqueuers, servers: true, run: enqueue{callers: 1, batch: 1, n: 5_000}.run,
		about: "one caller, each job one commit"},
	{name: "enqueue-64", fits: enqueuers, servers: true, run: enqueue{callers: 64, batch: 1, bareBatch: 64, n: 12_800}.run,
		about: "64 callers, each waits until its job is durable"},
	{name: "enqueue-64-keys", fits: ownAndServer, servers: true, run: enqueue{callers: 64, batch: 1, n: 12_800, marks: []mark{withKey}}.run,
		about: "enqueue-64, each job with a unique key of its own"},
	{name: "enqueue-64-evict", fits: own, run: enqueue{callers: 64, batch: 1, n: 12_800, full: 20_000}.run,
		about: "enqueue-64 into a queue of 20,000 jobs that is full: each job evicts the oldest"},
	{name: "enqueue-batch", fits: enqueuers, servers: true, run: enqueue{callers: 1, batch: 1000, n: 40_000}.run,
		about: "1,000 jobs a call"},
	{name: "enqueue-tx", fits: txEnqueuers, run: enqueueTx{n: 5_000}.run,
		about: "one job and one row of the application in a transaction"},
	{name: "drain:20k", fits: queues, servers: true, run: drain{n: 20_000}.run, oneCore: true,
		about: "20,000 no-op jobs, 16 workers, deleted when done"},
	{name: "drain:200k", fits: ownAndRaw, run: drain{n: 200_000}.run,
		about: "200,000 no-op jobs, 16 workers, deleted when done"},
	{name: "lanes:1000", fits: own, run: drain{n: 20_000, queues: 20}.run, oneCore: true,
		about: "drain:20k from 20 queues with 50 kinds each"},
	{name: "drain-keys", fits: ownAndServer, servers: true, run: drain{n: 20_000, keys: true}.run,
		about: "drain:20k, each job with a unique key of its own"},
	{name: "drain-groups:1000", fits: ownAndServer, servers: true, run: drain{n: 20_000, perGroup: 20}.run,
		about: "drain:20k from 1,000 groups of 20 jobs, of each of which one runs at a time"},
	{name: "drain-groups:20k", fits: ownAndServer, servers: true, run: drain{n: 20_000, perGroup: 1}.run,
		about: "drain:20k from 20,000 groups of one job"},
	{name: "drain-groups:1", fits: ownAndServer, servers: true, run: drain{n: 2_000, perGroup: oneGroup}.run,
		about: "2,000 no-op jobs of one group, which run one after the other"},
	{name: "batch:single", fits: own, run: batch{n: 20_000, perCall: 1, request: time.Millisecond}.run,
		about: "20,000 jobs, 16 workers, a request of 1 ms for each"},
	{name: "batch:500", fits: own, run: batch{n: 20_000, perCall: 500, request: time.Millisecond}.run,
		about: "the same with HandleMany, a request of 1 ms for up to 500"},
	{name: "batch:no-op", fits: own, run: batch{n: 20_000, perCall: 500}.run,
		about: "drain:20k with HandleMany, up to 500 jobs a call: what is saved without a request"},
	{name: "finish", fits: finishers, run: finish{n: 20_000, perCall: 1}.run,
		about: "20,000 jobs, 16 workers, each ends in a transaction with a row of the application"},
	{name: "finish-100", fits: finishers, run: finish{n: 20_000, perCall: 100}.run,
		about: "the same with HandleMany, up to 100 jobs and their rows a transaction (peers: one)"},
	{name: "progress:with", fits: own, run: progress{n: 20_000, steps: 20, step: 100 * time.Microsecond, say: true}.run,
		about: "20,000 jobs of 2 ms, 16 workers, each says 20 times how far it has got"},
	{name: "progress:without", fits: own, run: progress{n: 20_000, steps: 20, step: 100 * time.Microsecond}.run,
		about: "20,000 jobs of 2 ms, 16 workers, and none says anything"},
	{name: "drain-kept", fits: keepers, servers: true, run: drain{n: 20_000, keep: true}.run, oneCore: true,
		about: "20,000 no-op jobs, 16 workers, kept when done as by default (raw deletes)"},
	{name: "failing", fits: ownAndRaw, run: drain{n: 20_000, fails: 2}.run, oneCore: true,
		about: "20,000 jobs fail twice, are retried at once, and succeed"},
	{name: "dead", fits: ownAndRaw, run: dead{n: 20_000}.run,
		about: "20,000 jobs exhaust their retries, then all are redriven"},
	{name: "mixed", fits: queues, run: mixed{producers: 8, n: 10_000}.run, oneCore: true,
		about: "8 producers wait for each job while 16 workers drain"},
	{name: "latency", fits: withWorkers, run: latency{n: 300}.run, oneCore: true,
		about: "from enqueue to handler on an idle worker, every 15 ms"},
	{name: "cross", fits: acrossProcesses, run: cross{n: 300}.run,
		about: "from enqueue to handler in another process, every 15 ms"},
	{name: "deep:with", fits: own, run: backlog.run, stock: &backlog.stock,
		about: "100,000 jobs due at once, with 1,000,000 scheduled and 200,000 ready that nobody handles"},
	{name: "deep:without", fits: own, run: noBacklog.run, stock: &noBacklog.stock,
		about: "100,000 jobs due at once, and no others"},
	{name: "held:with", fits: own, run: heldBacklog.run, stock: &heldBacklog.stock,
		about: "100,000 jobs due at once, with 1,000,000 ready ones of a kind that is held"},
	{name: "held:without", fits: own, run: noneHeld.run, stock: &noneHeld.stock,
		about: "100,000 jobs due at once, and no others; as many kinds"},
	{name: "behind:with", fits: own, run: behindHead.run, stock: &behindHead.stock,
		about: "1,000,000 jobs, with 100,000 of their kind in a group whose head is due in a day"},
	{name: "behind:without", fits: own, run: noneBehind.run, stock: &noneBehind.stock,
		about: "1,000,000 jobs, and no others"},
	{name: "groups:with", fits: own, run: idleGroups.run, stock: &idleGroups.stock,
		about: "100,000 jobs due at once, with 1,000,000 scheduled in a group each"},
	{name: "groups:without", fits: own, run: noGroups.run, stock: &noGroups.stock,
		about: "100,000 jobs due at once, with 1,000,000 scheduled in no group"},
	{name: "down", fits: own, run: down{n: 50_000, during: 10 * time.Second}.run, once: true,
		about: "the first 10 s of a worker with 50,000 jobs whose other side refuses connections"},
	{name: "large:16k", fits: queues, run: large{n: 2_000, size: 16 << 10}.run,
		about: "payloads of 16 KiB, enqueued and done"},
	{name: "large:256k", fits: queues, run: large{n: 200, size: 256 << 10}.run,
		about: "payloads of 256 KiB, enqueued and done"},
	{name: "processes:1", fits: own, run: oneProcess.run, stock: &oneProcess.stock,
		about: "a process drains 200,000 jobs"},
	{name: "processes:4", fits: own, run: fourProcess.run, stock: &fourProcess.stock,
		about: "4 processes drain 200,000 jobs from one file"},
	{name: "wear", fits: queues, run: wear{n: 20_000}.run,
		about: "20,000 jobs enqueued by 1,000 and done, then a checkpoint"},
	{name: "memory", fits: own, run: besideMany.run, stock: &besideMany.stock,
		about: "20,000 no-op jobs beside 1,000,000 scheduled"},
	{name: "open", fits: own, run: opening{}.run, stock: &besideMany.stock,
		about: "open a file with 1,000,000 jobs"},
	{name: "idle", fits: own, run: idle{settle: time.Minute, during: time.Minute}.run, stock: &besideMany.stock, once: true,
		about: "a minute of nothing to do beside 1,000,000 scheduled jobs, after another minute"},
	{name: "idle:held", fits: own, run: idle{settle: time.Minute, during: time.Minute, queues: allKinds}.run, stock: &heldBacklog.stock, once: true,
		about: "the same beside 1,000,000 ready jobs of a kind that is held"},
	{name: "idle:groups", fits: own, run: idle{settle: time.Minute, during: time.Minute}.run, stock: &idleGroups.stock, once: true,
		about: "the same beside 1,000,000 scheduled jobs in a group each"},
	{name: "idle:prefix", fits: own, run: idle{settle: time.Minute, during: time.Minute, queues: []string{"webhook/*"}}.run, stock: &idleQueues, once: true,
		about: "the same of a worker for a prefix with 10,000 idle queues"},
}

// chosen returns the workloads of a comma-separated list of names and groups;
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
