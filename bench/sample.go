package main

import (
	"math"
	"slices"
	"time"
)

// sample is what one child process has measured: one system, one workload, one
// round.
type sample struct {
	System     string             `json:"system"`
	Workload   string             `json:"workload"`
	Round      int                `json:"round"`
	Durability string             `json:"durability"`
	Jobs       int                `json:"jobs"`
	Seconds    float64            `json:"seconds"`
	Figures    map[string]float64 `json:"figures"`
}

// The figures of samples.
const (
	figRate    = "jobs_per_second"
	figP50     = "p50_ms"
	figP99     = "p99_ms"
	figPeak    = "peak_mib"
	figWritten = "written_per_job" // bytes
	figBytes   = "written_bytes"
	figCPU     = "cpu_percent" // of one core
	figCPUJob  = "cpu_us_per_job"
	figCalls   = "io_calls" // system calls that read or write
	figOpen    = "open_ms"
	figFair    = "slowest_to_fastest"
	// The share of the time that went into the enqueue.
	figEnqueueShare = "enqueue_share"
	// A bare commit at the same pace beside what is measured.
	figCommitP50 = "commit_p50_ms"
	figCommitP99 = "commit_p99_ms"
)

// quantile returns the value below which the share q of the values lies, by the
// nearest rank. It sorts them. NaN for no values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	rank := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(rank, 0), len(values)-1)]
}

// summary is the middle of some values, and how far they are apart.
type summary struct {
	median, least, most float64
	n                   int
}

// summarize returns the median, of an even number the mean of the middle two.
func summarize(values []float64) summary {
	n := len(values)
	if n == 0 {
		return summary{median: math.NaN(), least: math.NaN(), most: math.NaN()}
	}
	v := slices.Sorted(slices.Values(values))
	return summary{median: (v[(n-1)/2] + v[n/2]) / 2, least: v[0], most: v[n-1], n: n}
}

// spread is the distance of the extremes as a share of the median.
func (s summary) spread() float64 {
	if s.median == 0 {
		return 0
	}
	return (s.most - s.least) / s.median
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// waits are durations of the same thing, in milliseconds.
type waits []float64

func (w *waits) add(d time.Duration) { *w = append(*w, milliseconds(d)) }
