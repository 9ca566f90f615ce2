package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/policy"
)

// tableLimit is how many retries the table has unless asked for otherwise.
const tableLimit = 100

func showCommand(t *tool) *cobra.Command {
	var profile policy.Profile
	var limit int
	cmd := &cobra.Command{
		Use:   "show FILE|PRESET",
		Short: "List the retries of a policy",
		Long: `List the retries of a policy: index, phase, nominal delay, the range that jitter
makes of it, and the sum of the nominal delays so far. The last line has the time
from the first failure to the last retry: with each delay at its shortest, as jitter
only shortens, and with the nominal ones. A job that always fails ends between them;
the time that its attempts take, and wait for a worker, comes on top.

With --json the output is one object with delays in seconds. Its totals are
rounded to hundredths of a second.`,
		Example: "  errand policy show default --limit 5",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := readPolicy(cmd.InOrStdin(), args[0], profile)
			if err != nil {
				return err
			}
			if limit < 0 {
				return fmt.Errorf("--limit %d: must be at least 0", limit)
			}
			if !cmd.Flags().Changed("limit") {
				limit = math.MaxInt
				if !t.json {
					limit = tableLimit
				}
			}
			if t.json {
				return showJSON(cmd.OutOrStdout(), p, limit)
			}
			return showTable(cmd.OutOrStdout(), p, limit)
		},
	}
	profileFlag(cmd, &profile, policy.ProfileQueue)
	cmd.Flags().IntVar(&limit, "limit", 0, "list at most this many retries (default 100, with --json all)")
	return cmd
}

func showTable(out io.Writer, p policy.Policy, limit int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	table := printer{w: w}
	table.printf("RETRY\tPHASE\tDELAY\tWITH JITTER\tCUMULATIVE\n")
	for step := range p.All() {
		if step.Retry == limit {
			break
		}
		from, to := p.Jitter.Range(step.Phase, step.Delay)
		table.printf("%d\t%s\t%v\t%v..%v\t%v\n", step.Retry, step.Phase, step.Delay, from, to, step.Cumulative)
	}
	if err := errors.Join(table.err, w.Flush()); err != nil {
		return err
	}
	rest := printer{w: out}
	if left := p.Retries - limit; left > 0 {
		rest.printf("... and %d more\n", left)
	}
	rest.printf("%s\n", inAll(p))
	return rest.err
}

// inAll returns how many retries p has, and in what time: at the shortest that jitter
// makes of the delays, and nominal.
func inAll(p policy.Policy) string {
	shortest, total := p.ShortestTotal(), p.Total()
	endless := shortest == math.MaxInt64
	if shortest >= time.Minute && shortest < total {
		shortest = shortest.Truncate(time.Second) // halves of the milliseconds of delays
	}
	switch {
	case endless:
		return fmt.Sprintf("%d retries without an end, in more than 292 years", p.Retries)
	case total == math.MaxInt64:
		return fmt.Sprintf("%d retries without an end, in %v to more than 292 years", p.Retries, shortest)
	case shortest == total:
		return fmt.Sprintf("%d retries in %v", p.Retries, total)
	default:
		return fmt.Sprintf("%d retries in %v to %v", p.Retries, shortest, total)
	}
}

// showJSON writes the schedule step by step, so that it takes no memory per
// retry.
func showJSON(out io.Writer, p policy.Policy, limit int) error {
	type phases struct {
		Immediate   int `json:"immediate"`
		PreBackoff  int `json:"pre_backoff"`
		Backoff     int `json:"backoff"`
		PostBackoff int `json:"post_backoff"`
	}
	head, err := json.Marshal(struct {
		Retries  int     `json:"retries"`
		Shortest float64 `json:"shortest_total_s"`
		Total    float64 `json:"total_s"`
		Phases   phases  `json:"phases"`
	}{p.Retries, hundredths(p.ShortestTotal()), hundredths(p.Total()), phases{
		p.Count(policy.PhaseImmediate), p.Count(policy.PhasePreBackoff),
		p.Count(policy.PhaseBackoff), p.Count(policy.PhasePostBackoff),
	}})
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	text := printer{w: w}
	text.printf(`%s,"schedule":[`, head[:len(head)-1])
	comma := ""
	for step := range p.All() {
		if step.Retry == limit || text.err != nil {
			break
		}
		shown, err := json.Marshal(step)
		if err != nil {
			return err
		}
		text.printf("%s%s", comma, shown)
		comma = ","
	}
	text.printf("]}\n")
	return errors.Join(text.err, w.Flush())
}

// hundredths returns seconds rounded to a hundredth, unless they are so few
// that this would change what they say.
func hundredths(d time.Duration) float64 {
	if d < time.Second {
		return d.Seconds()
	}
	return math.Round(d.Seconds()*100) / 100
}
