package errand_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/errandq/errand"
)

// Position is where a device is.
type Position struct {
	Device string
	At     [2]int
}

// Kind names the type of job.
func (Position) Kind() string { return "position" }

// With Replace the job that waits is sent with the latest args. What comes while a job
// runs waits behind it, so that the last position arrives last, and always.
func ExampleOnConflict_latest() {
	ctx, stop := context.WithCancel(context.Background())
	q, remove := tempQueue(nil)
	defer remove()
	move := func(at [2]int) {
		e := must(q.Enqueue(ctx, Position{"van 7", at}, &errand.JobOptions{Unique: &errand.Unique{
			Key: "van 7", OnConflict: errand.OnConflict{Mode: errand.Replace},
		}}))
		fmt.Println("moved to", at, "- replaced:", e.Replaced)
	}
	move([2]int{1, 1})
	move([2]int{2, 1})

	w := errand.NewWorker(q, nil)
	errand.Handle(w, func(_ context.Context, job *errand.Job[Position]) error {
		if job.Args.At == [2]int{2, 1} {
			move([2]int{3, 1}) // while the job runs
			move([2]int{4, 1})
		} else {
			stop()
		}
		fmt.Println("sent", job.Args.At)
		return nil
	})
	check(w.Run(ctx))
	// Output:
	// moved to [1 1] - replaced: false
	// moved to [2 1] - replaced: true
	// moved to [3 1] - replaced: false
	// moved to [4 1] - replaced: true
	// sent [2 1]
	// sent [4 1]
}

// Edits are those of a document that are not sent yet.
type Edits struct {
	Document int
	Log      []string
}

// Kind names the type of job.
func (Edits) Kind() string { return "edits" }

// With After and Merge edits are collected in the job that waits, and sent in order. An
// attempt that was begun sends the same edits when it is tried again.
func ExampleOnConflict_editLog() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	o := &errand.JobOptions{Unique: &errand.Unique{
		Key: "document 17",
		OnConflict: errand.OnConflict{
			Mode: errand.After,
			Merge: func(old, new errand.Args) (errand.Args, error) {
				o, n := old.(Edits), new.(Edits)
				return Edits{n.Document, slices.Concat(o.Log, n.Log)}, nil
			},
		},
	}}
	for _, edit := range []string{"title", "first line", "second line"} {
		must(q.Enqueue(ctx, Edits{17, []string{edit}}, o))
	}
	for _, job := range must(q.Jobs(ctx, errand.JobFilter{}, nil)).Jobs {
		fmt.Printf("%s: %s\n", job.State, must(q.Job(ctx, job.ID)).Args)
	}
	// Output:
	// ready: {"Document":17,"Log":["title","first line","second line"]}
}

// With Debounce a job waits until nothing has changed for a while, but not for ever.
func ExampleOnConflict_debounce() {
	ctx := context.Background()
	q, remove := tempQueue(nil)
	defer remove()
	save := func() errand.Enqueued {
		return must(q.Enqueue(ctx, Upload{17}, &errand.JobOptions{Unique: &errand.Unique{
			Key:        "document 17",
			OnConflict: errand.OnConflict{Mode: errand.Debounce, Quiet: 5 * time.Second, MaxWait: time.Minute},
		}}))
	}
	first := save()
	fmt.Println("the same job:", save().ID == first.ID, "-", must(q.Job(ctx, first.ID)).State)
	// Output:
	// the same job: true - scheduled
}

// Once the collected edits do not fit into one job any more, those that follow go into a second.
func ExampleMergeError() {
	ctx := context.Background()
	q, remove := tempQueue(&errand.Options{MaxArgs: 100})
	defer remove()
	collected := func(part int) *errand.JobOptions {
		return &errand.JobOptions{Unique: &errand.Unique{
			Key: fmt.Sprint("document 17, part ", part),
			OnConflict: errand.OnConflict{Mode: errand.After, Merge: func(old, new errand.Args) (errand.Args, error) {
				o, n := old.(Edits), new.(Edits)
				return Edits{n.Document, slices.Concat(o.Log, n.Log)}, nil
			}},
		}}
	}
	save := func(edit Edits) error {
		for part := 1; ; part++ {
			_, err := q.Enqueue(ctx, edit, collected(part))
			if full := (*errand.MergeError)(nil); !errors.As(err, &full) {
				return err
			}
		}
	}
	for n := range 5 {
		check(save(Edits{17, []string{fmt.Sprint("a line that is long, number ", n)}}))
	}
	for _, job := range must(q.Jobs(ctx, errand.JobFilter{}, nil)).Jobs {
		fmt.Printf("%s: %s\n", job.Unique, must(q.Job(ctx, job.ID)).Args)
	}
	// Output:
	// document 17, part 1: {"Document":17,"Log":["a line that is long, number 0","a line that is long, number 1"]}
	// document 17, part 2: {"Document":17,"Log":["a line that is long, number 2","a line that is long, number 3"]}
	// document 17, part 3: {"Document":17,"Log":["a line that is long, number 4"]}
}
