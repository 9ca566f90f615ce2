package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/internal/seconds"
	"github.com/errandq/errand/webhook"
)

// webhookVerb returns a verb that does something to one endpoint, and says what became
// of it.
func webhookVerb(t *tool, cmd *cobra.Command, do func(ctx context.Context, q *queue.Queue, h *webhook.Webhooks, id string) (any, string, error)) *cobra.Command {
	cmd.Use += " FILE ID"
	cmd.Args = cobra.ExactArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var result any
		var said string
		err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) error {
			return t.hooks(q, anywhere(), func(h *webhook.Webhooks) (err error) {
				result, said, err = do(cmd.Context(), q, h, args[1])
				return err
			})
		})
		if err != nil {
			return err
		}
		return t.show(result, func(p *printer) { p.printf("%s: %s\n", safe(args[1]), said) })
	}
	completeArgs(cmd, endpointsOf)
	return cmd
}

func webhookEnableCommand(t *tool) *cobra.Command {
	return webhookVerb(t, &cobra.Command{
		Use:   "enable",
		Short: "Send to a disabled endpoint again",
		Long: `Send to a disabled endpoint again. Waiting deliveries become ready, however often they
have failed; dead ones stay dead until errand dead redrive.`,
		Example: "  errand webhooks enable shop.db billing",
	}, func(ctx context.Context, _ *queue.Queue, h *webhook.Webhooks, id string) (any, string, error) {
		was, err := h.Enable(ctx, id)
		said := "enabled"
		if !was {
			said = "was not disabled"
		}
		return struct {
			Enabled string `json:"enabled"`
			Was     bool   `json:"was_disabled"`
		}{id, was}, said, err
	})
}

func webhookDisableCommand(t *tool) *cobra.Command {
	var reason string
	cmd := webhookVerb(t, &cobra.Command{
		Use:     "disable",
		Short:   "Send nothing to an endpoint until it is enabled",
		Long:    "Send nothing to an endpoint until it is enabled. Messages for it are still taken, and wait.",
		Example: "  errand webhooks disable shop.db billing --reason 'moves on Sunday'",
	}, func(ctx context.Context, _ *queue.Queue, h *webhook.Webhooks, id string) (any, string, error) {
		return struct {
			Disabled string `json:"disabled"`
			Reason   string `json:"reason,omitempty"`
		}{id, reason}, "disabled", h.Disable(ctx, id, reason)
	})
	cmd.Flags().StringVar(&reason, "reason", "", "text for people, up to 255 bytes")
	return cmd
}

func webhookRemoveCommand(t *tool) *cobra.Command {
	var yes bool
	cmd := webhookVerb(t, &cobra.Command{
		Use:   "rm",
		Short: "Delete an endpoint with its secrets",
		Long: `Delete an endpoint with its secrets. Waiting deliveries to it are cancelled when they
would start. It asks before, or wants --yes.`,
		Example: "  errand webhooks rm shop.db billing --yes",
	}, func(ctx context.Context, _ *queue.Queue, h *webhook.Webhooks, id string) (any, string, error) {
		return map[string]string{"deleted": id}, "deleted", h.Delete(ctx, id)
	})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		return t.confirm(yes, "delete endpoint %s with its secrets for good", safe(args[1]))
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func webhookReplayCommand(t *tool) *cobra.Command {
	return replayVerb(t, &cobra.Command{
		Short: "Send the messages since a time again to an endpoint",
		Long: `Send an endpoint again the messages that were sent since a time and that it takes, also
those that it has had. Each has the ID that it had. The messages must still be there:
those of listed deliveries are, and others for as long as the program keeps them. A
program with a worker delivers them.

Messages of topics are replayed by errand subscriptions replay.`,
		Example: `  errand webhooks replay shop.db billing --since 2h
  errand webhooks replay shop.db billing --since 2026-03-01T06:00:00Z`,
	}, endpointsOf, func(ctx context.Context, q *queue.Queue, id string, since time.Time) (n int, err error) {
		err = t.hooks(q, anywhere(), func(h *webhook.Webhooks) (err error) {
			n, err = h.Replay(ctx, id, since)
			return err
		})
		return n, err
	})
}

// replayVerb returns the verb replay of a noun.
func replayVerb(t *tool, cmd *cobra.Command, of func(ctx context.Context, q *queue.Queue) ([]string, error), do func(ctx context.Context, q *queue.Queue, id string, since time.Time) (int, error)) *cobra.Command {
	var since string
	cmd.Use = "replay FILE ID"
	cmd.Args = cobra.ExactArgs(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var from time.Time
		n := 0
		err := t.writing(cmd.Context(), args[0], false, func(q *queue.Queue) (err error) {
			if from, err = parseSince(since, q.Clock().Now); err != nil {
				return err
			}
			n, err = do(cmd.Context(), q, args[1], from)
			return err
		})
		return t.inPart(cmd.Context(), n, struct {
			ID       string    `json:"id"`
			Since    time.Time `json:"since"`
			Messages int       `json:"messages"`
		}{args[1], from.UTC(), n}, func(p *printer) { p.printf("%s: %s sent again\n", safe(args[1]), messagesText(n)) }, err)
	}
	cmd.Flags().StringVar(&since, "since", "", "sent so long ago or later, as in 2h, or at this time or later")
	require(cmd, "since")
	completeArgs(cmd, of)
	return cmd
}

// parseSince reads a time: one that parseTime reads, or how long ago it is.
func parseSince(s string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := parseTime(s)
	if err != nil {
		err = fmt.Errorf("--since %q: must be a time as 2026-03-01T06:00:00Z, a day as 2026-03-01, or how long ago as 2h", s)
	}
	return at, err
}

func messagesText(n int) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

func webhookTestCommand(t *tool) *cobra.Command {
	var r reach
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "test FILE ID",
		Short: "Send a signed message to an endpoint, and print its answer",
		Long: `Send a message of type webhook.test to an endpoint at once, without retries, signed as
all messages are, and print its answer. Nothing is written: a disabled endpoint stays
disabled. The exit status is 1 if there is no answer, or one outside 200 to 299.

URLs of http and special addresses must be accepted by --allow-http and --allow.`,
		Example: "  errand webhooks test shop.db local --allow-http --allow 127.0.0.0/8",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := r.options()
			if err != nil {
				return err
			}
			o.Timeout = timeout
			var answer webhook.Answer
			var went error
			err = t.reading(cmd.Context(), args[0], func(q *queue.Queue) error {
				return t.hooks(q, o, func(h *webhook.Webhooks) error {
					answer, went = h.Test(cmd.Context(), args[1])
					if errors.Is(went, queue.ErrNotFound) || errors.Is(went, queue.ErrInvalid) || errors.Is(went, queue.ErrBusy) || cmd.Context().Err() != nil {
						return went
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
			return findings(went != nil, t.showAnswer(args[1], &answer, went))
		},
	}
	r.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "for the whole request")
	completeArgs(cmd, endpointsOf)
	return cmd
}

// showAnswer shows what came back of a test.
func (t *tool) showAnswer(id string, a *webhook.Answer, went error) error {
	out := struct {
		ID      string           `json:"id"`
		Status  int              `json:"status,omitempty"`
		Latency seconds.Duration `json:"latency_s"`
		Answer  string           `json:"answer,omitempty"`
		Error   string           `json:"error,omitempty"`
	}{id, a.Status, seconds.Duration(a.Latency), a.Text, ""}
	if went != nil {
		out.Error = went.Error()
	}
	return t.show(out, func(p *printer) {
		took := lasting(a.Latency)
		if a.Status == 0 {
			p.printf("%s: no answer after %s: %s\n", safe(id), took, safe(out.Error))
			return
		}
		p.printf("%s: %d after %s\n", safe(id), a.Status, took)
		if a.Text != "" {
			p.printf("%s\n", safe(a.Text))
		}
	})
}
