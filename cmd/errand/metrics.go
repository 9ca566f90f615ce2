package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/metrics"
)

// metricsFor is how long a file may take to be opened and read.
const metricsFor = 2 * time.Second

func metricsCommand(t *tool) *cobra.Command {
	var o metrics.Options
	var textfile string
	cmd := &cobra.Command{
		Use:   "metrics FILE",
		Short: "Write the numbers of a queue for Prometheus",
		Long: `Write what the file knows in the text format of Prometheus: no attempts and no times of
handlers, which only the process of a worker knows.

With --textfile they are written to a file for the textfile collector of node_exporter,
in one step: others see the old text or the new one. If that fails, the old text stays.

If the queue cannot be read within 2 s, errand_up 0 is written, and the status is 2.`,
		Example: `  errand metrics jobs.db
  errand metrics jobs.db --textfile errand.prom`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.json {
				return errors.New("--json: metrics are text")
			}
			o.File = args[0]
			var text bytes.Buffer
			err := t.metrics(cmd.Context(), &text, &o)
			if text.Len() == 0 { // an option is refused
				return err
			}
			switch {
			case textfile != "":
				err = errors.Join(err, ofFile(textfile, replaceFile(textfile, text.Bytes())))
			default:
				_, failed := t.out.Write(text.Bytes())
				err = errors.Join(err, failed)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&textfile, "textfile", "", "write to this file, in one step; node_exporter reads names that end in .prom")
	cmd.Flags().StringSliceVar(&o.Merge, "merge", nil, `sum the queues of this prefix, as "webhook/*"`)
	cmd.Flags().IntVar(&o.Lanes, "lanes", 0, "sum the queues and kinds after this many (200 if 0)")
	completeArgs(cmd, nil)
	return cmd
}

// metrics writes the numbers of a file, or that it cannot be read, and returns why.
func (t *tool) metrics(ctx context.Context, text *bytes.Buffer, o *metrics.Options) error {
	ctx, stop := context.WithTimeout(ctx, metricsFor)
	defer stop()
	err := t.reading(ctx, o.File, func(q *queue.Queue) error {
		text.Reset()
		return metrics.Write(ctx, text, q, o)
	})
	if text.Len() > 0 {
		return err
	}
	var refused *queue.FieldError
	if down := metrics.Write(ctx, text, nil, o); errors.As(down, &refused) {
		return down
	}
	return err
}

// replaceFile gives a file another content in one step. After an error it is as before.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close()) // others read it
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
