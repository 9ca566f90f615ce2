package main

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// measured makes samples of one figure, one for each round.
func measured(s side, values ...float64) (out []sample) {
	for i, v := range values {
		out = append(out, sample{System: s.system, Workload: s.workload, Round: i + 1, Figures: map[string]float64{s.figure: v}})
	}
	return out
}

func TestTarget_value_isTheMedianOfRatiosWithinRounds(t *testing.T) {
	own, raw := side{"errand", "drain:20k", figRate}, side{"raw", "drain:20k", figRate}
	// The machine was ten times as slow in the second round, for both.
	samples := slices.Concat(measured(own, 60, 5, 80), measured(raw, 100, 10, 100))
	x := per("drain:20k", "raw", 0.6, "")
	v, ok := x.value(samples)
	if !ok || v != (summary{median: 0.6, least: 0.5, most: 0.8, n: 3}) {
		t.Errorf("got %+v, %t: want 0.6, 0.5 and 0.8", v, ok)
	}
	if !x.met(0.6) || x.met(0.59) {
		t.Error("at least 0.6 is to be met by 0.6 and not by 0.59")
	}
}

func TestTarget_value_needsBothSidesInOneRound(t *testing.T) {
	x := per("drain:20k", "raw", 0.6, "")
	samples := measured(side{"errand", "drain:20k", figRate}, 1, 2)
	if _, ok := x.value(samples); ok {
		t.Error("a ratio without the other side")
	}
	samples = append(samples, sample{System: "raw", Workload: "drain:20k", Round: 3, Figures: map[string]float64{figRate: 1}})
	if _, ok := x.value(samples); ok {
		t.Error("a ratio across rounds")
	}
	samples = append(samples, sample{System: "raw", Workload: "drain:20k", Round: 2, Figures: map[string]float64{figRate: 4}})
	if v, ok := x.value(samples); !ok || v.median != 0.5 {
		t.Errorf("got %+v, %t: want that of round 2", v, ok)
	}
}

func TestTarget_met_atMost(t *testing.T) {
	x := atMost("idle", figBytes, 0, "bytes", "")
	if !x.met(0) || x.met(1) || x.met(math.NaN()) {
		t.Error("at most 0 is to be met by 0 alone")
	}
	if per("drain:20k", "raw", 0.6, "").met(math.NaN()) {
		t.Error("a target is met by no number")
	}
}

func TestTargets_areAboutWhatIsMeasured(t *testing.T) {
	var seen []string
	for _, x := range targets {
		if slices.Contains(seen, x.about) {
			t.Errorf("%q is there twice", x.about)
		}
		seen = append(seen, x.about)
		sides := []side{x.num}
		if x.den != nil {
			sides = append(sides, *x.den)
		}
		for _, s := range sides {
			e, err := findSystem(s.system)
			if err != nil {
				t.Fatal(err)
			}
			w, err := findWorkload(s.workload)
			if err != nil {
				t.Fatal(err)
			}
			if !w.fits(e) {
				t.Errorf("%q: %s is not measured at %s", x.about, e.name, w.name)
			}
			if e.extra {
				t.Errorf("%q: %s is measured only if asked for", x.about, e.name)
			}
		}
		if x.unit == "" || x.limit < 0 || x.limit == 0 && !x.atMost {
			t.Errorf("%q: unit %q, limit %v", x.about, x.unit, x.limit)
		}
	}
}

// The bounds that the project has set itself are not changed in passing.
func TestTargets_bounds(t *testing.T) {
	var got []string
	for _, x := range targets {
		got = append(got, x.about+" "+x.bound())
	}
	want := `enqueue-1: raw to floor >= 0.8 x
enqueue-1: to raw, one commit each >= 0.85 x
enqueue-64: to raw, one commit each >= 10 x
enqueue-64: to raw in batches of 64 >= 0.55 x
enqueue-batch: to raw in batches of 1,000 >= 0.6 x
enqueue-tx: to raw with the same two rows >= 0.8 x
drain of 20,000: to raw in batches of 256 >= 0.6 x
drain of 200,000: to raw in batches of 256 >= 0.6 x
drain of 20,000: to River >= 10 x
drain of 20,000: to backlite >= 3 x
lanes: a drain of 1,000 lanes to one of one >= 0.6 x
batch: 500 jobs a request of 1 ms to a request each >= 1.5 x
finish: to River >= 2 x
finish-100: 100 jobs a transaction to one, of River >= 10 x
progress: handlers that say theirs to those that say nothing >= 0.97 x
drain-kept: to raw that deletes >= 0.4 x
drain-kept: to River >= 8 x
failing: to raw >= 0.4 x
mixed: to raw >= 0.4 x
latency: p50 to that of a raw commit <= 1.5 x
latency: p99 to that of a raw commit <= 3 x
cross-process latency: p50 <= 5 ms
cross-process latency: p99 <= 50 ms
deep backlog: to the same without it >= 0.85 x
1,000,000 jobs held: to the same without them >= 0.95 x
100,000 jobs behind one head: to the same without them >= 0.95 x
1,000,000 idle groups: to as many jobs in no group >= 0.95 x
50,000 jobs that reach nobody: CPU <= 1 % of a core
payloads of 16 KiB: to raw >= 0.6 x
payloads of 256 KiB: to raw >= 0.6 x
4 processes: total to that of one >= 0.7 x
4 processes: slowest to fastest >= 0.5 x
wear: bytes a job to raw's <= 1 x
wear: bytes a job to backlite's <= 0.2 x
idle: CPU <= 0.1 % of a core
idle: written in a minute <= 0 bytes
idle beside held jobs: CPU <= 0.1 % of a core
idle beside held jobs: written in a minute <= 0 bytes
idle beside 1,000,000 groups: CPU <= 0.1 % of a core
idle beside 1,000,000 groups: written in a minute <= 0 bytes
idle for 10,000 queues of a prefix: CPU <= 0.1 % of a core
idle for 10,000 queues of a prefix: written in a minute <= 0 bytes
memory: peak beside 1,000,000 scheduled <= 32 MiB
open: a file with 1,000,000 jobs <= 100 ms
GOMAXPROCS=1: drain:20k: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: drain:20k: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: drain:20k, slow syncs: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: drain:20k, slow syncs: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: lanes:1000: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: lanes:1000: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: drain-kept: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: drain-kept: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: failing: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: failing: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: mixed: jobs to 2 on the same core >= 0.7 x
GOMAXPROCS=1: mixed: bytes written to 2 on the same core <= 1.3 x
GOMAXPROCS=1: latency: p50 to 2 on the same core <= 1.2 x`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestCheck_namesWhatWasAskedForAndNotMeasured(t *testing.T) {
	w, err := findWorkload("open")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = check(&out, options{systems: systems, workloads: []workload{w}}, nil)
	if err == nil || !strings.Contains(err.Error(), "not measured: open") {
		t.Errorf("got %v", err)
	}
	if err := check(&out, options{systems: systems, workloads: []workload{w}}, measured(side{"errand", "open", figOpen}, 5)); err != nil {
		t.Error(err)
	}
}
