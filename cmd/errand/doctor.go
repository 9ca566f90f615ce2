package main

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/storage/sqlite"
)

func doctorCommand(t *tool) *cobra.Command {
	var full bool
	cmd := &cobra.Command{
		Use:   "doctor FILE",
		Short: "Examine a database, and say what to do about what is wrong",
		Long: `Examine a database and the files beside it: file system, free space, modes,
integrity, schema, counts, processes that are gone, log and clock. Nothing is
changed, no file is created, and others may have the database open. With --full
every row is checked too.

The exit status is 1 if there are warnings or errors, each with its remedy.`,
		Example: "  errand doctor jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := sqlite.Examine(cmd.Context(), args[0], full, time.Now())
			if err != nil {
				return err
			}
			err = t.show(struct {
				File     string           `json:"file"`
				Findings []sqlite.Finding `json:"findings"`
			}{args[0], found}, func(p *printer) {
				w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
				lines := printer{w: w}
				for _, f := range found {
					remedy := ""
					if f.Remedy != "" {
						remedy = fmt.Sprintf("\n\t\t-> %s", safe(f.Remedy))
					}
					lines.printf("%s\t%s\t%s%s\n", f.Severity, f.Check, f.Text, remedy)
				}
				p.err = errors.Join(p.err, lines.err, w.Flush())
			})
			if err == nil && slices.ContainsFunc(found, sqlite.Finding.Bad) {
				err = errFindings
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "check the invariants of all rows, and compare indexes with tables")
	return cmd
}
