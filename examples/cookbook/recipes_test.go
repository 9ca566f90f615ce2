package cookbook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/errandq/errand"
)

// Readings of a device that is seldom online: a bounded queue, the newest first, and none
// that is older than a day.
func Example_bulkUpload() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()
	check(q.Configure(ctx, errand.Lane{Queue: "readings"}, errand.Settings{
		MaxBytes:    new(int64(50 << 20)),
		WhenFull:    new(errand.EvictOldest),
		Order:       new(errand.Newest),
		StartWithin: new(24 * time.Hour),
	}))

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"readings"}})
	errand.HandleMany(w, func(_ context.Context, jobs []*errand.Job[Reading]) error {
		first, last := jobs[0].Args, jobs[len(jobs)-1].Args
		fmt.Printf("%d readings in one request, from %v to %v\n", len(jobs), first.Value, last.Value)
		stop()
		return nil
	}, errand.BatchOptions{Max: 500, Min: 100, Wait: time.Minute})
	jobs := make([]errand.NewJob, 100)
	for i := range jobs {
		jobs[i] = errand.NewJob{Args: Reading{"boiler", float64(i)}, Options: &errand.JobOptions{Queue: "readings"}}
	}
	must(q.EnqueueMany(ctx, jobs))
	check(w.Run(ctx))
	// Output:
	// 100 readings in one request, from 99 to 0
}

// Import is a file that a tenant has uploaded.
type Import struct{ Tenant, File string }

// Kind names the type of job.
func (Import) Kind() string { return "import" }

// JobDefaults has the imports of a tenant in its group, with its tag.
func (i Import) JobDefaults() errand.JobOptions {
	return errand.JobOptions{Queue: "imports", Group: i.Tenant, Tags: []string{"tenant:" + i.Tenant}}
}

// One tenant has two imports at a time, whatever the others do. One that was asked for by
// hand goes before those of the night, but does not keep them waiting for ever.
func Example_tenants() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{Queues: map[string]errand.QueueOptions{
		"imports": {GroupThrottle: errand.GroupThrottle{Starts: 600, Per: time.Minute, Burst: 10}},
	}})
	defer remove()
	check(q.Configure(ctx, errand.Lane{Queue: "imports"}, errand.Settings{
		GroupLimit: new(2),
		Order:      new(errand.Turns),
		Aging:      new(10 * time.Minute),
		MaxJobs:    new(100_000),
	}))
	request := func(tenant, file string, priority int) {
		must(q.Enqueue(ctx, Import{tenant, file}, &errand.JobOptions{Priority: priority}))
	}
	for i := range 4 {
		request("ada", fmt.Sprintf("%d.csv", i), 0)
	}
	request("bob", "contacts.csv", 1)
	for _, job := range must(q.Jobs(ctx, errand.JobFilter{Queue: "imports", States: []errand.State{errand.Ready}}, nil)).Jobs {
		fmt.Println(job.Group, string(must(q.Job(ctx, job.ID)).Args))
	}
	of := must(q.Jobs(ctx, errand.JobFilter{Tag: "tenant:ada"}, nil)).Jobs
	fmt.Println("of ada:", len(of), "- blocked:", must(q.Jobs(ctx, errand.JobFilter{Queue: "imports", Group: "ada", States: []errand.State{errand.Blocked}}, nil)).Jobs[0].Group)

	w := errand.NewWorker(q, &errand.WorkerOptions{Queues: []string{"imports"}, Concurrency: 1})
	left := 5
	errand.Handle(w, func(_ context.Context, job *errand.Job[Import]) error {
		fmt.Println("imports", job.Args.Tenant, job.Args.File)
		if left--; left == 0 {
			go func() { check(w.Shutdown(ctx)) }()
		}
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// bob {"Tenant":"bob","File":"contacts.csv"}
	// ada {"Tenant":"ada","File":"0.csv"}
	// ada {"Tenant":"ada","File":"1.csv"}
	// of ada: 4 - blocked: ada
	// imports bob contacts.csv
	// imports ada 0.csv
	// imports ada 1.csv
	// imports ada 2.csv
	// imports ada 3.csv
}
