package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/keyserver"
)

// The version of this release. A release is one change of these lines.
const (
	versionMajor   = 0
	versionMinor   = 1
	versionBuild   = 0
	versionEdition = 1
)

// buildVersion is what the key server says about itself.
func buildVersion() keyserver.Version {
	banner := fmt.Sprintf("keyserver-operator %d.%d.%d", versionMajor, versionMinor, versionBuild)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				banner += " (" + s.Value + ")"
			}
		}
		banner += " " + info.GoVersion
	}
	return keyserver.Version{
		Major: versionMajor, Minor: versionMinor, Build: versionBuild, Edition: versionEdition, Banner: banner,
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
