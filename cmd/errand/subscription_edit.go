package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

// subscriptionFlags are the flags that say how a subscription is served.
type subscriptionFlags struct {
	policy, filter, filterFile, onDead string
	scope                              filter.Scope
	raw                                bool
}

func (f *subscriptionFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.policy, "policy", "", "the delivery policy: a `FILE`, or a preset of errand policy presets")
	flags.BoolVar(&f.raw, "raw", false, "send bodies as they are")
	flags.StringVar(&f.filter, "filter", "", "the filter policy, as `JSON`")
	flags.StringVar(&f.filterFile, "filter-file", "", "the filter policy is in this `FILE`, or - for standard input")
	flags.TextVar(&f.scope, "filter-scope", filter.Attributes, "what it looks at: MessageAttributes or MessageBody")
	flags.StringVar(&f.onDead, "on-dead", "", "whether a dead delivery of an ordered topic blocks the others of its group: block or pass")
	cmd.MarkFlagsMutuallyExclusive("filter", "filter-file")
}

// set sets what flags name.
func (f *subscriptionFlags) set(cmd *cobra.Command, s *topic.Subscription) error {
	if err := onceStdin(f.policy, f.filterFile); err != nil {
		return err
	}
	flags := cmd.Flags()
	if flags.Changed("raw") {
		s.Raw = f.raw
	}
	if flags.Changed("filter-scope") {
		s.FilterScope = f.scope
	}
	if f.onDead != "" {
		s.OnDead = topic.OnDead(f.onDead)
	}
	if f.filter != "" {
		s.Filter = json.RawMessage(f.filter)
	}
	if f.filterFile != "" {
		data, err := readWhole(cmd.InOrStdin(), f.filterFile)
		if err != nil {
			return err
		}
		s.Filter = data
	}
	if f.policy == "" {
		return nil
	}
	d, err := readDelivery(cmd.InOrStdin(), f.policy, policy.ProfileQueue)
	s.Policy = &d
	return err
}

func subscriptionAddCommand(t *tool) *cobra.Command {
	var s topic.Subscription
	var f subscriptionFlags
	cmd := &cobra.Command{
		Use:   "add FILE TOPIC",
		Short: "Subscribe an endpoint or a kind of job to a topic",
		Long: `Subscribe an endpoint, or a kind of job, to a topic. It gets what is published later. A
subscription that is there already and the same stays as it is. With --sns the endpoint
gets what it would get from Amazon SNS, and has to confirm the subscription first: the
program that sends must have a URL for that.`,
		Example: `  errand subscriptions add shop.db invoice.paid --endpoint billing
  errand subscriptions add shop.db invoice.paid --kind send --queue mail --raw --filter '{"country":["FI"]}'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Topic = args[1]
			if err := f.set(cmd, &s); err != nil {
				return err
			}
			var out topic.Subscription
			err := t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				out, err = topics.Subscribe(cmd.Context(), s)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(out, func(p *printer) {
				said := "subscribed"
				if out.State == topic.Pending {
					said = "waits to be confirmed"
				}
				p.printf("%s: %s\n", safe(out.ID), said)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.ID, "id", "", "up to 50 letters, digits, dots, underscores and hyphens (default: one is made)")
	flags.StringVar(&s.Endpoint, "endpoint", "", "the endpoint")
	flags.StringVar(&s.Kind, "kind", "", "the kind of the jobs")
	flags.StringVar(&s.Queue, "queue", "", "the queue of these jobs (default: default)")
	flags.BoolVar(&s.SNS, "sns", false, "send as Amazon SNS does")
	f.add(cmd)
	completeArgs(cmd, topicsOf)
	completeFlag(cmd, "endpoint", endpointsOf)
	completeFlag(cmd, "kind", kindsOf)
	completeFlag(cmd, "queue", queuesOf)
	return cmd
}

func subscriptionUpdateCommand(t *tool) *cobra.Command {
	var f subscriptionFlags
	var clears []string
	cmd := &cobra.Command{
		Use:   "update FILE ID",
		Short: "Change a subscription",
		Long: `Change what flags name of a subscription: the rest stays. The change holds for messages
that are published later; the policy and --raw also for waiting deliveries to endpoints.
--clear takes values back.`,
		Example: `  errand subscriptions update shop.db paid-local --raw --filter '{"country":["FI","SE"]}'
  errand subscriptions update shop.db paid-local --clear filter --policy policy.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			takeBack, err := clearing(clears, map[string]func(s *topic.Subscription){
				"filter":  func(s *topic.Subscription) { s.Filter, s.FilterScope = nil, filter.Attributes },
				"on-dead": func(s *topic.Subscription) { s.OnDead = "" },
				"policy":  func(s *topic.Subscription) { s.Policy = nil },
			})
			if err != nil {
				return err
			}
			var out topic.Subscription
			err = t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				s, err := topics.Subscription(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				takeBack(&s)
				if err := f.set(cmd, &s); err != nil {
					return err
				}
				out, err = topics.UpdateSubscription(cmd.Context(), s)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(out, func(p *printer) { p.printf("%s: updated\n", safe(out.ID)) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&clears, "clear", nil, "take back filter, on-dead or policy (repeatable)")
	completeArgs(cmd, subscriptionsOf)
	return cmd
}

func subscriptionRemoveCommand(t *tool) *cobra.Command {
	return removeVerb(t, &cobra.Command{
		Use:   "rm FILE ID",
		Short: "Delete a subscription",
		Long: `Delete a subscription. Its waiting deliveries are cancelled when they would start; jobs
of a kind stay. It asks before, or wants --yes.`,
		Example: "  errand subscriptions rm shop.db paid-local --yes",
	}, "delete subscription %s for good", subscriptionsOf, func(ctx context.Context, topics *topic.Topics, id string) error {
		return topics.Unsubscribe(ctx, id)
	})
}

func subscriptionReplayCommand(t *tool) *cobra.Command {
	return replayVerb(t, &cobra.Command{
		Short: "Deliver the messages since a time again to a subscription",
		Long: `Deliver again to a subscription the messages that were published since a time and that
its filter policy matches, also those that it has had, and those from before it was
there. Each has the ID that it had. The messages must still be there, see --keep of
errand topics add. A program with a worker delivers them.`,
		Example: "  errand subscriptions replay shop.db paid-local --since 2h",
	}, subscriptionsOf, func(ctx context.Context, q *queue.Queue, id string, since time.Time) (n int, err error) {
		err = t.topics(q, func(topics *topic.Topics) (err error) {
			n, err = topics.Replay(ctx, id, since)
			return err
		})
		return n, err
	})
}

func subscriptionRedriveCommand(t *tool) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "redrive FILE ID",
		Short: "Make the dead deliveries of a subscription ready again",
		Long: `Make the dead deliveries of a subscription ready again. It asks before, or wants --yes.
errand dead redrive with --tag subscription:ID and other flags chooses among them.`,
		Example: "  errand subscriptions redrive shop.db paid-local --yes",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.confirm(yes, "redrive the dead deliveries of %s", safe(args[1])); err != nil {
				return err
			}
			var result queue.RedriveResult
			err := t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				result, err = topics.Redrive(cmd.Context(), args[1])
				return err
			})
			n := result.Redriven
			return errors.Join(t.inPart(cmd.Context(), n, map[string]int{"redriven": n}, func(p *printer) {
				p.printf("%s: %s redriven\n", safe(args[1]), jobsText(n))
			}, err))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	completeArgs(cmd, subscriptionsOf)
	return cmd
}
