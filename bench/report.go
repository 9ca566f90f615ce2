package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// column is a figure in the report.
type column struct{ figure, head, format string }

var columns = []column{
	{figRate, "jobs/s", "%.0f"},
	{figP50, "p50 ms", "%.3f"},
	{figP99, "p99 ms", "%.3f"},
	{figCommitP50, "commit p50", "%.3f"},
	{figCommitP99, "commit p99", "%.3f"},
	{figPeak, "peak MiB", "%.1f"},
	{figWritten, "written B/job", "%.0f"},
	{figCPU, "cpu %", "%.0f"},
}

// report prints the medians of each workload and system.
func report(out io.Writer, o options, samples []sample) error {
	for _, w := range o.workloads {
		fmt.Fprintf(out, "\n%s: %s\n", w.name, w.about)
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprint(t, "system\tdurability")
		for _, c := range columns {
			fmt.Fprintf(t, "\t%s", c.head)
		}
		fmt.Fprint(t, "\tspread\tto raw\tto best peer\n")
		for _, e := range fitting(o.systems, w) {
			fmt.Fprintf(t, "%s\t%s", e.name, durabilityOf(samples, e.name, w.name))
			for _, c := range columns {
				s := over(samples, side{e.name, w.name, c.figure})
				if s.n == 0 {
					fmt.Fprint(t, "\t-")
					continue
				}
				fmt.Fprintf(t, "\t"+c.format, s.median)
			}
			rate := over(samples, side{e.name, w.name, figRate})
			spread := "-"
			if rate.n > 1 {
				spread = fmt.Sprintf("%.0f%%", 100*rate.spread())
			}
			fmt.Fprintf(t, "\t%s\t%s\t%s\n", spread, ratio(samples, w, e.name, "raw"), ratio(samples, w, e.name, bestPeer(samples, w)))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func durabilityOf(samples []sample, system, workload string) string {
	for _, s := range samples {
		if s.System == system && s.Workload == workload {
			return s.Durability
		}
	}
	return "-"
}

func over(samples []sample, s side) summary {
	var values []float64
	for _, v := range byRound(samples, s) {
		values = append(values, v)
	}
	return summarize(values)
}

// bestPeer gives the peer with the highest median rate, "" if none was measured.
func bestPeer(samples []sample, w workload) (best string) {
	most := 0.0
	for _, e := range systems {
		if s := over(samples, side{e.name, w.name, figRate}); e.peer && s.n > 0 && s.median > most {
			best, most = e.name, s.median
		}
	}
	return best
}

func ratio(samples []sample, w workload, system, to string) string {
	v, ok := per(w.name, to, 0, "").of(system).value(samples)
	if !ok || system == to {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

func (t target) of(system string) target {
	t.num.system = system
	return t
}
