package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/policy"
)

// curve is a policy to be drawn.
type curve struct {
	name   string
	policy policy.Policy
}

func plotCommand(t *tool) *cobra.Command {
	var profile policy.Profile
	var compare []string
	var functions bool
	var file string
	var limit int
	cmd := &cobra.Command{
		Use:   "plot FILE|PRESET",
		Short: "Draw the retries of a policy",
		Long: `Draw the nominal delays of a policy over the index of the retry: as an SVG into
the file that -o names, or else with characters.

Of a long post-backoff phase only the beginning is drawn. Phases are shaded if
all policies in the chart have the same.`,
		Example: "  errand policy plot default -o default.svg",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return fmt.Errorf("--limit %d: must be at least 0", limit)
			}
			var curves []curve
			for _, arg := range append(args, compare...) {
				p, err := readPolicy(cmd.InOrStdin(), arg, profile)
				if err != nil {
					return err
				}
				curves = append(curves, curve{strings.TrimSuffix(filepath.Base(arg), ".json"), p})
			}
			if functions {
				curves = withFunctions(curves)
			}
			c, err := newChart(curves, limit)
			if err != nil {
				return err
			}
			if t.json {
				return errors.New("--json: a drawing has no JSON: see errand policy show")
			}
			if file == "" {
				return c.text(t.out)
			}
			// Drawn in full before the file, which may hold an older chart, is opened.
			var svg bytes.Buffer
			if err := c.svg(&svg); err != nil {
				return err
			}
			return os.WriteFile(file, svg.Bytes(), 0o666)
		},
	}
	profileFlag(cmd, &profile, policy.ProfileQueue)
	cmd.Flags().StringSliceVar(&compare, "compare", nil, "further FILE|PRESET to draw in the same chart (repeatable)")
	cmd.Flags().BoolVar(&functions, "functions", false, "draw each policy with each of the four backoff functions of SNS")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write an SVG to this file")
	cmd.Flags().IntVar(&limit, "limit", 0, "draw at most this many retries (default: what shows all phases)")
	return cmd
}

// withFunctions returns each curve with each backoff function of the SNS format.
func withFunctions(curves []curve) []curve {
	var all []curve
	for _, c := range curves {
		for b := policy.Linear; b <= policy.Exponential; b++ {
			one := curve{b.String(), c.policy}
			if len(curves) > 1 {
				one.name = c.name + ", " + one.name
			}
			one.policy.Backoff = b
			all = append(all, one)
		}
	}
	return all
}

// chart is a chart to be drawn, as text or as SVG.
type chart struct {
	curves []curve
	title  string
	// phases are the shaded ranges: those of all curves, or none if they
	// differ.
	phases []span
	// n is how many retries are drawn.
	n int
	// unit is the unit of the axis of delays.
	unit     time.Duration
	unitName string
}

// span is a phase, from its first retry to its last. The last may be beyond the
// chart.
type span struct {
	phase       policy.Phase
	first, last int
}

func newChart(curves []curve, limit int) (*chart, error) {
	c := &chart{curves: curves}
	longest, maxDelay := 0, time.Duration(0)
	for _, one := range curves {
		p := one.policy
		longest = max(longest, p.Retries)
		// All phases before the last, and then a third as many retries again.
		c.n = max(c.n, min(p.Retries, max(50, (p.Retries-p.MaxDelayRetries)*4/3)))
	}
	if limit > 0 {
		c.n = min(limit, longest)
	}
	if c.n == 0 {
		return nil, fmt.Errorf("there is nothing to draw: no retries")
	}
	for _, one := range curves {
		// Delays never fall, so that the last one drawn is the longest.
		_, d, _ := one.policy.Next(min(c.n, one.policy.Retries) - 1)
		maxDelay = max(maxDelay, d)
	}
	c.unit, c.unitName = unit(maxDelay)
	c.phases = spans(curves[0].policy, c.n)
	for _, one := range curves[1:] {
		if !slices.Equal(spans(one.policy, c.n), c.phases) {
			c.phases = nil
			break
		}
	}
	if len(curves) == 1 {
		c.title = fmt.Sprintf("%s: %s", curves[0].name, inAll(curves[0].policy))
	} else {
		c.title = fmt.Sprintf("%d policies: %d retries", len(curves), longest)
	}
	if c.n < longest {
		c.title += fmt.Sprintf(", the first %d drawn", c.n)
	}
	return c, nil
}

// delays returns the delays of a curve, in the unit of the chart, with what
// jitter makes of them at the shortest.
func (c *chart) delays(p policy.Policy) (nominal, shortest []float64) {
	for step := range p.All() {
		if step.Retry == c.n {
			break
		}
		from, _ := p.Jitter.Range(step.Phase, step.Delay)
		nominal = append(nominal, float64(step.Delay)/float64(c.unit))
		shortest = append(shortest, float64(from)/float64(c.unit))
	}
	return nominal, shortest
}

// spans returns the phases of p that begin among its first n retries.
func spans(p policy.Policy, n int) []span {
	var all []span
	first := 0
	for phase := policy.PhaseImmediate; phase <= policy.PhasePostBackoff && first < n; phase++ {
		if k := p.Count(phase); k > 0 {
			all = append(all, span{phase, first, first + k - 1})
			first += k
		}
	}
	return all
}

// unit returns the unit for an axis up to longest.
func unit(longest time.Duration) (time.Duration, string) {
	switch {
	case longest < 2*time.Second:
		return time.Millisecond, "ms"
	case longest <= 10*time.Minute:
		return time.Second, "s"
	case longest <= 10*time.Hour:
		return time.Minute, "min"
	default:
		return time.Hour, "h"
	}
}
