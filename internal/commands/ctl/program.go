package ctl

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

// Names of the program: its own, as a kubectl plugin, and as the program that completes command lines of the plugin.
const (
	programName    = "keyserverctl"
	pluginName     = "kubectl-keyserver"
	completionName = "kubectl_complete-keyserver"
)

// isPlugin reports whether kubectl started the program as its plugin.
func isPlugin(started string) bool {
	name := base(started)
	return name == pluginName || name == completionName
}

func base(started string) string { return strings.TrimSuffix(filepath.Base(started), ".exe") }

// Program returns the command-line client and its arguments. started is the name with which the program was started.
func Program(started string, args []string) (program.Program, []string) {
	if !isPlugin(started) {
		return program.Program{Name: programName, Root: root}, args
	}
	if base(started) == completionName {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	return program.Program{Name: "kubectl keyserver", Root: func([]string) (*cobra.Command, error) {
		cmd, err := Command(pluginName)
		if err != nil {
			return nil, err
		}
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl keyserver"}
		return cmd, nil
	}}, args
}

// root creates all verbs, which takes time. If the only argument is version, it creates just that command.
func root(args []string) (*cobra.Command, error) {
	if len(args) == 1 && args[0] == "version" {
		cmd := &cobra.Command{Use: programName}
		cmd.AddCommand(program.NewVersion(programName))
		return cmd, nil
	}
	cmd, err := Command(programName)
	if err != nil {
		return nil, err
	}
	cmd.AddCommand(program.NewVersion(programName))
	return cmd, nil
}
