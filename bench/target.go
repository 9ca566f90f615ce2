package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// side is a figure of a system at a workload.
type side struct{ system, workload, figure string }

// target is what errand is to reach: num, or num divided by den, is at least or
// at most limit.
type target struct {
	about  string
	num    side
	den    *side
	atMost bool
	limit  float64
	unit   string
}

func per(workload, other string, limit float64, about string) target {
	return target{about: about, num: side{"errand", workload, figRate}, den: &side{other, workload, figRate}, limit: limit, unit: "x"}
}

// most is a target of a figure itself.
func atMost(workload, figure string, limit float64, unit, about string) target {
	return target{about: about, num: side{"errand", workload, figure}, atMost: true, limit: limit, unit: unit}
}

// over is the ratio of two figures.
func over(a, b side, limit float64, about string) target {
	return target{about: about, num: a, den: &b, limit: limit, unit: "x"}
}

func (t target) orLess() target {
	t.atMost = true
	return t
}

// targets are those that the project has set itself, in its order.
var targets = append([]target{
	over(side{"raw", "enqueue-1", figRate}, side{"floor", "enqueue-1", figRate}, 0.8, "enqueue-1: raw to floor"),
	per("enqueue-1", "raw", 0.85, "enqueue-1: to raw, one commit each"),
	over(side{"errand", "enqueue-64", figRate}, side{"raw", "enqueue-1", figRate}, 10, "enqueue-64: to raw, one commit each"),
	per("enqueue-64", "raw", 0.55, "enqueue-64: to raw in batches of 64"),
	per("enqueue-batch", "raw", 0.6, "enqueue-batch: to raw in batches of 1,000"),
	per("enqueue-tx", "raw", 0.8, "enqueue-tx: to raw with the same two rows"),
	per("drain:20k", "raw", 0.6, "drain of 20,000: to raw in batches of 256"),
	per("drain:200k", "raw", 0.6, "drain of 200,000: to raw in batches of 256"),
	per("drain:20k", "river", 10, "drain of 20,000: to River"),
	per("drain:20k", "backlite", 3, "drain of 20,000: to backlite"),
	over(side{"errand", "lanes:1000", figRate}, side{"errand", "drain:20k", figRate}, 0.6, "lanes: a drain of 1,000 lanes to one of one"),
	over(side{"errand", "batch:500", figRate}, side{"errand", "batch:single", figRate}, 1.5, "batch: 500 jobs a request of 1 ms to a request each"),
	per("finish", "river", 2, "finish: to River"),
	per("finish-100", "river", 10, "finish-100: 100 jobs a transaction to one, of River"),
	over(side{"errand", "progress:with", figRate}, side{"errand", "progress:without", figRate}, 0.97, "progress: handlers that say theirs to those that say nothing"),
	per("drain-kept", "raw", 0.4, "drain-kept: to raw that deletes"),
	per("drain-kept", "river", 8, "drain-kept: to River"),
	per("failing", "raw", 0.4, "failing: to raw"),
	per("mixed", "raw", 0.4, "mixed: to raw"),
	over(side{"errand", "latency", figP50}, side{"errand", "latency", figCommitP50}, 1.5, "latency: p50 to that of a raw commit").orLess(),
	over(side{"errand", "latency", figP99}, side{"errand", "latency", figCommitP99}, 3, "latency: p99 to that of a raw commit").orLess(),
	atMost("cross", figP50, 5, "ms", "cross-process latency: p50"),
	atMost("cross", figP99, 50, "ms", "cross-process latency: p99"),
	over(side{"errand", "deep:with", figRate}, side{"errand", "deep:without", figRate}, 0.85, "deep backlog: to the same without it"),
	over(side{"errand", "held:with", figRate}, side{"errand", "held:without", figRate}, 0.95, "1,000,000 jobs held: to the same without them"),
	over(side{"errand", "behind:with", figRate}, side{"errand", "behind:without", figRate}, 0.95, "100,000 jobs behind one head: to the same without them"),
	over(side{"errand", "groups:with", figRate}, side{"errand", "groups:without", figRate}, 0.95, "1,000,000 idle groups: to as many jobs in no group"),
	atMost("down", figCPU, 1, "% of a core", "50,000 jobs that reach nobody: CPU"),
	per("large:16k", "raw", 0.6, "payloads of 16 KiB: to raw"),
	per("large:256k", "raw", 0.6, "payloads of 256 KiB: to raw"),
	over(side{"errand", "processes:4", figRate}, side{"errand", "processes:1", figRate}, 0.7, "4 processes: total to that of one"),
	{about: "4 processes: slowest to fastest", num: side{"errand", "processes:4", figFair}, limit: 0.5, unit: "x"},
	over(side{"errand", "wear", figWritten}, side{"raw", "wear", figWritten}, 1, "wear: bytes a job to raw's").orLess(),
	over(side{"errand", "wear", figWritten}, side{"backlite", "wear", figWritten}, 0.2, "wear: bytes a job to backlite's").orLess(),
	atMost("idle", figCPU, 0.1, "% of a core", "idle: CPU"),
	atMost("idle", figBytes, 0, "bytes", "idle: written in a minute"),
	atMost("idle:held", figCPU, 0.1, "% of a core", "idle beside held jobs: CPU"),
	atMost("idle:held", figBytes, 0, "bytes", "idle beside held jobs: written in a minute"),
	atMost("idle:groups", figCPU, 0.1, "% of a core", "idle beside 1,000,000 groups: CPU"),
	atMost("idle:groups", figBytes, 0, "bytes", "idle beside 1,000,000 groups: written in a minute"),
	atMost("idle:prefix", figCPU, 0.1, "% of a core", "idle for 10,000 queues of a prefix: CPU"),
	atMost("idle:prefix", figBytes, 0, "bytes", "idle for 10,000 queues of a prefix: written in a minute"),
	atMost("memory", figPeak, 32, "MiB", "memory: peak beside 1,000,000 scheduled"),
	atMost("open", figOpen, 100, "ms", "open: a file with 1,000,000 jobs"),
}, coreTargets()...)

// value sums up over the rounds what the target is about; with two sides the
// ratios within each round. What counts is the median. It is not ok if there is
// no round in which all of it was measured.
func (t target) value(samples []sample) (summary, bool) {
	num := byRound(samples, t.num)
	var values []float64
	for round, v := range num {
		if t.den != nil {
			d, ok := byRound(samples, *t.den)[round]
			if !ok {
				continue
			}
			v /= d
		}
		values = append(values, v)
	}
	return summarize(values), len(values) > 0
}

func byRound(samples []sample, s side) map[int]float64 {
	m := map[int]float64{}
	for _, x := range samples {
		if v, ok := x.Figures[s.figure]; ok && x.System == s.system && x.Workload == s.workload {
			m[x.Round] = v
		}
	}
	return m
}

func (t target) met(v float64) bool {
	if t.atMost {
		return v <= t.limit
	}
	return v >= t.limit
}

func (t target) bound() string {
	if t.atMost {
		return fmt.Sprintf("<= %v %s", t.limit, t.unit)
	}
	return fmt.Sprintf(">= %v %s", t.limit, t.unit)
}

// wanted reports whether what the target needs was asked for.
func (t target) wanted(o options) bool {
	has := func(s side) bool {
		return slices.ContainsFunc(o.systems, func(e entry) bool { return e.name == s.system }) &&
			slices.ContainsFunc(o.workloads, func(w workload) bool { return w.name == s.workload })
	}
	return has(t.num) && (t.den == nil || has(*t.den))
}

// check prints all targets that were measured, and returns an error that names
// those that were missed.
func check(out io.Writer, o options, samples []sample) error {
	rows := [][]string{{"target", "wanted", "measured", "in the rounds", ""}}
	var missed []error
	for _, t := range targets {
		if !t.wanted(o) {
			continue
		}
		v, ok := t.value(samples)
		verdict := "ok"
		switch {
		case !ok:
			verdict = "not measured"
		case !t.met(v.median):
			verdict = "MISSED"
		}
		if verdict != "ok" {
			missed = append(missed, fmt.Errorf("bench: %s: %s %s, measured %.3g", verdict, t.about, t.bound(), v.median))
		}
		rows = append(rows, []string{
			t.about, t.bound(), fmt.Sprintf("%.3g %s", v.median, t.unit), fmt.Sprintf("%.3g to %.3g", v.least, v.most), verdict,
		})
	}
	return errors.Join(append(missed, table(out, "Targets", rows))...)
}
