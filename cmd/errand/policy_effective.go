package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
)

func effectiveCommand(t *tool) *cobra.Command {
	var of, subscription string
	var profile policy.Profile
	cmd := &cobra.Command{
		Use:   "effective [FILE TOPIC SUBSCRIPTION]",
		Short: "Show the policy in effect for a subscription",
		Long: `Show the policy in effect for a subscription, section by section, and where each comes
from: the subscription, its topic, the endpoint (see errand webhooks), webhooks for the
default of package webhook, which a program may replace, or sns for the default of SNS.

FILE is a queue's database. Without it the documents are those of --topic and
--subscription, and what neither has is the default of SNS, shown as system.
"errand policy show" lists the retries of a document: --json has it.`,
		Example: `  errand policy effective shop.db invoice.paid paid-local
  errand policy effective --topic policy.json --subscription sns-customer`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 3 {
				return fmt.Errorf("accepts 0 or 3 arg(s), received %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var e topic.Effective
			switch documents := of != "" || subscription != ""; {
			case documents == (len(args) > 0):
				return errors.New("name FILE, TOPIC and SUBSCRIPTION, or give --topic, --subscription or both")
			case documents:
				e, err = effectiveOf(cmd, of, subscription, profile)
			default:
				err = t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
					s, err := topics.Subscription(cmd.Context(), args[2])
					if err != nil {
						return err
					}
					if s.Topic != args[1] {
						return fmt.Errorf("subscription %q is of topic %q", s.ID, s.Topic)
					}
					e, err = topics.EffectivePolicy(cmd.Context(), s.ID)
					return err
				})
			}
			if err != nil {
				return err
			}
			return t.show(e, func(p *printer) { t.printEffective(p, &e) })
		},
	}
	cmd.Flags().StringVar(&of, "topic", "", "the document of the topic: a `FILE` or a preset")
	cmd.Flags().StringVar(&subscription, "subscription", "", "the document of the subscription: a `FILE` or a preset")
	profileFlag(cmd, &profile, policy.ProfileQueue)
	completeArgs(cmd, topicsOf)
	first := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 2 {
			return words(args[0], subscriptionsOf), cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, begun)
	}
	return cmd
}

// effectiveOf returns the policy in effect of two documents.
func effectiveOf(cmd *cobra.Command, of, subscription string, profile policy.Profile) (e topic.Effective, err error) {
	if err := onceStdin(of, subscription); err != nil {
		return e, err
	}
	var top policy.Topic
	var own policy.Document
	if of != "" {
		if top, err = readTopicDelivery(cmd.InOrStdin(), of, profile); err != nil {
			return e, err
		}
	}
	if subscription != "" {
		if own, err = readDelivery(cmd.InOrStdin(), subscription, profile); err != nil {
			return e, err
		}
	}
	from := top.Sources(own)
	return topic.Effective{
		Document: top.Effective(own, policy.SystemDefault()),
		Retry:    from.Retry.String(), Throttle: from.Throttle.String(), Request: from.Request.String(),
	}, nil
}

func (t *tool) printEffective(p *printer, e *topic.Effective) {
	list := table{head: []string{"SECTION", "FROM", "POLICY"}}
	d := &e.Document
	add := func(section, from, is string) { list.add(text(section), text(orDash(from)), text(is)) }
	if d.Retry != nil {
		add("retries", e.Retry, inAll(*d.Retry))
	}
	if d.ThrottledRetry != nil {
		add("if throttled", e.Retry, inAll(*d.ThrottledRetry))
	}
	if d.Throttle != nil {
		add("throttle", e.Throttle, throttleText(d.Throttle))
	}
	if d.Request != nil {
		add("request", e.Request, d.Request.ContentType)
	}
	list.print(p, t.out)
}
