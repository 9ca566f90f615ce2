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

// subscriptionJSON is a subscription.
type subscriptionJSON struct {
	topic.Subscription
}

func subscriptionOf(s *topic.Subscription) subscriptionJSON {
	out := subscriptionJSON{*s}
	out.CreatedAt, out.UpdatedAt = s.CreatedAt.UTC(), s.UpdatedAt.UTC()
	return out
}

// to says where messages go.
func (s *subscriptionJSON) to() string {
	if s.Endpoint != "" {
		return "endpoint " + s.Endpoint
	}
	return fmt.Sprintf("kind %s in queue %s", s.Kind, s.Queue)
}

// form says how they look there.
func (s *subscriptionJSON) form() string {
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

// filters shows the filter policy.
func (s *subscriptionJSON) filters() string {
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
			var all []subscriptionJSON
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				all = []subscriptionJSON{}
				if of != "" {
					if _, err := topics.Topic(cmd.Context(), of); err != nil {
						return err
					}
				}
				return eachSubscription(cmd.Context(), topics, of, func(s *topic.Subscription) { all = append(all, subscriptionOf(s)) })
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]subscriptionJSON{"subscriptions": all}, func(p *printer) { t.printSubscriptions(p, all) })
		},
	}
	completeArgs(cmd, topicsOf)
	return cmd
}

func (t *tool) printSubscriptions(p *printer, all []subscriptionJSON) {
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
		list.add(text(s.ID), text(s.Topic), state, text(s.to()), text(s.form()), text(s.filters()))
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
			var s subscriptionJSON
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				found, err := topics.Subscription(cmd.Context(), args[1])
				s = subscriptionOf(&found)
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

func printSubscription(p *printer, s *subscriptionJSON) {
	p.field("id", s.ID)
	p.field("topic", s.Topic)
	p.field("state", string(s.State))
	p.field("to", s.to())
	p.field("form", s.form())
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
