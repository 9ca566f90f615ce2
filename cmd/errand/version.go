package main

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/errandq/errand/storage/sqlite"
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
				Libc     string `json:"libc,omitempty"`
				Warning  string `json:"warning,omitempty"`
			}{Version: version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = cmp.Or(version, info.Main.Version)
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			var doubt error
			if v.SQLite, v.Libc, doubt = sqlite.Libraries(); doubt != nil {
				v.Warning = doubt.Error()
			}
			return t.show(v, func(p *printer) {
				p.printf("errand %s, %s, %s, modernc.org/sqlite %s, modernc.org/libc %s\n",
					cmp.Or(v.Version, "of unknown version"), v.Go, v.System, orDash(v.SQLite), orDash(v.Libc))
				if v.Revision != "" {
					p.printf("revision %s\n", v.Revision)
				}
				if v.Warning != "" {
					p.printf("warning: %s\n", v.Warning)
				}
			})
		},
	}
}
