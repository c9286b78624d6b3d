package commands

import (
	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/httpapi/reference"
	"github.com/keyserver-operator/keyserver-operator/httpapi/routes"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

func newOpenAPI() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI 3.1 document of /api",
		Args:  program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc, err := routes.OpenAPI()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(doc)
			return err
		},
	}
}

// newReference returns the command that prints docs/api.md for "make generate".
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference",
		Short:  "Print the reference of /api as Markdown",
		Hidden: true,
		Args:   program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(reference.Page())
			return err
		},
	}
}
