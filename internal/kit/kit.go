// Package kit is what examples and tests of the public API share.
package kit

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/errandq/errand"
)

// TempQueue opens a queue in a folder of its own, without a log, and returns what closes it and
// removes the folder. Each panics on an error, as examples have no test to fail.
func TempQueue(o *errand.Options) (q *errand.Queue, remove func()) {
	var options errand.Options
	if o != nil {
		options = *o
	}
	options.Logger = slog.New(slog.DiscardHandler)
	dir, err := os.MkdirTemp("", "errand-example-")
	if err != nil {
		panic(err)
	}
	q, err = errand.Open(context.Background(), filepath.Join(dir, "jobs.db"), &options)
	if err != nil {
		panic(err)
	}
	return q, func() {
		if err := q.Close(); err != nil {
			panic(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			panic(err)
		}
	}
}
