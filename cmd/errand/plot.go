package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/internal/plot"
	"github.com/errandq/errand/policy"
)

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
			var curves []plot.Curve
			for _, arg := range append(args, compare...) {
				p, err := readPolicy(cmd.InOrStdin(), arg, profile)
				if err != nil {
					return err
				}
				curves = append(curves, plot.Curve{Name: strings.TrimSuffix(filepath.Base(arg), ".json"), Policy: p})
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
			return os.WriteFile(file, c.SVG(), 0o666)
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
func withFunctions(curves []plot.Curve) []plot.Curve {
	var all []plot.Curve
	for _, c := range curves {
		for b := policy.Linear; b <= policy.Exponential; b++ {
			one := plot.Curve{Name: b.String(), Policy: c.Policy}
			if len(curves) > 1 {
				one.Name = c.Name + ", " + one.Name
			}
			one.Policy.Backoff = b
			all = append(all, one)
		}
	}
	return all
}

// chart is a chart to be drawn, as text or as SVG.
type chart struct{ plot.Chart }

func newChart(curves []plot.Curve, limit int) (*chart, error) {
	c := &chart{plot.Chart{Curves: curves}}
	longest := 0
	for _, one := range curves {
		p := one.Policy
		longest = max(longest, p.Retries)
		c.N = max(c.N, plot.Drawn(p))
	}
	if limit > 0 {
		c.N = min(limit, longest)
	}
	if c.N == 0 {
		return nil, fmt.Errorf("there is nothing to draw: no retries")
	}
	c.Unit, c.UnitName = unit(c.Longest())
	c.Phases = plot.Spans(curves[0].Policy, c.N)
	for _, one := range curves[1:] {
		if !slices.Equal(plot.Spans(one.Policy, c.N), c.Phases) {
			c.Phases = nil
			break
		}
	}
	if len(curves) == 1 {
		c.Title = fmt.Sprintf("%s: %s", curves[0].Name, inAll(curves[0].Policy))
	} else {
		c.Title = fmt.Sprintf("%d policies: %d retries", len(curves), longest)
	}
	if c.N < longest {
		c.Title += fmt.Sprintf(", the first %d drawn", c.N)
	}
	return c, nil
}

// delays returns the delays of a policy, in the unit of the chart.
func (c *chart) delays(p policy.Policy) (all []float64) {
	for step := range p.All() {
		if step.Retry == c.N {
			break
		}
		all = append(all, float64(step.Delay)/float64(c.Unit))
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
