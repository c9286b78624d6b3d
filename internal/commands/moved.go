package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// agentProgram is the program with the commands agent and kms.
const agentProgram = "keyserver-agent"

// movedCommands returns the commands that other programs have now (ADR 79). Manifests and unit files name agent and
// kms, so these two run the other program for one release.
func movedCommands() []*cobra.Command {
	return []*cobra.Command{
		forwards("agent"),
		forwards("kms"),
		refers("ctl", "keyserverctl"),
		refers("up", "keyserver-dev up"),
	}
}

// forwards returns a command that warns and then replaces this process by keyserver-agent, with the same arguments.
func forwards(name string) *cobra.Command {
	instead := agentProgram + " " + name
	return &cobra.Command{
		Use:                name,
		Short:              "Run " + instead + " (deprecated: run it yourself)",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := findAgent()
			if err != nil {
				return fmt.Errorf("%s is now %q: %w", name, instead, err)
			}
			logger, err := program.NewLogger(cmd.ErrOrStderr(), "warn")
			if err != nil {
				return err
			}
			logger.WarnContext(cmd.Context(), "keyserver-operator "+name+" is deprecated; the next release removes it", "use", instead)
			err = syscall.Exec(path, append([]string{path, name}, args...), os.Environ()) //nolint:gosec // the program is ours, and the arguments are this command's
			return fmt.Errorf("run %s: %w", path, err)
		},
	}
}

// findAgent returns the path of keyserver-agent: in the directory of this program, or else in $PATH.
func findAgent() (string, error) {
	places := []string{agentProgram}
	if self, err := os.Executable(); err == nil { // without /proc it fails
		places = []string{filepath.Join(filepath.Dir(self), agentProgram), agentProgram}
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("there is no executable %s in the directory of this program or in $PATH; install it there", agentProgram)
}

// refers returns a command that fails and names the program to use instead.
func refers(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Moved: run " + instead,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return program.Usagef("%s moved to another program; run %q with the same arguments", name, instead)
		},
	}
}
