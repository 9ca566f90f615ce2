package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/topic"
	"github.com/errandq/errand/topic/filter"
)

func publishCommand(t *tool) *cobra.Command {
	var m topic.Message
	var body, file string
	var attributes []string
	cmd := &cobra.Command{
		Use:   "publish FILE TOPIC",
		Short: "Publish a message",
		Long: `Publish a message to the subscriptions of a topic whose filter policies match. Its body
is that of --body, or of --file, or of standard input for the file -. An --attribute is
name=value, or name:Type=value with one of the types String, Number, String.Array and
Binary, or a type with a label such as Number.cents. A message whose ID is known, or in
an ordered topic its --dedup-id, is not published again; that is no error.`,
		Example: `  errand topics publish shop.db invoice.paid --body '{"invoice":17}' --attribute country=FI --attribute total:Number=99.5
  echo '{"invoice":18}' | errand topics publish shop.db invoice.paid --file -`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if m.Body, err = bodyOf(cmd.InOrStdin(), body, file); err != nil {
				return err
			}
			if m.Attributes, err = attributesOf(attributes); err != nil {
				return err
			}
			var done topic.Published
			err = t.writingTopics(cmd.Context(), args[0], func(topics *topic.Topics) (err error) {
				done, err = topics.Publish(cmd.Context(), args[1], m)
				return err
			})
			if err != nil {
				return err
			}
			jobs := []queue.ID{} // of which no more is told, as all are new
			for _, j := range done.Jobs {
				jobs = append(jobs, j.ID)
			}
			return t.show(struct {
				ID            string     `json:"id"`
				Duplicate     bool       `json:"duplicate,omitempty"`
				Subscriptions []string   `json:"subscriptions"`
				Jobs          []queue.ID `json:"jobs"`
				FanOut        bool       `json:"fan_out,omitempty"`
			}{done.ID, done.Duplicate, append([]string{}, done.Subscriptions...), jobs, done.FanOut}, func(p *printer) {
				p.printf("%s: %s\n", safe(done.ID), publishedText(&done))
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&body, "body", "", "the body")
	flags.StringVar(&file, "file", "", "the body is in this `FILE`, or - for standard input")
	flags.StringArrayVar(&attributes, "attribute", nil, "an attribute, as name=value or name:Number=5 (repeatable)")
	flags.StringArrayVar(&m.Tags, "tag", nil, "a tag of the deliveries, such as whose they are (repeatable)")
	flags.StringVar(&m.Subject, "subject", "", "the subject, text for people")
	flags.StringVar(&m.ID, "id", "", "the ID (default: one is made)")
	flags.StringVar(&m.Group, "group", "", "the group, in an ordered topic")
	flags.StringVar(&m.DedupID, "dedup-id", "", "in an ordered topic, no other message with this ID for five minutes")
	cmd.MarkFlagsMutuallyExclusive("body", "file")
	cmd.MarkFlagsOneRequired("body", "file")
	completeArgs(cmd, topicsOf)
	return cmd
}

// publishedText says what has become of a message.
func publishedText(p *topic.Published) string {
	switch n := len(p.Subscriptions); {
	case p.Duplicate:
		return "was published before"
	case p.FanOut:
		return "published; a job makes the deliveries"
	case n == 1:
		return "published, 1 delivery"
	default:
		return fmt.Sprintf("published, %d deliveries", n)
	}
}

// bodyOf returns the body of a message.
func bodyOf(in io.Reader, body, file string) ([]byte, error) {
	if file == "" {
		return []byte(body), nil
	}
	return readWhole(in, file)
}

// attributesOf reads attributes.
func attributesOf(all []string) (map[string]filter.Attribute, error) {
	if len(all) == 0 {
		return nil, nil
	}
	out := map[string]filter.Attribute{}
	for _, s := range all {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--attribute %q: must be name=value, or name:Type=value", s)
		}
		a := filter.Attribute{Type: filter.String, Value: value}
		if bare, typ, ok := strings.Cut(name, ":"); ok {
			name, a.Type = bare, typ
		}
		if _, twice := out[name]; twice {
			return nil, errors.New("--attribute: an attribute is there twice")
		}
		out[name] = a
	}
	return out, nil
}
