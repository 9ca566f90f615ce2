package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is a figure in the report.
type column struct {
	figure, head, format string
	compared             bool // with raw and the best peer
}

var columns = []column{
	{figRate, "jobs/s", "%.0f", true},
	{figP50, "p50 ms", "%.3f", false},
	{figP99, "p99 ms", "%.3f", false},
	{figCommitP50, "commit p50", "%.3f", false},
	{figCommitP99, "commit p99", "%.3f", false},
	{figFair, "slowest/fastest", "%.2f", false},
	{figOpen, "open ms", "%.1f", false},
	{figPeak, "peak MiB", "%.1f", false},
	{figWritten, "written B/job", "%.0f", false},
	{figBytes, "written B", "%.0f", false},
	{figCPUJob, "cpu us/job", "%.1f", false},
	{figCPU, "cpu %", "%.3g", false},
	{figCalls, "reads+writes", "%.0f", false},
}

// report prints the medians of each workload and system.
func report(out io.Writer, o options, samples []sample) error {
	for _, w := range o.workloads {
		fit := fitting(o.systems, w)
		if len(fit) == 0 {
			continue
		}
		shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
			return !slices.ContainsFunc(fit, func(e entry) bool { return across(samples, side{e.name, w.name, c.figure}).n > 0 })
		})
		head := []string{"system", "durability"}
		for _, c := range shown {
			head = append(head, c.head)
			if c.compared {
				head = append(head, "spread", "to raw", "to best peer")
			}
		}
		rows := [][]string{head}
		for _, e := range fit {
			row := []string{e.name, durabilityOf(samples, e.name, w.name)}
			for _, c := range shown {
				s := across(samples, side{e.name, w.name, c.figure})
				row = append(row, c.text(s))
				if c.compared {
					row = append(row, spreadText(s), ratio(samples, w, e.name, "raw"), ratio(samples, w, e.name, bestPeer(samples, w)))
				}
			}
			rows = append(rows, row)
		}
		if err := table(out, w.name+": "+w.about, rows); err != nil {
			return err
		}
	}
	return nil
}

// table prints rows in columns under a title.
func table(out io.Writer, title string, rows [][]string) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	text := "\n" + title + "\n"
	for _, row := range rows {
		text += strings.Join(row, "\t") + "\n"
	}
	if _, err := io.WriteString(t, text); err != nil {
		return err
	}
	return t.Flush()
}

func (c column) text(s summary) string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf(c.format, s.median)
}

func spreadText(s summary) string {
	if s.n < 2 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*s.spread())
}

func durabilityOf(samples []sample, system, workload string) string {
	for _, s := range samples {
		if s.System == system && s.Workload == workload {
			return s.Durability
		}
	}
	return "-"
}

func across(samples []sample, s side) summary {
	var values []float64
	for _, v := range byRound(samples, s) {
		values = append(values, v)
	}
	return summarize(values)
}

// bestPeer returns the peer with the highest median rate, "" if none was measured.
func bestPeer(samples []sample, w workload) (best string) {
	most := 0.0
	for _, e := range allSystems() {
		if s := across(samples, side{e.name, w.name, figRate}); e.peer && s.n > 0 && s.median > most {
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
	return fmt.Sprintf("%.2f", v.median)
}

func (t target) of(system string) target {
	t.num.system = system
	return t
}
