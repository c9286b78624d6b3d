package commands

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/kmsplugin"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// programName is the name of the program with all commands.
const programName = "keyserver-operator"

// Main runs one command line of keyserver-operator.
func Main(args []string, in io.Reader, out, errOut io.Writer) (code int) {
	return Run(programName, args, in, out, errOut)
}

// Run runs one command line of the program that was started by that name, and returns the exit code.
func Run(started string, args []string, in io.Reader, out, errOut io.Writer) (code int) {
	p := program.Program{Name: programName, Root: newRoot}
	if ctl.IsPlugin(started) {
		p, args = ctl.Program(started, args)
	}
	return p.Run(args, in, out, errOut)
}

func newRoot(args []string) (*cobra.Command, error) {
	root := &cobra.Command{
		Use:   programName,
		Short: "Declarative trust and key operations: operator, HTTP API and key server in one binary",
		Long: "Declarative trust and key operations: operator, HTTP API and key server in one binary.\n\n" +
			"Exit codes: 0 done; 1 it failed, and a sentence on standard error says why; 2 the\n" +
			"command line was wrong, and nothing was done. Of plan, 2 says that there are changes.\n" +
			"A program that the system ended for want of memory may end with 2 as well: only\n" +
			"together with a report is it the answer of a plan. Of ctl there are more.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return program.Usagef("unknown command %q; see keyserver-operator --help", args[0])
			}
			return nil
		},
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	verbs, err := newCtl(args)
	if err != nil {
		return nil, err
	}
	serving := []*cobra.Command{newServe(), newManager(), agent.Command(), kmsplugin.Command()}
	for _, cmd := range serving {
		cmd.Annotations = map[string]string{program.Serves: program.AsService}
	}
	up := newUp()
	up.Annotations = map[string]string{program.Serves: program.AtTerminal}
	root.AddCommand(serving...)
	root.AddCommand(up, verbs, newPlan(), newExport(), newAudit(), newDoctor(), newSupportBundle(), newBackup(), newRestore(), newMigrate(), newCustody(), newRelease(), newOpenAPI(), newReference(), newVariables(), program.NewVersion(programName))
	return root, nil
}

// newCtl makes the verbs only if they are asked for, so that other commands start without them.
func newCtl(args []string) (*cobra.Command, error) {
	for i, word := range args {
		if word == "ctl" && (i == 0 || i == 1 && (args[0] == "help" || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd))) {
			return ctl.Command("ctl")
		}
	}
	return &cobra.Command{Use: "ctl", Short: "Ask a key server: every route of /api as a verb", Run: func(*cobra.Command, []string) {}}, nil
}
