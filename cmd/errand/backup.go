package main

import (
	"os"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func backupCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup FILE COPY",
		Short: "Copy a queue, while others go on using it",
		Long: `Write a copy of a queue to a new file, which must not be there, while others go on
using the queue. The copy shows one moment. A plain copy of the file would not, and
would miss what is in the log.

If COPY-wal, COPY-shm or COPY-journal of another database is there, it is refused too.`,
		Example: "  errand backup jobs.db copy.db",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return q.Backup(cmd.Context(), args[1])
			})
			if err != nil {
				return err
			}
			info, err := os.Stat(args[1])
			if err != nil {
				return err
			}
			return t.show(struct {
				File  string `json:"file"`
				Bytes int64  `json:"bytes"`
			}{args[1], info.Size()}, func(p *printer) { p.printf("%s: %d bytes\n", safe(args[1]), info.Size()) })
		},
	}
	return cmd
}
