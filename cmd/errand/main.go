// Command errand is the command line tool of errand. "errand help" lists its verbs, and
// docs/command.md describes them.
//
// The exit status is 0; 1 if there are findings: faults of a document or a database, a
// job or schedule that is not there, work that was done in part; 2 if nothing could be
// done: bad usage, or a file that cannot be used; 130 if it was interrupted. Single
// verbs have further ones, which their help lists.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	_ "time/tzdata" // zones of schedules, on any machine

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	queue "github.com/errandq/errand"
	"github.com/errandq/errand/policy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), queue.StopSignals()...)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// verbs are the commands below the root, one a line.
var verbs = []func(*tool) *cobra.Command{
	statusCommand,
	watchCommand,
	metricsCommand,
	dashboardCommand,
	jobsCommand,
	queuesCommand,
	groupsCommand,
	workCommand,
	guardian,
	relayCommand,
	serveCommand,
	devicesCommand,
	deadCommand,
	bulkCommand,
	schedulesCommand,
	webhooksCommand,
	topicsCommand,
	subscriptionsCommand,
	backupCommand,
	compactCommand,
	policyCommand,
	auditCommand,
	doctorCommand,
	versionCommand,
}

// The exit statuses that all verbs share.
const (
	statusFindings    = 1
	statusUnusable    = 2
	statusInterrupted = 130
)

var (
	// errFindings ends a verb that has written what it has found.
	errFindings = errors.New("there are findings")
	// errRefused ends a verb that was not allowed to destroy something.
	errRefused = errors.New("not confirmed")
)

// statusError ends a verb with a status of its own. A nil err has been written already.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return "status"
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// run is the program, with its arguments and streams passed in for tests.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (status int) {
	t := newTool(&input{ctx: ctx, r: in}, out, errs)
	root := newRoot(t)
	root.SetArgs(args)
	return t.status(ctx, root.ExecuteContext(ctx))
}

// newRoot returns the root of all commands.
func newRoot(t *tool) *cobra.Command {
	root := &cobra.Command{
		Use:           "errand",
		Short:         "Tool for the errand job queue",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noVerb, // where cobra's own has its suggestions on lines of their own
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	// A flag with a value that package policy refuses is bad usage too, not a
	// fault of a document.
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errors.New(err.Error()) })
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		return errors.Join(given(cmd.Flags()), audited(cmd, args))
	}
	root.PersistentFlags().BoolVar(&t.json, "json", false, "write JSON")
	for _, verb := range verbs {
		root.AddCommand(verb(t))
	}
	sayUsage(root)
	root.SetIn(t.in)
	root.SetOut(t.out)
	root.SetErr(t.errs)
	return root
}

// sayUsage has a wrong number of arguments answered with the usage of the command, and of
// those below it.
func sayUsage(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		sayUsage(c)
		if right := c.Args; right != nil && !onlyGroups(c) {
			c.Args = func(cmd *cobra.Command, args []string) error {
				err := right(cmd, args)
				if err != nil {
					err = fmt.Errorf("%w; usage: %s", err, cmd.UseLine())
				}
				return err
			}
		}
	}
}

// onlyGroups reports whether a command does nothing but group others: what does something has an
// example.
func onlyGroups(cmd *cobra.Command) bool { return cmd.HasSubCommands() && cmd.Example == "" }

// given returns an error for a flag without a value, most likely that of a variable of a
// shell which is not set: as if it were not there, it would choose more jobs than were meant.
func given(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		list, ok := f.Value.(pflag.SliceValue)
		if ok && len(list.GetSlice()) == 0 || f.Value.Type() == "string" && f.Value.String() == "" {
			err = fmt.Errorf("--%s: must not be empty", f.Name)
		}
	})
	return err
}

// status writes the error that a verb has ended with, and returns the exit status.
func (t *tool) status(ctx context.Context, err error) int {
	var own *statusError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFindings):
		return statusFindings
	case errors.As(err, &own) && own.err == nil:
		return own.status
	}
	p := printer{w: t.errs}
	if faults := policy.Faults(err); len(faults) > 0 {
		for _, f := range faults {
			p.printf("%s\n", safe(f.Error()))
		}
		return statusFindings
	}
	for _, text := range textsOf(err) {
		if ctx.Err() != nil {
			text = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
		}
		p.printf("errand: %s\n", safe(text))
	}
	switch {
	case own != nil:
		return own.status
	case ctx.Err() != nil:
		return statusInterrupted
	case errors.Is(err, queue.ErrNotFound):
		return statusFindings
	}
	return statusUnusable
}

// textsOf returns the texts of the errors that err joins, once each, without the prefix that the root
// gives them. Errors that one of these joins share its line.
func textsOf(err error) (texts []string) {
	all := []error{err}
	joined, ok := err.(interface{ Unwrap() []error })
	if ok = ok && isJoined(err.Error(), joined.Unwrap()); ok {
		all = joined.Unwrap()
	}
	for _, e := range all {
		inner := []string{lineOf(e)}
		if ok {
			inner = textsOf(e)
		}
		for _, text := range inner {
			// What was said of an error is before the prefix that it was made with.
			text = strings.ReplaceAll(strings.TrimPrefix(text, "errand: "), ": errand: ", ": ")
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// lineOf returns the text of an error with what errors in it join on one line.
func lineOf(err error) string {
	text := err.Error()
	switch e := err.(type) { //nolint:errorlint // one step
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text = strings.Replace(text, inner.Error(), lineOf(inner), 1)
		}
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); isJoined(text, all) {
			return strings.Join(textsOf(err), "; ")
		} else {
			for _, inner := range all {
				text = strings.Replace(text, inner.Error(), lineOf(inner), 1)
			}
		}
	}
	return text
}

// isJoined reports whether text is that of [errors.Join] of some errors.
func isJoined(text string, all []error) bool {
	texts := make([]string, len(all))
	for i, e := range all {
		texts[i] = e.Error()
	}
	return text == strings.Join(texts, "\n")
}

// group returns a command that only has verbs of its own.
func group(use, short, long string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		// Without a RunE, a command that does not exist would be no mistake.
		Args: noVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// require has a command refuse to run without some flags.
func require(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil { // there is no such flag
			panic(err)
		}
	}
}

// noVerb refuses what is no verb of a command, and names those that may have been meant: of the
// command, or else of any.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var meant []string
	add := func(of *cobra.Command) {
		of.SuggestionsMinimumDistance = 2 // cobra's own
		for _, name := range of.SuggestionsFor(args[0]) {
			meant = append(meant, of.CommandPath()+" "+name)
		}
	}
	if add(cmd); len(meant) == 0 {
		add(cmd.Root())
		for _, of := range cmd.Root().Commands() {
			add(of)
		}
	}
	text := "see " + cmd.CommandPath() + " --help"
	if len(meant) > 0 {
		text = "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return fmt.Errorf("unknown command %q for %q: %s", args[0], cmd.CommandPath(), text)
}
