package program

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// BuildVersion returns the version of this build of the program.
func BuildVersion(program string) keyserver.Version {
	banner := program + " " + version.String()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				banner += " (" + s.Value + ")"
			}
		}
		banner += " " + info.GoVersion
	}
	return keyserver.Version{
		Major: version.Major, Minor: version.Minor, Build: version.Build, Edition: version.Edition, Banner: banner,
	}
}

// NewVersion returns the command "version" of a program.
func NewVersion(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), BuildVersion(program).Banner)
			return err
		},
	}
}
