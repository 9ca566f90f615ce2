package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker in binaries of a release, see make dist.
var version string

func versionCommand(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Write the version of this program",
		Example: "  errand version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"`
				Go       string `json:"go"`
				System   string `json:"system"`
				SQLite   string `json:"sqlite,omitempty"`
			}{Version: version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = cmp.Or(version, info.Main.Version)
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
				for _, dep := range info.Deps {
					if dep.Path == "modernc.org/sqlite" {
						v.SQLite = dep.Version
					}
				}
			}
			return t.show(v, func(p *printer) {
				p.printf("errand %s, %s, %s, modernc.org/sqlite %s\n", cmp.Or(v.Version, "of unknown version"), v.Go, v.System, orDash(v.SQLite))
				if v.Revision != "" {
					p.printf("revision %s\n", v.Revision)
				}
			})
		},
	}
}
