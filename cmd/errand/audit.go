package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	queue "github.com/errandq/errand"
)

// byHand are the verbs that leave an entry of who did what. Those that programs call as producers, that
// work, or that only look, leave none.
var byHand = []string{
	"jobs cancel", "jobs edit", "jobs release-key", "jobs reschedule", "jobs rm", "jobs run", "queues hold", "queues pause", "queues release",
	"queues resume", "queues set", "groups skip", "dead edit", "dead import", "dead purge", "dead redrive", "bulk cancel", "bulk pause", "bulk resume",
	"schedules add", "schedules pause", "schedules resume", "schedules rm", "schedules run", "webhooks add", "webhooks disable", "webhooks enable",
	"webhooks replay", "webhooks rm", "webhooks rotate-secret", "webhooks update", "topics add", "topics rm", "topics update",
	"subscriptions add", "subscriptions pause", "subscriptions redrive", "subscriptions replay", "subscriptions resume", "subscriptions rm", "subscriptions update",
	"devices accept", "devices add", "devices restore", "devices revoke", "relay resend",
}

// shownFlags are those whose values an entry has, besides all settings. Others may be args, secrets, or texts of errors.
var shownFlags = strings.Fields("queue kind group state reason cause tag parent origin rate for until since priority delay at all older-than")

// audited sets the context of a verb that is in byHand, so that the store keeps an entry with who ran it and on what.
func audited(cmd *cobra.Command, args []string) error {
	do := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
	if !slices.Contains(byHand, do) || len(args) == 0 {
		return nil
	}
	e := queue.AuditEntry{Do: do, By: userName()}
	what := slices.Clone(args[1:])
	if do == "webhooks add" || do == "jobs release-key" {
		what = nil // a URL, which may have a secret, or a key, by which args may be guessed
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == "by":
			e.By = f.Value.String()
		case f.Name == "note":
			e.Note = f.Value.String()
		case f.Name == "json" || f.Name == "yes":
		case do == "queues set" || slices.Contains(shownFlags, f.Name) && do != "webhooks disable": // whose reason is any text
			what = append(what, "--"+f.Name+" "+f.Value.String())
		default:
			what = append(what, "--"+f.Name)
		}
	})
	e.What = strings.Join(what, " ")
	ctx, err := queue.WithAudit(cmd.Context(), e)
	if err != nil {
		return err
	}
	cmd.SetContext(ctx)
	return nil
}

func auditCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "audit FILE",
		Short:   "List what was done by hand",
		Long:    "List what was done by hand, on dashboards and by this command: the last 100 entries, the newest first.",
		Example: "  errand audit jobs.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []queue.AuditEntry{}
			err := t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				got, err := q.Audit(cmd.Context())
				all = append(all[:0], got...)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(map[string]any{"audit": all}, func(p *printer) {
				if len(all) == 0 {
					p.printf("nothing was done by hand\n")
					return
				}
				list := table{head: []string{"AT", "BY", "DO", "WHAT", " JOBS", "NOTE"}}
				for _, e := range all {
					list.add(text(when(e.At)), text(orDash(e.By)), text(e.Do), text(orDash(e.What)), number(e.Jobs), text(orDash(e.Note)))
				}
				list.print(p, t.out)
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}
