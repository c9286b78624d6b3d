package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// Programs that have the commands that were in keyserver-operator earlier (ADR 79).
const (
	agentProgram  = "keyserver-agent"
	clientProgram = "keyserverctl"
)

// movedCommands returns the commands that moved to other programs. args are the arguments of the program. Most of these
// commands run the other program for one release, because manifests, unit files and scripts use them.
func movedCommands(args []string) []*cobra.Command {
	return []*cobra.Command{
		forwards("agent", agentProgram, args),
		forwards("kms", agentProgram, args),
		forwards("support-bundle", clientProgram, args),
		refers("ctl", clientProgram),
		refers("up", "keyserver-dev up"),
	}
}

// forwards returns a command that runs the command with the same name in another program.
func forwards(name, other string, args []string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "Run " + other + " " + name + " (deprecated: run it directly)",
		DisableFlagParsing: true,
		RunE:               func(cmd *cobra.Command, _ []string) error { return forward(cmd, cmd.CommandPath(), other, args) },
	}
}

// forward warns that a command is deprecated, and replaces this process by the other program with the same arguments.
func forward(cmd *cobra.Command, form, other string, args []string) error {
	instead := other + strings.TrimPrefix(cmd.CommandPath(), programName)
	path, err := findProgram(other)
	if err != nil {
		return fmt.Errorf("%s is now %q: %w", strings.TrimPrefix(form, programName+" "), instead, err)
	}
	logger, err := program.NewLogger(cmd.ErrOrStderr(), "warn")
	if err != nil {
		return err
	}
	logger.WarnContext(cmd.Context(), form+" is deprecated; the next release removes it", "use", instead)
	err = syscall.Exec(path, append([]string{path}, args...), os.Environ()) //nolint:gosec // the program is ours, and the arguments are this command's
	return fmt.Errorf("run %s: %w", path, err)
}

// findProgram returns the path of a program of this project, in the directory of this program or in $PATH.
func findProgram(name string) (string, error) {
	places := []string{name}
	if self, err := os.Executable(); err == nil { // fails without /proc
		places = []string{filepath.Join(filepath.Dir(self), name), name}
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", fmt.Errorf("there is no executable %s in the directory of this program or in $PATH; install it there", name)
}

// forwarded has the flags of doctor and audit verify that moved to keyserverctl. If server or cluster is set, the
// command is forwarded.
type forwarded struct {
	args    []string // arguments of the program
	server  string
	cluster bool
}

// bindServer adds the flags for access to a key server. They are hidden because they are deprecated.
func (o *forwarded) bindServer(f *pflag.FlagSet) {
	f.StringVar(&o.server, "server", "", "use keyserverctl")
	for _, name := range []string{"ca-file", "username", "password-file"} {
		f.String(name, "", "use keyserverctl")
	}
	hide(f, "server", "ca-file", "username", "password-file")
}

// bindCluster adds the hidden flags for access to a key server or a cluster.
func (o *forwarded) bindCluster(f *pflag.FlagSet) {
	o.bindServer(f)
	f.BoolVar(&o.cluster, "cluster", false, "use keyserverctl")
	f.String("kubeconfig", "", "use keyserverctl")
	f.StringP("namespace", "n", "", "use keyserverctl")
	hide(f, "cluster", "kubeconfig", "namespace")
}

func hide(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f.Lookup(name).Hidden = true
	}
}

// refers returns a command that fails with the name of the program that has the command now.
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
