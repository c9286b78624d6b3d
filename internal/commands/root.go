package commands

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// programName is the name of the program with the operator and the key server.
const programName = "keyserver-operator"

// Main runs one command line of keyserver-operator and returns the exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	return Program().Run(args, in, out, errOut)
}

// Run is Main for a program that was started with the name started. It rejects names of kubectl plugins: links with
// these names, which docs/ctl.md recommended earlier, must now point to keyserverctl.
func Run(started string, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	if name := filepath.Base(started); strings.HasPrefix(name, "kubectl") {
		fmt.Fprintf(errOut, "%s: %s is a link to the wrong program; link it to keyserverctl\n", programName, name)
		return program.ExitUsage
	}
	return Main(args, in, out, errOut)
}

// Program returns the program keyserver-operator.
func Program() program.Program { return program.Program{Name: programName, Root: newRoot} }

func newRoot(args []string) (*cobra.Command, error) {
	root := &cobra.Command{
		Use:   programName,
		Short: "Declarative trust and key operations: operator, HTTP API and key server in one binary",
		Long: "Declarative trust and key operations: operator, HTTP API and key server in one binary.\n\n" +
			"Exit codes: 0 done; 1 failed, and standard error says why; 2 the command line was\n" +
			"wrong, and nothing was done. For plan, 2 means that there are changes. A program\n" +
			"without enough memory may also exit with 2: for plan, 2 is a result only together\n" +
			"with a report.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return program.Usagef("unknown command %q; see keyserver-operator --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(movedCommands(args)...)
	root.AddCommand(newServe(), newManager(), newPlan(), newExport(), newAudit(args), newDoctor(args), newBackup(), newRestore(), newMigrate(), newCustody(), newRelease(), newOpenAPI(), newReference(), program.NewVersion(programName))
	return root, nil
}
