// Command measure builds the small programs, runs them in turns, and prints medians.
// It is to be run in the folder bench, whose go.mod has the versions.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/errandq/errand/bench/small"
)

var programs = []string{"modernc", "backlite", "goqite", "river", "errand", "dbos"}

func main() {
	rounds := flag.Int("rounds", 5, "how often each program runs")
	idle := flag.Int("idle", 30, "`seconds` without a job, of which the CPU is measured")
	flag.Parse()
	if err := measure(max(*rounds, 1), max(*idle, 1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(rounds, idle int) error {
	dir, err := os.MkdirTemp("", "small")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, name := range programs {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, name), "./small/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", name, err, out)
		}
	}
	costs := map[string][]small.Cost{}
	for range rounds {
		for _, name := range programs {
			run := exec.Command(filepath.Join(dir, name), strconv.Itoa(idle))
			run.Stderr = os.Stderr
			out, err := run.Output()
			var c small.Cost
			if err == nil {
				err = json.Unmarshal(out, &c)
			}
			if err != nil {
				return fmt.Errorf("running %s: %w", name, err)
			}
			costs[name] = append(costs[name], c)
		}
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "program\tMB\tmodules\topen new ms\tCPU ms\topen existing ms\tCPU ms\tfirst job ms\tclose ms\tidle %")
	for _, name := range programs {
		path := filepath.Join(dir, name)
		file, err := os.Stat(path)
		if err != nil {
			return err
		}
		built, err := buildinfo.ReadFile(path)
		if err != nil {
			return err
		}
		median := func(figure func(small.Cost) float64) float64 {
			var all []float64
			for _, c := range costs[name] {
				all = append(all, figure(c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(t, "%s\t%.1f\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.3f\n", name, float64(file.Size())/1e6, len(built.Deps),
			median(func(c small.Cost) float64 { return c.New }), median(func(c small.Cost) float64 { return c.NewCPU }),
			median(func(c small.Cost) float64 { return c.Existing }), median(func(c small.Cost) float64 { return c.ExistingCPU }),
			median(func(c small.Cost) float64 { return c.First }), median(func(c small.Cost) float64 { return c.Close }),
			median(func(c small.Cost) float64 { return c.Idle }))
	}
	return t.Flush()
}
