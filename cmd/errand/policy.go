package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/policy"
)

func policyCommand(t *tool) *cobra.Command {
	return group("policy", "Check, list and draw delivery policies", `Check, list and draw delivery policies.

A FILE holds a document in the JSON form of Amazon SNS: that of a subscription,
that of a topic, or only the section about retries. - is standard input.
A PRESET is a name that "errand policy presets" lists.

Profile sns has the limits of Amazon SNS for HTTP/S endpoints, sns-raw those for
a subscription with raw message delivery. Profile queue has those for jobs:
fractions of seconds, up to 1,000,000 retries, no limit to the total.`,
		checkCommand(t), showCommand(t), plotCommand(t), presetsCommand(t), effectiveCommand(t))
}

// profileFlag adds the flag that chooses a profile.
func profileFlag(cmd *cobra.Command, profile *policy.Profile, value policy.Profile) {
	cmd.Flags().TextVar(profile, "profile", value, "limits to check by: queue, sns or sns-raw")
}

func checkCommand(t *tool) *cobra.Command {
	var profile policy.Profile
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a document, by default against the limits of SNS",
		Long: `Check a document. Each fault is a line on standard error with its path, its value and
the range, and makes the exit status 1. What is allowed but unlikely to be meant is a
warning on standard error and leaves the status 0.`,
		Example: "  errand policy check policy.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, err := readDocument(cmd.InOrStdin(), args[0], profile)
			if err != nil {
				return err
			}
			p := doc.Or(policy.SystemDefault()).For(policy.Retryable)
			warnings := append([]string{}, p.Lint()...)
			errs := printer{w: t.errs}
			err = t.show(struct {
				File     string         `json:"file"`
				Profile  policy.Profile `json:"profile"`
				Retries  int            `json:"retries"`
				Shortest float64        `json:"shortest_total_s"`
				Total    float64        `json:"total_s"`
				Warnings []string       `json:"warnings"`
			}{args[0], profile, p.Retries, hundredths(p.ShortestTotal()), hundredths(p.Total()), warnings}, func(out *printer) {
				out.printf("%s: valid by profile %s: %s\n", safe(args[0]), profile, inAll(p))
				for _, warning := range warnings {
					errs.printf("warning: %s\n", warning)
				}
			})
			return errors.Join(err, errs.err)
		},
	}
	profileFlag(cmd, &profile, policy.ProfileSNS)
	return cmd
}

func presetsCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:     "presets",
		Short:   "List the predefined policies",
		Example: "  errand policy presets",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			type preset struct {
				Name     string  `json:"name"`
				Retries  int     `json:"retries"`
				Shortest float64 `json:"shortest_total_s"`
				Total    float64 `json:"total_s"`
				About    string  `json:"about"`
			}
			all := []preset{}
			for _, p := range presets {
				all = append(all, preset{p.name, p.policy.Retries, hundredths(p.policy.ShortestTotal()), hundredths(p.policy.Total()), p.about})
			}
			return t.show(map[string][]preset{"presets": all}, func(p *printer) {
				w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
				out := printer{w: w}
				out.printf("NAME\tRETRIES\tSHORTEST\tTOTAL\tFOR\n")
				for _, p := range presets {
					out.printf("%s\t%d\t%v\t%v\t%s\n", p.name, p.policy.Retries, p.policy.ShortestTotal(), p.policy.Total(), p.about)
				}
				p.err = errors.Join(p.err, out.err, w.Flush())
			})
		},
	}
}

// printSections writes the sections that a document has.
func printSections(p *printer, d *policy.Document) {
	for _, s := range []struct {
		name   string
		policy *policy.Policy
	}{{"retries", d.Retry}, {"if throttled", d.ThrottledRetry}} {
		if s.policy != nil {
			p.field(s.name, inAll(*s.policy))
		}
	}
	if d.Throttle != nil {
		p.field("throttle", throttleText(d.Throttle))
	}
	if d.Request != nil {
		p.field("content type", d.Request.ContentType)
	}
}

func throttleText(t *policy.Throttle) string {
	if t.MaxReceivesPerSecond == 0 {
		return "none"
	}
	return fmt.Sprintf("%d a second", t.MaxReceivesPerSecond)
}
