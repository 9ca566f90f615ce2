package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
handlers, which only the process of a worker knows, and not whether the file can be written.

With --textfile they are written to a file for the textfile collector of node_exporter,
in one step: others see the old text or the new one. If that fails, the old text stays. The
textfiles of several queues need a label each, as --label file=jobs.

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
	cmd.Flags().StringToStringVar(&o.Labels, "label", nil, "add this label to each number, as file=jobs")
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
	fmt.Fprintf(text, "# %s\n", strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", " "), "?"))
	return err
}

// leftFor is the age from which a file is what a process has left that was killed.
const leftFor = 5 * time.Minute

// replaceFile replaces the content of a textfile in one step, also if the power fails. If it
// returns an error, the file is unchanged. It follows links, and refuses a file that is no
// textfile of errand.
func replaceFile(path string, content []byte) error {
	mode := os.FileMode(0o644) // others read it
	switch at, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = at
		if mode, err = textfileMode(at); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	default:
		if _, err := os.Lstat(path); err == nil {
			return errors.New("it is a link to nothing")
		}
	}
	dir, name := filepath.Dir(path), "."+filepath.Base(path)
	if left, err := filepath.Glob(filepath.Join(dir, name+".*.tmp")); err == nil {
		for _, l := range left {
			if info, err := os.Lstat(l); err == nil && time.Since(info.ModTime()) > leftFor {
				_ = os.Remove(l) // it is of no harm
			}
		}
	}
	f, err := os.CreateTemp(dir, name+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// textfileMode returns the mode of a textfile, or an error if the file is none.
func textfileMode(path string) (os.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	const begin = "# HELP errand_"
	head := make([]byte, len(begin))
	if n, err := io.ReadFull(f, head); n > 0 && string(head[:n]) != begin {
		return 0, errors.New("it is there, and is not a textfile of errand")
	} else if err != nil && n > 0 {
		return 0, err
	}
	return info.Mode().Perm(), nil
}
