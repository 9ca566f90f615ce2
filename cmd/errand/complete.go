package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	queue "github.com/errandq/errand"
)

// completeFor is for how long a shell waits for words at most.
const completeFor = 2 * time.Second

// words returns words out of the file that the first argument names. What cannot be read
// has none.
func words(path string, of func(ctx context.Context, q *queue.Queue) ([]string, error)) (all []string) {
	ctx, stop := context.WithTimeout(context.Background(), completeFor)
	defer stop()
	silent := newTool(nil, discard{}, discard{})
	_ = silent.reading(ctx, path, func(q *queue.Queue) (err error) {
		all, err = of(ctx, q)
		return err
	})
	all = slices.DeleteFunc(all, func(w string) bool { return !isSafe(w) })
	slices.Sort(all)
	return slices.Compact(all)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// ofCounts returns one name of each lane that has jobs.
func ofCounts(name func(queue.Count) string) func(ctx context.Context, q *queue.Queue) ([]string, error) {
	return func(ctx context.Context, q *queue.Queue) ([]string, error) {
		counts, err := q.Counts(ctx)
		set := map[string]bool{}
		for _, c := range counts {
			set[name(c)] = true
		}
		return slices.Collect(maps.Keys(set)), err
	}
}

var (
	queuesOf = ofCounts(func(c queue.Count) string { return c.Queue })
	kindsOf  = ofCounts(func(c queue.Count) string { return c.Kind })
)

// schedulesOf returns the names of the schedules.
func schedulesOf(ctx context.Context, q *queue.Queue) (names []string, err error) {
	all, err := q.Schedules().List(ctx)
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, err
}

// completeArgs has a shell complete the first argument as a file, and the others with
// words from it.
func completeArgs(cmd *cobra.Command, of func(ctx context.Context, q *queue.Queue) ([]string, error)) {
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return nil, cobra.ShellCompDirectiveDefault
		case len(args) > 1 || of == nil:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(args[0], of), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag has a shell complete a flag with words from the file.
func completeFlag(cmd *cobra.Command, flag string, of func(ctx context.Context, q *queue.Queue) ([]string, error)) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return words(args[0], of), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // no such flag, or it has one
		panic(err)
	}
}

// laneFlags adds the flags that choose a queue and a kind.
func laneFlags(cmd *cobra.Command, name, kind *string) {
	cmd.Flags().StringVar(name, "queue", "", "only of this queue")
	cmd.Flags().StringVar(kind, "kind", "", "only of this kind")
	completeFlag(cmd, "queue", queuesOf)
	completeFlag(cmd, "kind", kindsOf)
}
