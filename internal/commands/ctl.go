package commands

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
)

// Names of the program by which it is ctl alone: a plugin of kubectl, and what completes
// its command line.
const (
	pluginName     = "kubectl-keyserver"
	completionName = "kubectl_complete-keyserver"
)

// called is the command line and the name of the program in what it says, by the name that
// it was started by.
func called(program string, args []string) (name string, line []string, plugin bool) {
	switch strings.TrimSuffix(filepath.Base(program), ".exe") {
	case pluginName:
		return "kubectl keyserver", args, true
	case completionName:
		return "kubectl keyserver", append([]string{cobra.ShellCompRequestCmd}, args...), true
	default:
		return "keyserver-operator", args, false
	}
}

// newPlugin is ctl as a program of its own.
func newPlugin() (*cobra.Command, error) {
	root, err := ctl.Command(pluginName)
	if err != nil {
		return nil, err
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl keyserver"}
	return root, nil
}

// newCtl has the verbs only where they are asked for: the other commands start without
// making them.
func newCtl(args []string) (*cobra.Command, error) {
	for i, word := range args {
		if word == "ctl" && (i == 0 || i == 1 && (args[0] == "help" || strings.HasPrefix(args[0], cobra.ShellCompRequestCmd))) {
			return ctl.Command("ctl")
		}
	}
	return &cobra.Command{Use: "ctl", Short: "Ask a key server: every route of /api as a verb", Run: func(*cobra.Command, []string) {}}, nil
}
