package main

import (
	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func compactCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "compact FILE",
		Short: "Write the file anew without its free space",
		Long: `Give the free space in the file of a queue back to the file system. The file is written
anew, for which it needs twice the room that is in use. Others may use the queue
meanwhile, but their writes have to wait: do it when little is going on.`,
		Example: "  errand compact jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var freed int64
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				freed, err = q.Compact(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			return t.show(struct {
				File  string `json:"file"`
				Bytes int64  `json:"bytes"`
			}{args[0], freed}, func(p *printer) { p.printf("%s: %d bytes given back\n", safe(args[0]), freed) })
		},
	}
}
