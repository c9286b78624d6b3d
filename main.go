// Command keyserver-operator is the operator, the HTTP API and the key server in one binary; see README.md.
package main

import (
	"os"

	"github.com/keyserver-operator/keyserver-operator/internal/commands"
	_ "github.com/keyserver-operator/keyserver-operator/internal/platform/clouddrivers"
)

func main() {
	os.Exit(commands.Run(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
