package commands

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
	"github.com/keyserver-operator/keyserver-operator/internal/platform/version"
)

// buildVersion is what the key server says about itself.
func buildVersion() keyserver.Version {
	banner := "keyserver-operator " + version.String()
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

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildVersion().Banner)
			return err
		},
	}
}
