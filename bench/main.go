// Command bench measures errand beside other job queues on SQLite, and beside
// bare loops over the same driver. See README.md for what is measured and how.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

// childVar holds the spec of a child process.
const childVar = "ERRAND_BENCH_CHILD"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if in := os.Getenv(childVar); in != "" {
		exit(child(ctx, in, os.Stdin, os.Stdout))
	}
	exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are the flags.
type options struct {
	json      bool
	check     bool
	systems   []entry
	workloads []workload
	rounds    int
	scale     float64
	profile   string
	dir       string
	relaxed   bool
}

func parse(args []string, errOut io.Writer) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.BoolVar(&o.json, "json", false, "print a line of JSON per system, workload and round")
	f.BoolVar(&o.check, "check", false, "compare with the targets, and exit 1 naming each that is missed")
	systemList := f.String("systems", "", "comma-separated `names`, see below (default all that are not extra)")
	workloadList := f.String("workloads", "", "comma-separated `names` or groups (default all), see below")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, in each of which all systems take turns")
	f.Float64Var(&o.scale, "scale", 1, "factor for the number of jobs, for a quick look; targets are for 1")
	f.StringVar(&o.profile, "cpuprofile", "", "write CPU profiles of what is measured in the first round to `file`; with several, their names go in before its extension")
	f.BoolVar(&o.relaxed, "relaxed", false, "do not sync each commit, on no system; targets are for commits that are synced")
	f.StringVar(&o.dir, "dir", "", "put the databases into this `directory`, which must be on a disk (default that for temporary files)")
	f.Usage = func() {
		_, _ = io.WriteString(errOut, "Usage: go -C bench run . [flags]\n")
		f.PrintDefaults()
		_, _ = io.WriteString(errOut, lists())
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("bench: argument %q: there are only flags", f.Arg(0))
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("bench: rounds %d: must be at least 1", o.rounds)
	}
	if !(o.scale > 0 && o.scale <= 10) {
		return o, fmt.Errorf("bench: scale %v: must be more than 0 and at most 10", o.scale)
	}
	if *systemList == "" {
		o.systems = slices.DeleteFunc(slices.Clone(systems), func(e entry) bool { return e.extra })
	} else {
		for name := range strings.SplitSeq(*systemList, ",") {
			e, err := findSystem(name)
			if err != nil {
				return o, err
			}
			o.systems = append(o.systems, e)
		}
	}
	if o.relaxed && o.check {
		return o, errors.New("bench: -check with -relaxed: targets are for commits that are synced")
	}
	o.workloads, err = chosen(*workloadList)
	return o, err
}

// lists names all that can be chosen.
func lists() string {
	var b strings.Builder
	b.WriteString("\nSystems:\n")
	for _, e := range allSystems() {
		fmt.Fprintf(&b, "  %-20s %s", e.name, e.about)
		if e.extra {
			b.WriteString(" (extra)")
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWorkloads:\n")
	for _, w := range workloads {
		fmt.Fprintf(&b, "  %-20s %s\n", w.name, w.about)
	}
	return b.String()
}

// run is main without the process around it.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	samples, err := rounds(ctx, o, out, errOut)
	if err != nil {
		return err
	}
	if !o.json {
		if err := report(out, o, samples); err != nil {
			return err
		}
	}
	if !o.check {
		return nil
	}
	if o.json {
		out = errOut // which has to stay apart from the lines of JSON
	}
	return check(out, o, samples)
}
