package main

import (
	"context"
	"fmt"

	"github.com/errandq/errand"
)

func init() {
	begin = func(ctx context.Context, job *errand.Job[errand.RawArgs]) error {
		job.Progress(1, 2, "half")
		return job.Checkpoint(ctx, "half")
	}
	resume = func(job *errand.Job[errand.RawArgs]) error {
		var at string
		found, err := job.Resume(&at)
		if found && at != "half" {
			return fmt.Errorf("the checkpoint is %q", at)
		}
		return err
	}
	finish = func(job *errand.Job[errand.RawArgs]) error { return job.SetResult("of " + job.Args.OfKind) }
}
