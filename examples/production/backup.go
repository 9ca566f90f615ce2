package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/errandq/errand"
)

// Backup is the job that copies the queue once a day.
type Backup struct{}

// Kind names the type of job.
func (Backup) Kind() string { return "backup" }

const keepBackups = 7

// backup is the handler. The copies are named after their day, so a second run
// finds that there is nothing to do.
func backup(q *errand.Queue, dir string) func(context.Context, *errand.Job[Backup]) error {
	return func(ctx context.Context, job *errand.Job[Backup]) error {
		day := job.Headers["errand-tick"][:len("2006-01-02")]
		err := q.Backup(ctx, filepath.Join(dir, "backup-"+day+".db"))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		copies, err := filepath.Glob(filepath.Join(dir, "backup-*.db"))
		if err != nil {
			return err
		}
		slices.Sort(copies)
		for _, old := range copies[:max(len(copies)-keepBackups, 0)] {
			err = errors.Join(err, os.Remove(old))
		}
		return err
	}
}

// scheduleBackups declares the schedule, as each start does.
func scheduleBackups(ctx context.Context, q *errand.Queue) error {
	return q.Schedule(ctx, errand.Schedule{Name: "backup", Spec: "30 3 * * *", Args: Backup{}})
}
