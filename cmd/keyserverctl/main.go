// Command keyserverctl is the command line client of a key server, and a plugin of kubectl.
package main

import (
	"os"

	"github.com/keyserver-operator/keyserver-operator/internal/commands/ctl"
)

func main() {
	p, args := ctl.Program(os.Args[0], os.Args[1:])
	os.Exit(p.Run(args, os.Stdin, os.Stdout, os.Stderr))
}
