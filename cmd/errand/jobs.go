package main

import "github.com/spf13/cobra"

func jobsCommand(t *tool) *cobra.Command {
	return group("jobs", "Add jobs", "Add jobs.", enqueueCommand(t))
}
