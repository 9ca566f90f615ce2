package main

import (
	"github.com/spf13/cobra"

	"github.com/errandq/errand/topic"
)

func subscriptionPauseCommand(t *tool) *cobra.Command {
	return subscriptionVerb(t, &cobra.Command{
		Use:   "pause FILE ID",
		Short: "Keep the deliveries of a subscription back",
		Long: `Keep the deliveries of a subscription to an endpoint back until errand subscriptions
resume. The subscription still gets messages, whose deliveries wait; other ones to the
endpoint go on. For one to a kind see errand queues hold.`,
		Example: "  errand subscriptions pause shop.db paid-local",
	}, func(cmd *cobra.Command, topics *topic.Topics, id string) (string, error) {
		return "paused", topics.Pause(cmd.Context(), id)
	})
}

func subscriptionResumeCommand(t *tool) *cobra.Command {
	return subscriptionVerb(t, &cobra.Command{
		Use:     "resume FILE ID",
		Short:   "End the pause of a subscription",
		Long:    "End the pause of a subscription: what has waited is sent at once.",
		Example: "  errand subscriptions resume shop.db paid-local",
	}, func(cmd *cobra.Command, topics *topic.Topics, id string) (string, error) {
		was, err := topics.Resume(cmd.Context(), id)
		if !was {
			return "was not paused", err
		}
		return "resumed", err
	})
}

// subscriptionVerb completes a verb that does something to a subscription, and says what became
// of it.
func subscriptionVerb(t *tool, cmd *cobra.Command, do func(cmd *cobra.Command, topics *topic.Topics, id string) (said string, err error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var said string
		var out topic.Subscription
		err := t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
			if said, err = do(cmd, topics, args[1]); err == nil {
				out, err = topics.Subscription(cmd.Context(), args[1])
			}
			return err
		})
		if err != nil {
			return err
		}
		return t.show(out, func(p *printer) { p.printf("%s: %s\n", safe(args[1]), said) })
	}
	completeArgs(cmd, subscriptionsOf)
	return cmd
}
