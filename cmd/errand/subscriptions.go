package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/topic"
)

func subscriptionsCommand(t *tool) *cobra.Command {
	return group("subscriptions", "Who gets the messages of topics",
		`Look at the subscriptions of topics, and steer them. A subscription is to an endpoint
of errand webhooks, or to a kind of job. Its deliveries have the tag
subscription:ID, for --tag of errand jobs and errand dead.`,
		subscriptionsListCommand(t), subscriptionShowCommand(t), subscriptionAddCommand(t), subscriptionUpdateCommand(t),
		subscriptionRemoveCommand(t), subscriptionPauseCommand(t), subscriptionResumeCommand(t), subscriptionReplayCommand(t), subscriptionRedriveCommand(t))
}

// eachSubscription calls f for the subscriptions of a topic, or of all.
func eachSubscription(ctx context.Context, topics *topic.Topics, of string, f func(s *topic.Subscription)) error {
	const page = 1000
	for after := ""; ; {
		all, err := topics.Subscriptions(ctx, of, after, page)
		for i := range all {
			f(&all[i])
		}
		if err != nil || len(all) < page {
			return err
		}
		after = all[len(all)-1].ID
	}
}

// subscriptionsOf returns the IDs of the subscriptions.
func subscriptionsOf(ctx context.Context, q *queue.Queue) (ids []string, err error) {
	topics, err := topic.New(q, nil, nil)
	if err != nil {
		return nil, err
	}
	err = eachSubscription(ctx, topics, "", func(s *topic.Subscription) { ids = append(ids, s.ID) })
	return ids, err
}

// receiverOf says where the messages of a subscription go.
func receiverOf(s *topic.Subscription) string {
	if s.Endpoint != "" {
		return "endpoint " + s.Endpoint
	}
	return fmt.Sprintf("kind %s in queue %s", s.Kind, s.Queue)
}

// formOf says how they look there.
func formOf(s *topic.Subscription) string {
	form := "envelope"
	switch {
	case s.SNS && s.Raw:
		form = "SNS, raw"
	case s.SNS:
		form = "SNS"
	case s.Raw:
		form = "raw"
	}
	return form
}

// filterOf shows the filter policy.
func filterOf(s *topic.Subscription) string {
	if len(s.Filter) == 0 {
		return "-"
	}
	return string(s.Filter)
}

func subscriptionsListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls FILE [TOPIC]",
		Short: "List subscriptions, of a topic or of all",
		Example: `  errand subscriptions ls shop.db
  errand subscriptions ls shop.db invoice.paid`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			of := ""
			if len(args) > 1 {
				of = args[1]
			}
			var all []topic.Subscription
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				all = []topic.Subscription{}
				if of != "" {
					if _, err := topics.Topic(cmd.Context(), of); err != nil {
						return err
					}
				}
				return eachSubscription(cmd.Context(), topics, of, func(s *topic.Subscription) { all = append(all, *s) })
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]topic.Subscription{"subscriptions": all}, func(p *printer) { t.printSubscriptions(p, all) })
		},
	}
	completeArgs(cmd, topicsOf)
	return cmd
}

func (t *tool) printSubscriptions(p *printer, all []topic.Subscription) {
	if len(all) == 0 {
		p.printf("no subscriptions\n")
		return
	}
	list := table{head: []string{"ID", "TOPIC", "STATE", "TO", "FORM", "FILTER"}}
	for i := range all {
		s := &all[i]
		state := text(string(s.State))
		if s.State != topic.Confirmed {
			state = state.in(yellow)
		}
		list.add(text(s.ID), text(s.Topic), state, text(receiverOf(s)), text(formOf(s)), text(filterOf(s)))
	}
	list.print(p, t.out)
}

func subscriptionShowCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show FILE ID",
		Short:   "Show a subscription",
		Long:    "Show a subscription. The policy that holds for it is shown by errand policy effective.",
		Example: "  errand subscriptions show shop.db paid-local",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var s topic.Subscription
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				s, err = topics.Subscription(cmd.Context(), args[1])
				return err
			})
			if err != nil {
				return err
			}
			return t.show(s, func(p *printer) { printSubscription(p, &s) })
		},
	}
	completeArgs(cmd, subscriptionsOf)
	return cmd
}

func printSubscription(p *printer, s *topic.Subscription) {
	p.field("id", s.ID)
	p.field("topic", s.Topic)
	p.field("state", string(s.State))
	p.field("to", receiverOf(s))
	p.field("form", formOf(s))
	if len(s.Filter) > 0 {
		p.field("filter", s.FilterScope.String()+" "+string(s.Filter))
	}
	if s.Policy != nil {
		printSections(p, s.Policy)
	}
	if s.OnDead != "" {
		p.field("on dead", string(s.OnDead))
	}
	p.field("created", when(s.CreatedAt))
}
