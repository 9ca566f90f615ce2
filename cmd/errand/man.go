//go:build dist

package main

import (
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// The binary that make dist builds for its own use writes the pages of the manual. Others
// do without, and without the libraries for it.
func init() { verbs = append(verbs, manCommand) }

func manCommand(*tool) *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.Root().DisableAutoGenTag = true
			forManual(cmd.Root())
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Title: "ERRAND", Section: "1", Source: "errand " + version, Manual: "errand"}, args[0])
		},
	}
}

// forManual has the pages keep the lines of tables, which are indented in the texts, and
// say nothing of the machine that they are made on.
func forManual(cmd *cobra.Command) {
	cmd.Long = regexp.MustCompile("(?m)^  ").ReplaceAllString(cmd.Long, "      ")
	if f := cmd.Flags().Lookup("concurrency"); f != nil {
		f.DefValue = "processors"
	}
	for _, c := range cmd.Commands() {
		forManual(c)
	}
}
