// Command keyserver-agent runs next to a workload or a kube-apiserver and calls a key server for it.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/kmsplugin"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/program"
)

func main() {
	p := program.Program{Name: "keyserver-agent", Root: root}
	os.Exit(p.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func root([]string) (*cobra.Command, error) {
	serving := []*cobra.Command{agent.Command(), kmsplugin.Command()}
	for _, cmd := range serving {
		cmd.Annotations = map[string]string{program.Serves: program.AsService}
	}
	root := program.Group("keyserver-agent", "Call a key server for a workload or a kube-apiserver",
		append(serving, program.NewVersion("keyserver-agent"))...)
	root.SilenceErrors, root.SilenceUsage = true, true
	return root, nil
}
