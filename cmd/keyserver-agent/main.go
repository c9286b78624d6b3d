// Command keyserver-agent runs next to a workload or a kube-apiserver and calls a key server for it.
package main

import (
	"os"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/agent"
	"github.com/keyserver-operator/keyserver-operator/internal/commands/kmsplugin"
)

func main() {
	os.Exit(agent.Program(kmsplugin.Command()).Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
