package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

func jobReleaseKeyCommand(t *tool) *cobra.Command {
	var kind, byArgs string
	cmd := &cobra.Command{
		Use:   "release-key FILE [KEY]",
		Short: "Free a unique key that a job holds",
		Long: `Free a unique key of a kind: at once if the job that holds it has ended, else when it
ends. Give the KEY as errand jobs show, Enqueue and its errors say it, also that which begins
with sha256:. For a KEY with sha256: --args will do, with the args that it was made of; if fields
of these have the tag unique, with those fields alone. The exit status is 1 if no job holds it.`,
		Example: `  errand jobs release-key jobs.db --kind send "order 17"`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 2) == (byArgs != "") {
				return errors.New("release-key needs a KEY or --args, and not both")
			}
			var holder queue.ID
			err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
				if byArgs != "" {
					holder, err = q.ReleaseUniqueArgs(cmd.Context(), queue.RawArgs{OfKind: kind, JSON: json.RawMessage(byArgs)})
				} else {
					holder, err = q.ReleaseUnique(cmd.Context(), kind, args[1])
				}
				return err
			})
			if errors.Is(err, queue.ErrNotFound) {
				return fmt.Errorf("job that holds this key of kind %s: %w", kind, err)
			}
			if err != nil {
				return err
			}
			return t.show(struct {
				Kind string   `json:"kind"`
				Free bool     `json:"free"`
				ID   queue.ID `json:"id,omitzero"` // that has the key until it ends
			}{kind, holder.IsZero(), holder}, func(p *printer) {
				if holder.IsZero() {
					p.printf("the key is free\n")
					return
				}
				p.printf("the key is free when job %v has ended\n", holder)
			})
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "", "the kind of the job (required)")
	cmd.Flags().StringVar(&byArgs, "args", "", "JSON of the args that the key was made of, in place of KEY")
	require(cmd, "kind")
	completeArgs(cmd, nil)
	return cmd
}
