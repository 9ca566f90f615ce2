package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// place is where a workload is measured, if not on the whole machine.
type place struct {
	Processors int  `json:"processors"` // of Go, on one core; 0: the machine as it is
	Slow       bool `json:"slow"`       // each sync takes a millisecond longer
}

// cores are workloads on one core, once with one processor of Go and once with two: what
// depends on a second one shows.
func cores() (all []workload) {
	for _, w := range base {
		if w.oneCore {
			all = append(all, w.at(place{Processors: 1}), w.at(place{Processors: 2}))
		}
		if w.oneCore && w.name == slowSyncs {
			all = append(all, w.at(place{1, true}), w.at(place{2, true}))
		}
	}
	return all
}

// slowSyncs is the workload that is measured on a slow disk too.
const slowSyncs = "drain:20k"

func (w workload) at(p place) workload {
	w.about = fmt.Sprintf("%s on one core with GOMAXPROCS=%d", w.name, p.Processors)
	if p.Slow {
		w.about += ", each sync a millisecond longer"
	}
	w.name, w.place, w.fits = p.name(w.name), p, own
	return w
}

func (p place) name(workload string) string {
	if p.Slow {
		return fmt.Sprintf("core%d-slow:%s", p.Processors, workload)
	}
	return fmt.Sprintf("core%d:%s", p.Processors, workload)
}

// coreTargets compare one processor with two.
func coreTargets() (all []target) {
	for _, w := range base {
		if !w.oneCore {
			continue
		}
		for _, slow := range []bool{false, true} {
			if slow && w.name != slowSyncs {
				continue
			}
			about := "GOMAXPROCS=1: " + w.name
			if slow {
				about += ", slow syncs"
			}
			compare := func(figure, what string, limit float64) target {
				return over(side{"errand", place{1, slow}.name(w.name), figure}, side{"errand", place{2, slow}.name(w.name), figure}, limit,
					about+": "+what+" to 2 on the same core")
			}
			if w.name == "latency" {
				all = append(all, compare(figP50, "p50", 1.2).orLess())
				continue
			}
			all = append(all, compare(figRate, "jobs", 0.7), compare(figWritten, "bytes written", 1.3).orLess())
		}
	}
	return all
}

// tools returns the command before which self is started, and what it needs that is not
// installed.
func (p place) tools() (before []string, missing error) {
	if p.Processors == 0 {
		return nil, nil
	}
	core, err := firstCore()
	if err != nil {
		return nil, err
	}
	before = []string{"taskset", "-c", core}
	_, missing = exec.LookPath("taskset")
	if p.Slow && missing == nil {
		_, missing = exec.LookPath("strace")
		before = append(before, "strace", "-f", "--seccomp-bpf", "-o", "/dev/null",
			"-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=1ms")
	}
	return before, missing
}

// firstCore returns the number of a core on which this process may run.
func firstCore() (string, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			first, _, _ := strings.Cut(strings.TrimSpace(list), ",")
			first, _, _ = strings.Cut(first, "-")
			return first, nil
		}
	}
	return "", fmt.Errorf("bench: no Cpus_allowed_list in /proc/self/status")
}
