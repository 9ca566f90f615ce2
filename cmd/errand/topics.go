package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/policy"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/webhook"
)

func topicsCommand(t *tool) *cobra.Command {
	return group("topics", "Topics, and messages that are published to them",
		`Look at topics, change them, and publish messages. A message becomes a delivery for each
subscription that matches: errand subscriptions has these. The command delivers
nothing by itself: a program with a worker does.`,
		topicsListCommand(t), topicShowCommand(t), topicAddCommand(t), topicUpdateCommand(t), topicRemoveCommand(t), publishCommand(t))
}

// someConfirmURL has subscriptions in SNS mode accepted. The program that sends the
// confirmation has the URL that counts.
const someConfirmURL = "https://errand.invalid/"

// topics calls f with the topics of a queue.
func (t *tool) topics(q *queue.Queue, f func(topics *topic.Topics) error) error {
	return t.hooks(q, anywhere(), func(h *webhook.Webhooks) error {
		topics, err := topic.New(q, h, &topic.Options{ConfirmURL: someConfirmURL})
		if err != nil {
			return err
		}
		return f(topics)
	})
}

// readingTopics and writingTopics call f with the topics of a file.
func (t *tool) readingTopics(ctx context.Context, path string, f func(topics *topic.Topics) error) error {
	return t.reading(ctx, path, func(q *queue.Queue) error { return t.topics(q, f) })
}

func (t *tool) writingTopics(ctx context.Context, path string, f func(topics *topic.Topics) error) error {
	return t.writing(ctx, path, false, func(q *queue.Queue) error { return t.topics(q, f) })
}

// eachTopic calls f for all topics, by name.
func eachTopic(ctx context.Context, topics *topic.Topics, f func(p *topic.Topic)) error {
	const page = 1000
	for after := ""; ; {
		all, err := topics.Topics(ctx, after, page)
		for i := range all {
			f(&all[i])
		}
		if err != nil || len(all) < page {
			return err
		}
		after = all[len(all)-1].Name
	}
}

// topicsOf returns the names of the topics.
func topicsOf(ctx context.Context, q *queue.Queue) (names []string, err error) {
	topics, err := topic.New(q, nil, nil)
	if err != nil {
		return nil, err
	}
	err = eachTopic(ctx, topics, func(p *topic.Topic) { names = append(names, p.Name) })
	return names, err
}

func topicsListCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls FILE",
		Short:   "List topics",
		Example: "  errand topics ls shop.db",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all := []topic.Topic{}
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				all = all[:0]
				return eachTopic(cmd.Context(), topics, func(p *topic.Topic) { all = append(all, *p) })
			})
			if err != nil {
				return err
			}
			return t.show(map[string][]topic.Topic{"topics": all}, func(p *printer) {
				if len(all) == 0 {
					p.printf("no topics\n")
					return
				}
				list := table{head: []string{"NAME", "ORDERED", "KEPT FOR", " SUBSCRIPTIONS", "POLICY"}}
				for i := range all {
					of := &all[i]
					list.add(text(of.Name), text(yesOrDash(of.Ordered)), text(keptFor(of.Keep)), number(of.Subscriptions), text(sectionsText(of.Policy)))
				}
				list.print(p, t.out)
			})
		},
	}
	completeArgs(cmd, nil)
	return cmd
}

func yesOrDash(yes bool) string {
	if yes {
		return "yes"
	}
	return "-"
}

func keptFor(keep time.Duration) string {
	if keep == 0 {
		return "-"
	}
	return lasting(keep)
}

// sectionsText names the sections that the policy of a topic has.
func sectionsText(d *policy.Topic) string {
	if d == nil {
		return "-"
	}
	var all []string
	for _, s := range []struct {
		name string
		has  bool
	}{
		{"retries", d.Retry != nil}, {"if throttled", d.ThrottledRetry != nil}, {"throttle", d.Throttle != nil},
		{"request", d.Request != nil}, {"no overrides", d.DisableSubscriptionOverrides},
	} {
		if s.has {
			all = append(all, s.name)
		}
	}
	return orDash(strings.Join(all, ", "))
}

func topicShowCommand(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show FILE TOPIC",
		Short:   "Show a topic with its subscriptions",
		Example: "  errand topics show shop.db invoice.paid",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var of topic.Topic
			var subs struct {
				Of []topic.Subscription `json:"of,omitempty"`
			}
			err := t.readingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				subs.Of = nil
				if of, err = topics.Topic(cmd.Context(), args[1]); err != nil {
					return err
				}
				return eachSubscription(cmd.Context(), topics, of.Name, func(s *topic.Subscription) { subs.Of = append(subs.Of, *s) })
			})
			if err != nil {
				return err
			}
			return t.show(seconds.Join(of, subs), func(p *printer) {
				printTopic(p, &of)
				t.printSubscriptions(p, subs.Of)
			})
		},
	}
	completeArgs(cmd, topicsOf)
	return cmd
}

func printTopic(p *printer, of *topic.Topic) {
	p.field("name", of.Name)
	if of.Ordered {
		p.field("order", "messages of a group one after the other")
	}
	if of.Keep > 0 {
		p.field("keeps", "messages for "+keptFor(of.Keep))
	}
	if of.Policy != nil {
		printSections(p, &of.Policy.Document)
		if of.Policy.DisableSubscriptionOverrides {
			p.field("overrides", "disabled: policies of subscriptions do not count")
		}
	}
	p.field("created", when(of.CreatedAt))
	p.printf("\n")
}

// topicFlags are the flags that say what a topic is.
type topicFlags struct {
	policy string
	keep   time.Duration
}

func (f *topicFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.policy, "policy", "", "the delivery policy: a `FILE`, or a preset of errand policy presets")
	cmd.Flags().DurationVar(&f.keep, "keep", 0, "for how long messages are kept for replays, as in 72h")
}

// set sets what flags name.
func (f *topicFlags) set(cmd *cobra.Command, p *topic.Topic) error {
	if cmd.Flags().Changed("keep") {
		p.Keep = f.keep
	}
	if f.policy == "" {
		return nil
	}
	d, err := readTopicDelivery(cmd.InOrStdin(), f.policy, policy.ProfileQueue)
	p.Policy = &d
	return err
}

func topicAddCommand(t *tool) *cobra.Command {
	var p topic.Topic
	var f topicFlags
	cmd := &cobra.Command{
		Use:   "add FILE NAME",
		Short: "Add a topic",
		Long: `Add a topic. Messages of an --ordered topic have a group; those of one group are
delivered one after the other. That cannot be changed.`,
		Example: `  errand topics add shop.db orders
  errand topics add shop.db orders --ordered --keep 72h --policy policy.json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Name = args[1]
			if err := f.set(cmd, &p); err != nil {
				return err
			}
			var of topic.Topic
			err := t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				of, err = topics.Create(cmd.Context(), p)
				if errors.Is(err, queue.ErrStale) {
					err = fmt.Errorf("topic %q is there already: errand topics update changes it", p.Name)
				}
				return err
			})
			if err != nil {
				return err
			}
			return t.show(of, func(p *printer) { p.printf("%s: added\n", safe(of.Name)) })
		},
	}
	cmd.Flags().BoolVar(&p.Ordered, "ordered", false, "deliver the messages of a group in order")
	f.add(cmd)
	completeArgs(cmd, nil)
	return cmd
}

func topicUpdateCommand(t *tool) *cobra.Command {
	var f topicFlags
	var clears []string
	cmd := &cobra.Command{
		Use:   "update FILE TOPIC",
		Short: "Change a topic",
		Long: `Change what flags name of a topic: the rest stays. Waiting deliveries go by the new
policy. --clear takes values back.`,
		Example: `  errand topics update shop.db invoice.paid --keep 24h
  errand topics update shop.db invoice.paid --clear policy`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			takeBack, err := clearing(clears, map[string]func(p *topic.Topic){
				"keep":   func(p *topic.Topic) { p.Keep = 0 },
				"policy": func(p *topic.Topic) { p.Policy = nil },
			})
			if err != nil {
				return err
			}
			var of topic.Topic
			err = t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error {
				p, err := topics.Topic(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				takeBack(&p)
				if err := f.set(cmd, &p); err != nil {
					return err
				}
				of, err = topics.Update(cmd.Context(), p)
				return err
			})
			if err != nil {
				return err
			}
			return t.show(of, func(p *printer) { p.printf("%s: updated\n", safe(of.Name)) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&clears, "clear", nil, "take back keep or policy (repeatable)")
	completeArgs(cmd, topicsOf)
	return cmd
}

// clearing returns what takes back the fields that names name.
func clearing[T any](names []string, can map[string]func(*T)) (func(*T), error) {
	for _, name := range names {
		if can[name] == nil {
			return nil, fmt.Errorf("--clear %q: must be one of %s", name, strings.Join(sortedKeys(can), ", "))
		}
	}
	return func(of *T) {
		for _, name := range names {
			can[name](of)
		}
	}, nil
}

func topicRemoveCommand(t *tool) *cobra.Command {
	return removeVerb(t, &cobra.Command{
		Use:   "rm FILE TOPIC",
		Short: "Delete a topic with its subscriptions",
		Long: `Delete a topic with its subscriptions. Waiting deliveries are cancelled when they would
start. It asks before, or wants --yes.`,
		Example: "  errand topics rm shop.db invoice.paid --yes",
	}, "delete topic %s with its subscriptions for good", topicsOf, func(ctx context.Context, topics *topic.Topics, name string) error {
		return topics.Delete(ctx, name)
	})
}

// removeVerb returns a verb that asks, and deletes what its second argument names.
func removeVerb(t *tool, cmd *cobra.Command, asks string, of func(ctx context.Context, q *queue.Queue) ([]string, error), remove func(ctx context.Context, topics *topic.Topics, name string) error) *cobra.Command {
	var yes bool
	cmd.Args = cobra.ExactArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := t.confirm(yes, asks, safe(args[1])); err != nil {
			return err
		}
		err := t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) error { return remove(cmd.Context(), topics, args[1]) })
		if err != nil {
			return err
		}
		return t.show(map[string]string{"deleted": args[1]}, func(p *printer) { p.printf("%s: deleted\n", safe(args[1])) })
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	completeArgs(cmd, of)
	return cmd
}
