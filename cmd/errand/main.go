// Command errand is the command line tool of errand.
//
//	errand policy check FILE           check a delivery policy document
//	errand policy show FILE|PRESET     list the retries of a policy
//	errand policy plot FILE|PRESET     draw them
//	errand policy presets              list the predefined policies
//	errand doctor FILE                 examine a database
//
// The exit status is 0; 1 if the document or database has faults; 2 if it could not be
// examined: bad usage, or a file that cannot be read or written.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/policy"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program, with its arguments and streams passed in for tests.
func run(args []string, in io.Reader, out, errs io.Writer) (status int) {
	root := &cobra.Command{
		Use:           "errand",
		Short:         "Tool for the errand job queue",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// A flag with a value that package policy refuses is bad usage too, not a
	// fault of a document.
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errors.New(err.Error()) })
	root.AddCommand(policyCommand(), doctorCommand())
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.Execute()
	if err == nil {
		return 0
	}
	if errors.Is(err, errFindings) {
		return 1
	}
	p := printer{w: errs}
	if faults := policy.Faults(err); len(faults) > 0 {
		for _, f := range faults {
			p.printf("%v\n", f)
		}
		return 1
	}
	p.printf("errand: %v\n", err)
	return 2
}

// printer writes formatted text until there is an error, which it keeps.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
